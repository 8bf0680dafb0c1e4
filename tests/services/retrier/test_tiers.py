"""Retry topics that the retrier reads."""

from hifi.kafka.topics import Tier, Topics
from hifi_retrier.tiers import tiers_by_topic

TOPICS = Topics("s", (Tier("5s", 5), Tier("2m", 120)))


def test_tiers_that_were_removed_are_read_with_their_own_delay() -> None:
    assert tiers_by_topic(TOPICS, ["s.retry-in.5s", "s.retry-in.30s"]) == {
        "s.retry-in.5s": Tier("5s", 5),
        "s.retry-in.2m": Tier("2m", 120),
        "s.retry-in.30s": Tier("30s", 30),
    }


def test_a_topic_that_is_no_retry_topic_is_not_read() -> None:
    assert set(tiers_by_topic(TOPICS, ["s.retry-in.soon", "other.retry-in.1s", "s.retry-out"])) == {
        "s.retry-in.5s",
        "s.retry-in.2m",
    }
