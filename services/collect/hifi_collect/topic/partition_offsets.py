"""Read the ends of a source topic's partitions from time to time, for the progress of its reader."""

import asyncio
import contextlib
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from hifi.kafka.consumer import AssignedPartition, Consumer
from hifi.runtime.clock import monotonic_s
from hifi_collect.pace.progress import PartitionOffsets
from hifi_collect.pace.source_pace import SourcePace

_BACKFILL_S: Final = 3.0
"""Time between two readings while a backfill is under way, seconds."""
_LIVE_S: Final = 10.0


async def watch_offsets(consumer: Consumer, topic: str, pace: SourcePace) -> None:
    """Keep the progress and the share of a source up to date until cancelled; unknown values do not change."""
    while True:
        member, assigned = consumer.member, dict(consumer.assigned)
        if member is not None:
            # The consumer reports the error, or the partitions have just been revoked.
            with contextlib.suppress(KafkaError, OSError, TimeoutError, IllegalStateError, AssertionError):
                await _read(member, topic, assigned, pace)
        await asyncio.sleep(_BACKFILL_S if pace.active or not assigned else _LIVE_S)


async def _read(
    member: Any, topic: str, assigned: dict[TopicPartition, AssignedPartition], pace: SourcePace
) -> None:
    all_partitions = member.partitions_for_topic(topic) or ()
    pace.share = len(assigned) / max(1, len(all_partitions), len(assigned)) or 1.0
    pace.progress.keep({partition_name(topic_partition) for topic_partition in assigned})
    if not assigned:
        return
    first_offsets = await member.beginning_offsets(list(assigned))
    end_offsets = await member.end_offsets(list(assigned))
    now_s = monotonic_s()
    for topic_partition, partition in assigned.items():
        position = await _position(member, topic_partition, partition)
        first_offset = first_offsets[topic_partition]
        offsets = PartitionOffsets(
            first_offset, max(first_offset, position or 0), end_offsets[topic_partition]
        )
        pace.progress.put(partition_name(topic_partition), offsets, now_s)


async def _position(member: Any, topic_partition: TopicPartition, assigned: AssignedPartition) -> int | None:
    """The next offset to read; it is behind the markers of transactions that follow the last record."""
    if not assigned.offsets.pending:
        position: int = await member.position(topic_partition)
        return position
    return assigned.offsets.committable if assigned.offsets.committable is not None else assigned.committed


def partition_name(topic_partition: TopicPartition) -> str:
    """The name of a source partition in the progress."""
    return f"{topic_partition.topic}/{topic_partition.partition}"
