"""Kafka keeps what waits and what was done for long enough; retry tiers that it deletes deliveries from are refused."""

import pytest

from hifi.kafka.topics import EVENT_RETENTION_MS, LONGEST_TIER_S, Topics, parse_tiers


@pytest.mark.parametrize("text", ["30d", "5s,30d", "7d", "145h", "5s,8641m"])
def test_a_tier_longer_than_kafka_keeps_its_topic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="longer than 6d: Kafka keeps retry topics for 7 days"):
        parse_tiers(text)


@pytest.mark.parametrize("text", ["6d", "144h", "5s,30s,2m,10m,1h,1d"])
def test_a_tier_that_ends_a_day_before_is_accepted(text: str) -> None:
    assert parse_tiers(text)[-1].delay_s <= LONGEST_TIER_S < EVENT_RETENTION_MS // 1000


def test_the_note_of_a_replay_is_kept_until_its_dead_letter_is_gone() -> None:
    topics = Topics("s")
    configs = {topic.name: topic.configs() for topic in topics.all()}
    letters, notes = configs[topics.dead_letter], configs[topics.replays]
    assert int(notes["retention.ms"]) >= int(letters["retention.ms"]) + int(letters["segment.ms"])
