"""Read partitions of a topic up to the end that they have now, without a consumer group."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition

from hifi.runtime import log, metrics

_POLL_MS = 500

logger = log.get(__name__)


async def offset_ranges(
    consumer: Any, partitions: Iterable[TopicPartition], since_ms: int | None = None
) -> dict[TopicPartition, range]:
    """The offsets that each partition holds now: from the first one, or from a time on, to before the end.

    Args:
        consumer: started, without a group.
        partitions: of any topics.
        since_ms: append time of the first record wanted, milliseconds since 1970 UTC; None: all records.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    tps = list(partitions)
    start_offsets: Mapping[TopicPartition, int] = await consumer.beginning_offsets(tps)
    end_offsets: Mapping[TopicPartition, int] = await consumer.end_offsets(tps)
    if since_ms is not None:
        first_offsets = await consumer.offsets_for_times(dict.fromkeys(tps, max(0, since_ms)))
        start_offsets = {
            tp: end_offsets[tp] if first_offsets[tp] is None else first_offsets[tp].offset for tp in tps
        }
    return {tp: range(start_offsets[tp], end_offsets[tp]) for tp in tps}


async def read_ranges(
    consumer: Any, ranges: Mapping[TopicPartition, range], *, max_records: int = 2000
) -> AsyncIterator[Sequence[ConsumerRecord]]:
    """Every record of these offsets, in batches of one partition; those of a partition in order.

    The consumer is assigned to the partitions. Offsets that compaction or retention has removed are left out.

    Args:
        consumer: started, without a group.
        ranges: as `offset_ranges` returns them; empty ones are left out.
        max_records: of one fetch, over all partitions.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    consumer.assign([tp for tp, offsets in ranges.items() if offsets])
    async for records in read_assigned(consumer, ranges, max_records=max_records):
        yield records


async def read_assigned(
    consumer: Any, ranges: Mapping[TopicPartition, range], *, max_records: int = 2000
) -> AsyncIterator[Sequence[ConsumerRecord]]:
    """As `read_ranges`, by a consumer that is assigned to the partitions already.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    unread = [tp for tp, offsets in ranges.items() if offsets]
    for tp in unread:
        consumer.seek(tp, ranges[tp].start)
    while unread:
        fetched = await consumer.getmany(*unread, timeout_ms=_POLL_MS, max_records=max_records)
        for tp, records in fetched.items():
            end = ranges[tp].stop
            yield (
                records if records[-1].offset < end else [record for record in records if record.offset < end]
            )
        unread = [tp for tp in unread if await consumer.position(tp) < ranges[tp].stop]


def note_unreadable(record: ConsumerRecord, error: str) -> None:
    """Count and log a record of the stream's own topics that is skipped, since those after it must be read.

    Args:
        record: that cannot be read.
        error: why.
    """
    metrics.UNREADABLE_RECORDS.labels(record.topic).inc()
    logger.error(
        "record-unreadable",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        error=error,
    )
