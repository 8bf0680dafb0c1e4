"""Finds the end of enrich's output, so that a query which follows an interrupted one repeats hardly any record.

Each record of `normalized` becomes one record with the same identity, in the same partition of `enriched` or
`dead-letter`.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import read_ranges
from hifi.kafka.topics import Topics
from hifi.record.headers import IDENTITY, REPLAY, SERVICE
from hifi.runtime import log
from hifi.spark.kafka_connector import PartitionOffsets

_TIMEOUT_S: Final = 15.0
_MAX_OUTPUTS: Final = 50_000
"""Newest records of a partition of an output topic that are read. If more were written, some are written again."""
_CLOCK_SKEW_MS: Final = 5_000
"""Largest expected difference between brokers' clocks. With a larger one, records are written again."""

logger = log.get(__name__)


async def skip_written(
    bootstrap: str, client_id: str, topics: Topics, start: PartitionOffsets
) -> dict[int, int]:
    """Move offsets of `normalized` past the records whose output is in Kafka.

    A record is skipped only if its output and that of every skipped record before it has been found.

    Args:
        bootstrap: of Kafka.
        client_id: name in the logs and quotas of the broker.
        topics: of the stream.
        start: partition to the committed offset.

    Returns:
        Partition to the offset of the first record without output; an earlier one, from which records are written
        again, if the search takes over 15 s or meets a record that cannot be parsed.

    Raises:
        aiokafka.errors.KafkaError, OSError: Kafka does not answer.
    """
    offsets = dict(start)
    try:
        async with asyncio.timeout(_TIMEOUT_S), topic_consumer(bootstrap, client_id) as consumer:
            await _skip_written(consumer, topics, offsets)
    except TimeoutError:
        logger.warning("written-records-not-read", timeout_s=_TIMEOUT_S)
    except (KafkaError, OSError):
        raise
    except Exception:  # such as ValueError for a record that the client cannot parse
        logger.exception("written-records-not-read")
    skipped = sum(offsets.values()) - sum(start.values())
    if skipped:
        logger.info("written-records-skipped", records=skipped)
    return offsets


async def _skip_written(consumer: Any, topics: Topics, offsets: dict[int, int]) -> None:
    """Move the offsets, partition by partition; the moved offsets are right even if the search is cancelled."""
    partitions = [TopicPartition(topics.normalized, partition) for partition in offsets]
    end_offsets = await consumer.end_offsets(partitions)
    first_ranges: dict[TopicPartition, range] = {}
    for topic_partition in partitions:
        offset = offsets[topic_partition.partition]
        if offset < end_offsets[topic_partition]:
            first_ranges[topic_partition] = range(offset, offset + 1)
    start_ms_by_partition: dict[int, int] = {}
    async for records in read_ranges(consumer, first_ranges):
        start_ms_by_partition |= {record.partition: record.timestamp - _CLOCK_SKEW_MS for record in records}
    written_by_partition = await _count_written(consumer, topics, start_ms_by_partition)
    unread_ranges = {
        topic_partition: range(
            offsets[topic_partition.partition],
            min(end_offsets[topic_partition], offsets[topic_partition.partition] + identity_counts.total()),
        )
        for topic_partition in first_ranges
        if (identity_counts := written_by_partition.get(topic_partition.partition, Counter()))
    }
    finished_partitions: set[int] = set()
    async for records in read_ranges(consumer, unread_ranges):
        identity_counts = written_by_partition[records[0].partition]
        for record in records:
            identity = _identity(record)
            if record.partition in finished_partitions or identity is None or not identity_counts[identity]:
                finished_partitions.add(record.partition)
                break
            identity_counts[identity] -= 1
            offsets[record.partition] = record.offset + 1


async def _count_written(
    consumer: Any, topics: Topics, start_ms_by_partition: Mapping[int, int]
) -> dict[int, Counter[tuple[bytes, bytes]]]:
    """The number of records of each identity in each partition since the time when the first input was appended."""
    start_times_ms = {
        TopicPartition(topic, partition): max(0, start_ms)
        for partition, start_ms in start_ms_by_partition.items()
        for topic in (topics.enriched, topics.dead_letter)
    }
    if not start_times_ms:
        return {}
    start_offsets = await consumer.offsets_for_times(start_times_ms)
    end_offsets = await consumer.end_offsets(list(start_times_ms))
    ranges = {
        topic_partition: range(
            max(start_offset.offset, end_offsets[topic_partition] - _MAX_OUTPUTS),
            end_offsets[topic_partition],
        )
        for topic_partition, start_offset in start_offsets.items()
        if start_offset is not None
    }
    written_by_partition: dict[int, Counter[tuple[bytes, bytes]]] = {}
    async for records in read_ranges(consumer, ranges):
        for record in records:
            identity = _identity(record)
            if identity is not None and (record.topic == topics.enriched or _is_from_enrich(record)):
                written_by_partition.setdefault(record.partition, Counter())[identity] += 1
    return written_by_partition


def _identity(record: Any) -> tuple[bytes, bytes] | None:
    """Identity of an event and the number of its replay; None: the record is not an event."""
    headers = record.headers
    if not headers or headers[0][0] != IDENTITY:
        return None
    return headers[0][1], dict(headers).get(REPLAY, b"")


def _is_from_enrich(record: Any) -> bool:
    return dict(record.headers).get(SERVICE) == b"enrich"
