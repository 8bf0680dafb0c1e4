"""The retry tiers to read: the configured ones, and removed ones whose topics still exist."""

from typing import Final

from hifi.kafka.admin import topic_names
from hifi.kafka.clients import connect
from hifi.kafka.topics import Tier, Topics
from hifi.runtime import log
from hifi.runtime.health import Health

CONDITION: Final = "retry topics"

logger = log.get(__name__)


def tiers_by_topic(topics: Topics, existing: list[str]) -> dict[str, Tier]:
    """The tier of each topic to read.

    A tier that was removed from `HIFI_TIERS` gets no new deliveries, but those in its topic still have to come back:
    its delay is the end of the topic's name.

    Args:
        topics: of the stream, with the configured tiers.
        existing: names of the stream's retry topics in Kafka.
    """
    return {topics.retry_in(tier): tier for tier in topics.with_removed_tiers(existing).tiers}


async def load_tiers(bootstrap: str, topics: Topics, health: Health) -> dict[str, Tier]:
    """Read from Kafka which tiers there are, however long Kafka is away; the service is not ready until then."""
    tiers: dict[str, Tier] = {}

    async def load() -> None:
        """Ask Kafka once."""
        tiers.update(tiers_by_topic(topics, await topic_names(bootstrap, topics.retry_in_prefix)))

    await connect(load, lambda error: health.block(CONDITION, f"they cannot be listed: {error!r}"))
    if removed := sorted(set(tiers) - {topics.retry_in(tier) for tier in topics.tiers}):
        logger.info("removed-tiers-found", topics=removed)
    health.unblock(CONDITION)
    return tiers
