"""Finds where enrich's output ends, so that a query which follows an interrupted one repeats hardly any record.

Each record of `normalized` becomes one record with the same identity, in the same partition of `enriched` or
`dead-letter`.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import TopicPartition

from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import read_ranges
from hifi.kafka.topics import Topics
from hifi.record.headers import IDENTITY, REPLAY, SERVICE
from hifi.runtime import log
from hifi.spark.kafka_connector import PartitionOffsets

_TIMEOUT_S: Final = 15.0
_MAX_OUTPUTS: Final = 50_000
"""Newest records of a partition of an output topic that are read. Where more were written, some are written again."""
_CLOCK_SKEW_MS: Final = 5_000
"""Largest expected difference between brokers' clocks. With a larger one, records are written again."""

logger = log.get(__name__)


async def skip_written(bootstrap: str, topics: Topics, start: PartitionOffsets) -> dict[int, int]:
    """Move offsets of `normalized` past the records whose output is in Kafka.

    A record is skipped only if its output and that of every skipped record before it has been found.

    Args:
        bootstrap: of Kafka.
        topics: of the stream.
        start: partition to the committed offset.

    Returns:
        Partition to the offset of the first record without output; unchanged where the search takes over 15 s.

    Raises:
        aiokafka.errors.KafkaError, OSError: Kafka does not answer.
    """
    offsets = dict(start)
    try:
        async with asyncio.timeout(_TIMEOUT_S), topic_consumer(bootstrap) as consumer:
            await _skip(consumer, topics, offsets)
    except TimeoutError:
        logger.warning("written-records-not-read", timeout_s=_TIMEOUT_S)
    skipped = sum(offsets.values()) - sum(start.values())
    if skipped:
        logger.info("written-records-skipped", records=skipped)
    return offsets


async def _skip(consumer: Any, topics: Topics, offsets: dict[int, int]) -> None:
    """Move the offsets, partition by partition; those that were moved are right also when it is cancelled."""
    parts = [TopicPartition(topics.normalized, partition) for partition in offsets]
    ends = await consumer.end_offsets(parts)
    first = {part: range(offsets[part.partition], offsets[part.partition] + 1) for part in parts}
    unread = {part: records for part, records in first.items() if records.start < ends[part]}
    since_ms: dict[int, int] = {}
    async for records in read_ranges(consumer, unread):
        since_ms |= {record.partition: record.timestamp - _CLOCK_SKEW_MS for record in records}
    written = await _written(consumer, topics, since_ms)
    unread = {
        part: range(
            offsets[part.partition], min(ends[part], offsets[part.partition] + written_counts.total())
        )
        for part in unread
        if (written_counts := written.get(part.partition, Counter()))
    }
    ended: set[int] = set()
    async for records in read_ranges(consumer, unread):
        written_counts = written[records[0].partition]
        for record in records:
            identity = _identity(record)
            if record.partition in ended or identity is None or not written_counts[identity]:
                ended.add(record.partition)
                break
            written_counts[identity] -= 1
            offsets[record.partition] = record.offset + 1


async def _written(
    consumer: Any, topics: Topics, since_ms: Mapping[int, int]
) -> dict[int, Counter[tuple[bytes, bytes]]]:
    """How often each identity was written to each partition since the time when the first input was appended."""
    start_times = {
        TopicPartition(topic, partition): max(0, moment_ms)
        for partition, moment_ms in since_ms.items()
        for topic in (topics.enriched, topics.dead_letter)
    }
    if not start_times:
        return {}
    starts = await consumer.offsets_for_times(start_times)
    ends = await consumer.end_offsets(list(start_times))
    ranges = {
        part: range(max(start.offset, ends[part] - _MAX_OUTPUTS), ends[part])
        for part, start in starts.items()
        if start is not None
    }
    written: dict[int, Counter[tuple[bytes, bytes]]] = {}
    async for records in read_ranges(consumer, ranges):
        for record in records:
            identity = _identity(record)
            if identity is not None and (record.topic == topics.enriched or _is_from_enrich(record)):
                written.setdefault(record.partition, Counter())[identity] += 1
    return written


def _identity(record: Any) -> tuple[bytes, bytes] | None:
    """Identity of an event and the number of its replay; None: the record is not an event."""
    headers = record.headers
    if not headers or headers[0][0] != IDENTITY:
        return None
    return headers[0][1], dict(headers).get(REPLAY, b"")


def _is_from_enrich(record: Any) -> bool:
    return dict(record.headers).get(SERVICE) == b"enrich"
