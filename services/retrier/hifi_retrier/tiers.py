"""The retry tiers to read: the configured ones, and removed ones whose topics still exist."""

from typing import Final

from hifi.kafka.admin import topic_names
from hifi.kafka.clients import connect
from hifi.kafka.topics import Tier, Topics
from hifi.runtime import log
from hifi.runtime.health import Health

_CONDITION: Final = "retry topics"

logger = log.get(__name__)


def tiers_by_topic(topics: Topics, existing_topics: list[str]) -> dict[str, Tier]:
    """The tier of each topic to read.

    A tier that was removed from `HIFI_TIERS` gets no new deliveries, but deliveries in its topic still have to come
    back: its delay is the end of the topic's name.

    Args:
        topics: of the stream, with the configured tiers.
        existing_topics: names of the stream's retry topics in Kafka.
    """
    return {topics.retry_in(tier): tier for tier in topics.with_removed_tiers(existing_topics).tiers}


class RetryTiers:
    """The retry tiers that Kafka has topics of; the service is not ready until they are known.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: of the stream, with the configured tiers.
        health: of the service.
    """

    def __init__(self, bootstrap: str, topics: Topics, health: Health) -> None:
        self.by_topic: dict[str, Tier] = {}
        """Topic to its tier, once started."""
        self._bootstrap = bootstrap
        self._topics = topics
        self._health = health
        health.block(_CONDITION, "they have not been listed yet")

    async def start(self) -> None:
        """Read the tiers from Kafka; tries again until Kafka answers."""
        await connect(
            self._read, lambda error: self._health.block(_CONDITION, f"they cannot be listed: {error!r}")
        )
        configured_topics = {self._topics.retry_in(tier) for tier in self._topics.tiers}
        if removed_topics := sorted(set(self.by_topic) - configured_topics):
            logger.info("removed-tiers-found", topics=removed_topics)
        self._health.unblock(_CONDITION)

    async def stop(self) -> None:
        """Nothing is open after the start."""

    async def _read(self) -> None:
        existing_topics = await topic_names(self._bootstrap, self._topics.retry_in_prefix)
        self.by_topic = tiers_by_topic(self._topics, existing_topics)
