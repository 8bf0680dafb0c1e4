"""Keeps the watermarks of the assigned partitions with their commits, and writes heartbeats to `normalized`.

docs/decisions/record-format.md describes stamps and heartbeats.
"""

import asyncio
import contextlib
from typing import Final

from aiokafka import ConsumerRecord

from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.step_inputs import MAX_KEPT_BYTES, kept_bytes, pipes_read_by_steps
from hifi.record.heartbeat import heartbeat_record
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Fenced, Overloaded
from hifi.runtime.health import Health
from hifi_normalize.append_clock import AppendClock
from hifi_normalize.stamps.partition_watermarks import Beat, PartitionWatermarks

_CONDITION: Final = "stamps"


class Stamps:
    """The watermarks of all assigned partitions."""

    def __init__(self, registry: PipeRegistry, producer: Producer, topic: str, health: Health) -> None:
        """No partitions.

        Args:
            registry: of the pipes.
            producer: of heartbeats.
            topic: `normalized` of the stream.
            health: warned about pipes whose watermarks cannot be kept.
        """
        self.producer = producer
        self.topic = topic
        self.pipes: frozenset[str] = frozenset()
        """That steps read."""
        self.pipes_offset = -1
        """Offset in the topic `pipes` that says so."""
        self.clock: AppendClock | None = None
        """Of records that were read soon after they were appended; None: there was none."""
        self._registry = registry
        self._health = health

    @property
    def of_colours(self) -> bool:
        """Whether the stream is one of two colours."""
        return self._registry.coloured

    def begin(self, assigned: AssignedPartition) -> None:
        """Continue with the watermarks of the last commit of a partition."""
        stamps = assigned.commit_listener = _PartitionStamps(self, assigned)
        assigned.metadata_at = stamps.watermarks.metadata_at

    @staticmethod
    def of(assigned: AssignedPartition) -> PartitionWatermarks:
        """The watermarks of a partition given to `begin`."""
        return _stamps_of(assigned).watermarks

    def note_read(self, assigned: AssignedPartition, record: ConsumerRecord, read_s: float) -> None:
        """Learn the time from a record, unless it may have waited in the topic for long.

        Args:
            assigned: the partition.
            record: of it, just read.
            read_s: monotonic time, seconds.
        """
        end_offset = _stamps_of(assigned).end_offset
        if end_offset is None or record.offset < end_offset:
            return
        if self.clock is None:
            self.clock = AppendClock(record.timestamp, read_s)
        self.clock.note(record.timestamp, read_s)

    def clock_ms(self, now_s: float) -> int:
        """The wall clock, but not ahead of the brokers' clocks once they are known, milliseconds since 1970 UTC.

        Args:
            now_s: monotonic time, seconds.
        """
        wall_ms = now_us() // 1000
        return wall_ms if self.clock is None else min(wall_ms, self.clock.time_ms(now_s))

    @staticmethod
    async def until_sure(assigned: AssignedPartition) -> None:
        """Wait until all decisions about a partition are kept.

        Raises:
            Fenced: the partition was revoked meanwhile.
        """
        stamps = _stamps_of(assigned)
        waits = [asyncio.create_task(event.wait()) for event in (stamps.sure, assigned.revoked)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if stamps.watermarks.unsure:
            assigned.abandon()
            raise Fenced(
                f"{assigned.topic}[{assigned.partition}] was revoked before its watermarks were kept"
            )

    def refresh(self) -> None:
        """Learn which pipes steps read."""
        if self.pipes_offset == self._registry.content_offset:
            return
        self.pipes = pipes_read_by_steps(revision.pipe for revision in self._registry.in_use())
        self.pipes_offset = self._registry.content_offset
        self._health.warn(
            _CONDITION,
            f"steps read {len(self.pipes)} pipes, and a commit has no room for the watermarks of all: some get no"
            " stamps; let steps read fewer pipes, or shorten their names"
            if kept_bytes(self.pipes) > MAX_KEPT_BYTES
            else None,
        )


class _PartitionStamps:
    """The watermarks of a partition, as a `CommitListener`."""

    def __init__(self, stamps: Stamps, assigned: AssignedPartition) -> None:
        self._stamps = stamps
        self._assigned = assigned
        self.watermarks = PartitionWatermarks(assigned.metadata, monotonic_s(), by_clock=stamps.of_colours)
        self.sure = asyncio.Event()
        """Cleared while decisions may not be kept."""
        self.sure.set()
        self._beats: list[Beat] = []
        self.end_offset: int | None = None
        """The end of the partition when it was seen last: what is there or after it was appended since."""

    def before_commit(self, offset: int | None) -> int | None:
        assigned, watermarks, stamps = self._assigned, self.watermarks, self._stamps
        stamps.refresh()
        if not (stamps.pipes or watermarks.in_use):
            return None
        now_s, end = monotonic_s(), assigned.end()
        if end is not None:
            self.end_offset = end.offset
        if watermarks.next_offset is None and assigned.position is None and end is not None:
            watermarks.go_to(end.offset)
        if watermarks.next_offset is None:
            return None
        committed = offset
        if committed is None:  # nothing is complete yet
            committed = assigned.offsets.first_pending
        if committed is None:
            committed = watermarks.next_offset
        if assigned.active and not watermarks.unsure:
            watermarks.decide_pipes(stamps.pipes, stamps.pipes_offset, end, now_s)
            if end is not None:
                self._beats = watermarks.decide_beats(committed, end, now_s, stamps.clock_ms(now_s))
        if not watermarks.unsure:
            return None
        self.sure.clear()
        return committed

    def after_commit(self) -> None:
        self.watermarks.committed()
        self.sure.set()
        beats, self._beats = self._beats, []
        if not beats or not self._assigned.active:
            return
        time_us, raw = now_us(), (self._assigned.committed or 0) - 1
        records = [heartbeat_record(pipe, time_us, raw, stamp_ms) for pipe, stamp_ms in beats]
        with contextlib.suppress(Overloaded):  # the next ones follow in a second
            self._stamps.producer.send(self._stamps.topic, self._assigned.partition, records)


def _stamps_of(assigned: AssignedPartition) -> _PartitionStamps:
    assert isinstance(assigned.commit_listener, _PartitionStamps)
    return assigned.commit_listener
