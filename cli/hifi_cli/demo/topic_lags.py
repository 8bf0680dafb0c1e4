"""Lag of each event on each topic: the time from its acceptance until Kafka appended it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import TopicPartition

from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import assigned_consumer
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import ACCEPTED, OUTCOME

_CLIENT_ID: Final = "hifi-demo"
READ_S: Final = 300.0
ID: Final = "ce_id"
Offsets = Mapping[TopicPartition, int]


@dataclass(slots=True)
class TopicLags:
    """Read from the topics after a run. Lags in milliseconds, from acceptance to Kafka's append time."""

    lags_ms: dict[str, list[float]] = field(default_factory=dict)
    """Short name of the topic to its lags."""
    accepted_us: dict[str, int] = field(default_factory=dict)
    """Event id to the time when ingest accepted it, microseconds since 1970 UTC."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Outcome to its number of receipts."""
    dead: set[str] = field(default_factory=set)
    """Ids of dead-lettered events."""
    copies: dict[str, int] = field(default_factory=dict)
    """Short name of the topic to its number of copies: records after the first one of an event."""


async def end_offsets(bootstrap: str, topics: Topics) -> Offsets:
    """Return the current end offsets of all partitions."""
    partitions = await _partitions(bootstrap, topics)
    consumer = assigned_consumer(bootstrap, _CLIENT_ID)
    await consumer.start()
    try:
        offsets: Offsets = await consumer.end_offsets(partitions)
        return offsets
    finally:
        await consumer.stop()


async def read(bootstrap: str, topics: Topics, start_offsets: Offsets) -> TopicLags:
    """Read everything that was appended after these offsets.

    Raises:
        TimeoutError: Kafka takes longer than five minutes.
    """
    consumer = assigned_consumer(bootstrap, _CLIENT_ID, max_partition_fetch_bytes=4 * 1024 * 1024)
    lags = TopicLags({short(name): [] for name in names(topics)})
    seen_ids: dict[str, set[str]] = {short(name): set() for name in names(topics)}
    await consumer.start()
    try:
        async with asyncio.timeout(READ_S):
            stop_offsets = await consumer.end_offsets(list(start_offsets))
            unread_partitions = [tp for tp, end in stop_offsets.items() if end > start_offsets[tp]]
            consumer.assign(unread_partitions)
            for tp in unread_partitions:
                consumer.seek(tp, start_offsets[tp])
            while unread_partitions:
                for tp, records in (await consumer.getmany(*unread_partitions, timeout_ms=500)).items():
                    for record in records:
                        _add(lags, seen_ids, short(tp.topic), record)
                unread_partitions = [
                    tp for tp in unread_partitions if await consumer.position(tp) < stop_offsets[tp]
                ]
    finally:
        await consumer.stop()
    return lags


def names(topics: Topics) -> Sequence[str]:
    """Return the topics that are read."""
    return (topics.raw, topics.normalized, topics.enriched, topics.receipts, topics.dead_letter)


def short(topic: str) -> str:
    """Return the name of a topic without its stream: `raw` for `hifi.raw`."""
    return topic.partition(".")[2]


def _add(lags: TopicLags, seen_ids: Mapping[str, set[str]], topic: str, record: Any) -> None:
    values = fields(record.headers)
    if ACCEPTED not in values:
        return
    name = values.get(ID, b"").decode("utf-8", "replace")
    accepted_us = int(values[ACCEPTED])
    if topic == "dead-letter":
        lags.dead.add(name)
        return
    if topic == "receipts":
        outcome = values.get(OUTCOME, b"?").decode()
        lags.outcomes[outcome] = lags.outcomes.get(outcome, 0) + 1
    elif name in seen_ids[topic]:
        lags.copies[topic] = lags.copies.get(topic, 0) + 1
        return
    seen_ids[topic].add(name)
    lags.lags_ms[topic].append(record.timestamp - accepted_us / 1000)
    if topic == "raw":
        lags.accepted_us[name] = accepted_us


async def _partitions(bootstrap: str, topics: Topics) -> list[TopicPartition]:
    counts = await partition_counts(bootstrap, list(names(topics)))
    return [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
