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
    """Keep the progress and the share of a source up to date until cancelled; what Kafka does not tell stays."""
    while True:
        member, assigned = consumer.member, dict(consumer.assigned)
        if member is not None:
            # The consumer tells of it, or the partitions have just been taken away.
            with contextlib.suppress(KafkaError, OSError, TimeoutError, IllegalStateError, AssertionError):
                await _read(member, topic, assigned, pace)
        await asyncio.sleep(_BACKFILL_S if pace.active or not assigned else _LIVE_S)


async def _read(
    member: Any, topic: str, assigned: dict[TopicPartition, AssignedPartition], pace: SourcePace
) -> None:
    every = member.partitions_for_topic(topic) or ()
    pace.share = len(assigned) / max(1, len(every), len(assigned)) or 1.0
    pace.progress.keep({partition_name(tp) for tp in assigned})
    if not assigned:
        return
    first, ends = await member.beginning_offsets(list(assigned)), await member.end_offsets(list(assigned))
    now_s = monotonic_s()
    for tp, partition in assigned.items():
        position = await _position(member, tp, partition)
        offsets = PartitionOffsets(first[tp], max(first[tp], position or 0), ends[tp])
        pace.progress.put(partition_name(tp), offsets, now_s)


async def _position(member: Any, tp: TopicPartition, assigned: AssignedPartition) -> int | None:
    """The next offset to read; it is behind the markers of transactions that follow the last record."""
    if not assigned.offsets.pending:
        position: int = await member.position(tp)
        return position
    return assigned.offsets.committable if assigned.offsets.committable is not None else assigned.committed


def partition_name(tp: TopicPartition) -> str:
    """The name of a source partition in the progress."""
    return f"{tp.topic}/{tp.partition}"
