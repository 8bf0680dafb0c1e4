"""Retry tiers that Kafka would delete deliveries from are refused."""

import pytest

from hifi.kafka.topics import EVENT_RETENTION_MS, LONGEST_TIER_S, parse_tiers


@pytest.mark.parametrize("text", ["30d", "5s,30d", "7d", "145h", "5s,8641m"])
def test_a_tier_longer_than_kafka_keeps_its_topic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="longer than 6d: Kafka keeps retry topics for 7 days"):
        parse_tiers(text)


@pytest.mark.parametrize("text", ["6d", "144h", "5s,30s,2m,10m,1h,1d"])
def test_a_tier_that_ends_a_day_before_is_accepted(text: str) -> None:
    assert parse_tiers(text)[-1].delay_s <= LONGEST_TIER_S < EVENT_RETENTION_MS // 1000
