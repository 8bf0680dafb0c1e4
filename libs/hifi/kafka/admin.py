"""Create a stream's topics, and find out which topics exist with how many partitions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, for_code

from hifi.kafka.clients import admin_client, connect
from hifi.kafka.topics import DeclaredTopics, Topics
from hifi.runtime.errors import Retryable, Unprepared

_ALREADY_EXISTS = 36
_MOST_REPLICAS = 3
_METADATA_S = 0.05
_RETENTION = "retention.ms"
_RECORD_LIMIT = "max.message.bytes"
_FIXED = ("cleanup.policy", "message.timestamp.type")
"""Settings of a topic without which hifi would lose events or misjudge their age."""


async def create_topics(
    bootstrap: str,
    topics: DeclaredTopics,
    *,
    partitions: int,
    replication: int,
    create: bool = True,
    timeout_s: float = 30,
) -> list[str]:
    """Create the missing topics of a stream or a control plane and check the others; calling it again changes nothing.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: all of them.
        partitions: of each event topic; fixed when the stream is created.
        replication: replicas of each partition; min ISR is one less, at least one.
        create: False: only check that every topic exists as it must be.
        timeout_s: bound on waiting until Kafka answers and knows every topic, seconds.

    Returns:
        The names of the topics that were created now.

    Raises:
        Unprepared: a topic exists with another partition count, cleanup policy or timestamp type or a smaller record
            limit, or Kafka refuses one; or one is missing and must not be created.
        Retryable: Kafka did not answer in time.
    """
    async with asyncio.timeout(timeout_s):
        try:
            async with _admin(bootstrap) as admin:
                return await _create(admin, topics, partitions, replication, create=create)
        except KafkaError as error:
            raise Retryable(f"Kafka at {bootstrap} did not create the topics: {error!r}") from error


async def partition_counts(bootstrap: str, names: list[str]) -> dict[str, int]:
    """Partitions by name of those topics that exist. Waits, without a time limit, until a broker answers.

    Raises:
        aiokafka.errors.KafkaError: Kafka refused.
    """
    async with _admin(bootstrap) as admin:
        return await _counts(admin, names)


async def topic_names(bootstrap: str, prefix: str) -> list[str]:
    """Names of the existing topics that begin with a prefix, sorted. Waits, without a time limit, for a broker.

    Raises:
        aiokafka.errors.KafkaError: Kafka refused.
    """
    async with _admin(bootstrap) as admin:
        return sorted(name for name in await admin.list_topics() if name.startswith(prefix))


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as Kafka has it."""

    partitions: int
    replicas: int
    configs: Mapping[str, str]
    """Its settings; empty: this user may not read them."""


async def topic_facts(bootstrap: str, names: list[str], timeout_s: float = 30) -> dict[str, TopicFacts]:
    """The topics that exist, by name.

    Raises:
        Retryable: Kafka did not answer in time, or refused.
    """
    try:
        async with asyncio.timeout(timeout_s), _admin(bootstrap) as admin:
            counts = await _counts(admin, names)
            configs = await _settings(admin, list(counts), None)
            descriptions = await admin.describe_topics(list(counts)) if counts else []
            replicas = {
                topic["topic"]: min(
                    (len(partition["replicas"]) for partition in topic["partitions"]), default=0
                )
                for topic in descriptions
            }
    except (KafkaError, TimeoutError) as error:
        raise Retryable(f"Kafka at {bootstrap} did not describe the topics: {error!r}") from error
    return {
        name: TopicFacts(partitions, replicas.get(name, 0), configs.get(name, {}))
        for name, partitions in counts.items()
    }


async def create_topic(admin: Any, name: str, partitions: int, configs: dict[str, str]) -> None:
    """Create a topic with up to three replicas, unless somebody else has created it meanwhile.

    Args:
        admin: started.
        name: of the topic.
        partitions: how many.
        configs: settings of the topic.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer, or refused.
    """
    replicas = min(_MOST_REPLICAS, len((await admin.describe_cluster())["brokers"]))
    response = await admin.create_topics([NewTopic(name, partitions, replicas, topic_configs=configs)])
    for _, code, *_ in response.topic_errors:
        if code not in (0, _ALREADY_EXISTS):
            raise for_code(code)(f"the topic {name} cannot be created")


async def known_partitions(admin: Any, name: str) -> int:
    """The number of partitions of a topic that exists. Waits, without a time limit, until the brokers know it.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    while True:
        [description] = await admin.describe_topics([name])
        if description["partitions"]:
            return len(description["partitions"])
        await asyncio.sleep(_METADATA_S)


@contextlib.asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[Any]:
    admin = admin_client(bootstrap, "hifi-admin")
    try:
        await connect(admin.start)
        yield admin
    finally:
        await admin.close()


async def _counts(admin: Any, topic_names: list[str]) -> dict[str, int]:
    descriptions = await admin.describe_topics(topic_names)
    refused_topics = [
        topic["topic"] for topic in descriptions if topic["error_code"] == TopicAuthorizationFailedError.errno
    ]
    if refused_topics:
        raise TopicAuthorizationFailedError(
            f"this Kafka user may not use {', '.join(refused_topics)}; `hifi acl show` lists the ACLs of each service"
        )
    return {topic["topic"]: len(topic["partitions"]) for topic in descriptions if topic["error_code"] == 0}


async def retention_ms(admin: Any, topic: str) -> int | None:
    """How long Kafka keeps records of a topic, milliseconds; -1: for ever; None: this user may not read it.

    Args:
        admin: started.
        topic: that exists.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {_RETENTION: None})
    for answer in await admin.describe_configs([resource]):
        for code, _, _, _, settings in answer.resources:
            for setting in settings if code == 0 else ():
                if setting[0] == _RETENTION:
                    return int(setting[1])
    return None


async def _settings(
    admin: Any, names: list[str], keys: Iterable[str] | None = (_RECORD_LIMIT, *_FIXED)
) -> dict[str, dict[str, str]]:
    """Settings of each topic, None: all of them; topics whose settings may not be read are left out."""
    if not names:
        return {}
    requested_keys = None if keys is None else dict.fromkeys(keys)
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, requested_keys) for name in names]
    return {
        name: {setting[0]: setting[1] for setting in settings}
        for answer in await admin.describe_configs(resources)
        for code, _, _, name, settings in answer.resources
        if code == 0 and settings
    }


async def _create(
    admin: Any, topics: DeclaredTopics, partitions: int, replication: int, *, create: bool
) -> list[str]:
    existing = await _counts(admin, [topic.name for topic in topics.all()])
    await _check_existing(admin, topics, existing, partitions)
    missing_topics = [topic for topic in topics.all() if topic.name not in existing]
    if missing_topics and not create:
        printed = (
            f"`hifi topics show --stream {topics.prefix} --partitions {partitions}` prints"
            if isinstance(topics, Topics)
            else "`hifi topics show` prints, with --control NAME for a control plane, or --colours for two colours"
        )
        raise Unprepared(
            f"the topics {', '.join(topic.name for topic in missing_topics)} are missing and HIFI_CREATE_TOPICS is "
            f"false: create them as {printed}"
        )
    if missing_topics:
        min_isr = {"min.insync.replicas": str(max(1, replication - 1))}
        answer = await admin.create_topics(
            [
                NewTopic(
                    topic.name,
                    topic.partitions or partitions,
                    replication,
                    topic_configs=topic.configs() | min_isr,
                )
                for topic in missing_topics
            ]
        )
        for name, code, *messages in answer.topic_errors:
            if code not in (0, _ALREADY_EXISTS):
                raise Unprepared(
                    f"Kafka refuses the topic {name}: {for_code(code).__name__} {messages[0] if messages else ''}"
                )
    topic_names = [topic.name for topic in topics.all()]
    while len(await _counts(admin, topic_names)) < len(topic_names):
        await asyncio.sleep(0.1)
    return [topic.name for topic in missing_topics]


async def _check_existing(
    admin: Any, topics: DeclaredTopics, existing: dict[str, int], partitions: int
) -> None:
    """Refuse topics that do not fit the stream.

    Raises:
        Unprepared: another partition count, cleanup policy or timestamp type, or a record limit below the largest
            event.
    """
    topics_by_name = {topic.name: topic for topic in topics.all()}
    for name, count in existing.items():
        required = topics_by_name[name].partitions or partitions
        if count != required:
            raise Unprepared(
                f"the topic {name} has {count} partitions and {topics.prefix} needs {required}; "
                "the count is fixed when a stream is created: start a new stream (HIFI_STREAM) or use the old count"
            )
    for name, actual_settings in (await _settings(admin, list(existing))).items():
        configs = topics_by_name[name].configs()
        if int(actual_settings[_RECORD_LIMIT]) < int(configs[_RECORD_LIMIT]):
            raise Unprepared(
                f"the topic {name} allows records of {actual_settings[_RECORD_LIMIT]} bytes and an event may have "
                f"{configs[_RECORD_LIMIT]}: {_remedy(name, _RECORD_LIMIT, configs[_RECORD_LIMIT])}"
            )
        for key in _FIXED:
            if actual_settings[key] != configs[key]:
                raise Unprepared(
                    f"the topic {name} has {key}={actual_settings[key]} and needs {configs[key]}: "
                    f"{_remedy(name, key, configs[key])}"
                )


def _remedy(topic: str, key: str, value: str) -> str:
    return (
        f"run kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {key}={value}"
    )
