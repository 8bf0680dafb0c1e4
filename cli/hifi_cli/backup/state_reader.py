"""Reads the declared state of a stream and its control plane from Kafka."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics
from hifi.pipe.registry import STREAM_KEY
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup.state import (
    DESTINATIONS,
    NEWEST_BY_KEY,
    SOURCE_POSITIONS,
    State,
    StateRecord,
    control_topics,
    effective,
    stream_topics,
)

_WITHIN_S: Final = 60.0
_STREAM_KEY: Final = STREAM_KEY.decode()


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The topics and partitions to read from one Kafka."""

    bootstrap: str
    partitions: Mapping[str, list[TopicPartition]]
    """Name in backups to the partitions of the topic."""


class _ReadRecords(NamedTuple):
    """What was read of topics."""

    records: list[StateRecord]
    """Those that count."""
    unreadable: list[str]
    """A sentence about each that is left out."""


async def read_state(
    bootstrap: str, topics: Topics, control: tuple[str, PrincipalTopics] | None = None
) -> State:
    """Read everything at one moment: if something changes meanwhile, all is read again.

    Args:
        bootstrap: the stream's Kafka.
        topics: of the stream.
        control: Kafka and topics of the control plane, or of principals and audit only; None: neither is read.

    Raises:
        Misconfigured: Kafka does not answer, has no such stream, or the state changed all the time for a minute.
    """
    try:
        async with asyncio.timeout(_WITHIN_S):
            clusters = [await _partitions(bootstrap, stream_topics(topics))]
            if control is not None:
                clusters.append(await _partitions(control[0], control_topics(control[1])))
            records, unreadable = await _read_all(clusters)
    except TimeoutError:
        raise Misconfigured(
            f"the state of the stream {topics.stream} could not be read within {_WITHIN_S:.0f} s from Kafka at "
            f"{bootstrap}, or it changed all the time: check that the mesh is running, and try again"
        ) from None
    except (KafkaError, OSError) as error:
        raise Misconfigured(
            f"the state of the stream {topics.stream} cannot be read from Kafka at {bootstrap} ({error!r}); "
            "is the mesh running, and is this its stream?"
        ) from error
    partitions = [record.value["partitions"] for record in records if record.key == _STREAM_KEY]
    if not partitions:
        raise Misconfigured(
            f"Kafka at {bootstrap} has no stream {topics.stream}: `hifi up` creates it, --stream names another one"
        )
    return State(
        topics.stream,
        control[1].control if control and isinstance(control[1], ControlTopics) else "",
        partitions[0],
        now_us(),
        [record for record in records if record.key != _STREAM_KEY],
        unreadable,
    )


async def _partitions(bootstrap: str, names: Mapping[str, str]) -> _Cluster:
    """The partitions of the topics.

    Raises:
        Misconfigured: a topic does not exist.
    """
    counts = await partition_counts(bootstrap, list(names.values()))
    missing_topics = sorted(set(names.values()) - set(counts))
    if missing_topics:
        raise Misconfigured(
            f"Kafka at {bootstrap} has no topic {', '.join(missing_topics)}: `hifi up` creates the topics, with"
            " --control those of a control plane; --stream names another stream"
        )
    return _Cluster(
        bootstrap,
        {
            name: [TopicPartition(topic, number) for number in range(counts[topic])]
            for name, topic in names.items()
        },
    )


async def _read_all(clusters: Sequence[_Cluster]) -> _ReadRecords:
    """Every record that counts, of a moment in which nothing changed."""
    async with contextlib.AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(
                topic_consumer(cluster.bootstrap, "hifi-backup", isolation_level="read_committed")
            )
            for cluster in clusters
        ]
        while True:
            offsets_before = await _end_offsets(clusters, consumers)
            read_topics = [
                await _read(consumer, name, partitions)
                for cluster, consumer in zip(clusters, consumers, strict=True)
                for name, partitions in cluster.partitions.items()
            ]
            if offsets_before == await _end_offsets(clusters, consumers):
                return _ReadRecords(
                    [record for read_topic in read_topics for record in read_topic.records],
                    [text for read_topic in read_topics for text in read_topic.unreadable],
                )


async def _end_offsets(
    clusters: Sequence[_Cluster], consumers: Sequence[AIOKafkaConsumer]
) -> list[Mapping[Any, int]]:
    """The ends of all topics but those that are written as events pass, whose records stand alone."""
    return [
        await consumer.end_offsets(
            [
                tp
                for name, topic_partitions in cluster.partitions.items()
                if name not in (SOURCE_POSITIONS, DESTINATIONS)
                for tp in topic_partitions
            ]
        )
        for cluster, consumer in zip(clusters, consumers, strict=True)
    ]


async def _read(consumer: AIOKafkaConsumer, name: str, partitions: list[TopicPartition]) -> _ReadRecords:
    topic_records: list[ConsumerRecord] = []
    async for records in read_ranges(consumer, await offset_ranges(consumer, partitions)):
        topic_records += records
    return counting_records(name, topic_records)


def counting_records(name: str, records: Iterable[ConsumerRecord]) -> _ReadRecords:
    """The records of a topic that count. One that is no JSON, or whose key is no text, is left out.

    If it is the newest of its key no earlier one counts, which may have granted a right that it takes away.

    Args:
        name: of the topic in backups.
        records: of the topic, in their order.
    """
    state_records, unreadable = list[StateRecord](), list[str]()
    for record in records:
        key, value = (record.key or b"").decode("utf-8", "backslashreplace"), None
        try:
            (record.key or b"").decode()
            value = None if record.value is None else orjson.loads(record.value)
        except ValueError as error:
            unreadable.append(
                f"the record {key!r} of {name} at offset {record.offset} of partition {record.partition} cannot be "
                f"read, and is not in the backup ({type(error).__name__})"
            )
            if name not in NEWEST_BY_KEY:
                continue
        state_records.append(StateRecord(name, record.partition, record.offset, key, value))
    return _ReadRecords(effective(name, state_records), unreadable)
