"""Creating a stream's topics, and refusing a stream whose partitions do not fit."""

import asyncio
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from hifi.errors import Misconfigured, Retryable
from hifi.health import Health
from hifi.topics import Topics

_ALREADY_EXISTS = 36
_PARTITIONS = "partitions"
_RECORD_LIMIT = "max.message.bytes"
_LOOK_AGAIN_S = 2.0


async def create_topics(
    bootstrap: str, topics: Topics, *, partitions: int, replication: int, timeout_s: float = 30
) -> list[str]:
    """Create what is missing of a stream; repeating it changes nothing.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: the stream's topics.
        partitions: of each event topic; fixed for the stream's life.
        replication: copies of each partition; min ISR is one less, at least one.
        timeout_s: bound on waiting until Kafka answers and knows every topic, seconds.

    Returns:
        The names of the topics that were created now.

    Raises:
        Misconfigured: a topic exists with another partition count or takes less than an event, or Kafka refuses one.
        Retryable: Kafka did not answer in time.
    """
    async with asyncio.timeout(timeout_s):
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await _start(admin)
            return await _create(admin, topics, partitions, replication)
        except KafkaError as error:
            raise Retryable(f"Kafka at {bootstrap} did not create the topics: {error!r}") from error
        finally:
            await admin.close()


async def partition_counts(bootstrap: str, names: list[str]) -> dict[str, int]:
    """Partitions of those of the topics that exist."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await _start(admin)
        return await _counts(admin, names)
    finally:
        await admin.close()


async def matching_partitions(bootstrap: str, names: list[str], partitions: int, health: Health) -> None:
    """Return once all of the topics have as many partitions as the stream says; not ready until then."""
    while True:
        try:
            counts = await partition_counts(bootstrap, names)
            wrong = {name: counts.get(name, 0) for name in names if counts.get(name, 0) != partitions}
            if not wrong:
                health.unblock(_PARTITIONS)
                return
            health.block(
                _PARTITIONS,
                f"the stream has {partitions} partitions, but {wrong}; a stream never grows: start a new one",
            )
        except (KafkaError, OSError) as error:
            health.block(_PARTITIONS, f"Kafka does not tell the partitions: {error!r}")
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _start(admin: Any) -> None:
    while True:
        try:
            await admin.start()
            return
        except KafkaError:
            await asyncio.sleep(0.2)


async def _counts(admin: Any, names: list[str]) -> dict[str, int]:
    described = await admin.describe_topics(names)
    return {one["topic"]: len(one["partitions"]) for one in described if one["error_code"] == 0}


async def _record_limits(admin: Any, names: list[str]) -> dict[str, int]:
    """Bytes of the largest record that each topic takes, where we may know them."""
    if not names:
        return {}
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name, {_RECORD_LIMIT: None}) for name in names]
    return {
        name: int(settings[0][1])
        for answer in await admin.describe_configs(wanted)
        for code, _, _, name, settings in answer.resources
        if code == 0 and settings
    }


async def _create(admin: Any, topics: Topics, partitions: int, replication: int) -> list[str]:
    declared = {topic.name: topic for topic in topics.all()}
    existing = await _counts(admin, list(declared))
    for name, count in existing.items():
        wanted = declared[name].partitions or partitions
        if count != wanted:
            raise Misconfigured(
                f"the topic {name} has {count} partitions and the stream {topics.stream} needs {wanted}; "
                "the count is fixed when a stream is created: start a new stream (HIFI_STREAM) or use the old count"
            )
    for name, limit in (await _record_limits(admin, list(existing))).items():
        wanted = int(declared[name].configs()[_RECORD_LIMIT])
        if limit < wanted:
            raise Misconfigured(
                f"the topic {name} takes records of {limit} bytes and an event may have {wanted}: "
                f"run kafka-configs.sh --alter --entity-type topics --entity-name {name} "
                f"--add-config {_RECORD_LIMIT}={wanted}"
            )
    missing = [topic for topic in declared.values() if topic.name not in existing]
    if missing:
        min_isr = {"min.insync.replicas": str(max(1, replication - 1))}
        answer = await admin.create_topics(
            [
                NewTopic(
                    topic.name,
                    topic.partitions or partitions,
                    replication,
                    topic_configs=topic.configs() | min_isr,
                )
                for topic in missing
            ]
        )
        for name, code, *rest in answer.topic_errors:
            if code not in (0, _ALREADY_EXISTS):
                raise Misconfigured(
                    f"Kafka refuses the topic {name}: {for_code(code).__name__} {rest[0] if rest else ''}"
                )
    while len(await _counts(admin, list(declared))) < len(declared):
        await asyncio.sleep(0.1)
    return [topic.name for topic in missing]
