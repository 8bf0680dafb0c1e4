"""Write events of sources to `raw`, each with an identity, its minute and its position in the source."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hifi import metrics
from hifi.accept.ack_report import AckReporter, PartitionAcks
from hifi.accept.partitioner import partition_of
from hifi.clock import MICROSECONDS
from hifi.event import BACKFILL, HOP, IDENTITY, Record, SourcePosition, identity_prefix, position_header
from hifi.kafka.producer import Producer
from hifi.pipe.revision import PipeVersion
from hifi_collect.source_event import SourceEvent

_MINUTE_US: Final = 60 * MICROSECONDS
_BACKFILL: Final = b";" + BACKFILL


class _Writing:
    """What is written to one partition of `raw`."""

    def __init__(self, acks: PartitionAcks) -> None:
        self.acks = acks
        self.first_sequence = acks.next_sequence
        self.minutes: list[int] = []
        self.records: list[Record] = []


class RawWriter:
    """Writes the events of all sources."""

    def __init__(self, producer: Producer, topic: str, reporter: AckReporter, tolerance_s: float) -> None:
        """Nothing is written yet.

        Args:
            producer: to the stream.
            topic: `raw`.
            reporter: is told what Kafka has acknowledged.
            tolerance_s: largest difference between an event's own time and its accepted time, seconds, with which it
                counts in the minute of its own time.
        """
        self.reporter: Final = reporter
        self._producer = producer
        self._topic = topic
        self._partitions = reporter.partitions
        self._tolerance_us = int(tolerance_s * MICROSECONDS)

    async def write(
        self,
        pipe: PipeVersion,
        events: Sequence[tuple[SourceEvent, int]],
        source: bytes,
        run: bytes,
        in_us: int,
    ) -> None:
        """Write events and return when Kafka has acknowledged all of them.

        Args:
            pipe: that they belong to.
            events: with their accepted times, microseconds since 1970 UTC; in the order of their positions.
            source: name of the source partition.
            run: see `SourcePosition.run`.
            in_us: when they were read, microseconds since 1970 UTC.

        Raises:
            Overloaded, Unacknowledged: the producer was stopped.
        """
        hop, writings = (HOP, b"%d" % in_us), dict[int, _Writing]()
        for event, accepted_us in events:
            partition = partition_of(event.key, len(self._partitions))
            writing = writings.get(partition)
            if writing is None:
                writing = writings[partition] = _Writing(self._partitions[partition])
            revision = pipe
            if pipe.rollout is not None and pipe.rollout.gets(event.key):
                revision = pipe.rollout.next
            minute = self._minute(event, accepted_us)
            prefix = identity_prefix(pipe.pipe.pipe, revision.revision, revision.version, accepted_us)
            sequence = writing.first_sequence + len(writing.records)
            identity = b"%b%d;%016x:%d" % (prefix, minute, writing.acks.epoch, sequence)
            if event.backfill:
                identity += _BACKFILL
            position = position_header(SourcePosition(run, event.position, source))
            writing.records.append(
                Record(event.key, event.data, [(IDENTITY, identity), hop, position, *event.headers])
            )
            writing.minutes.append(minute)
        for writing in writings.values():
            writing.acks.next_sequence += len(writing.records)
        await asyncio.gather(
            *(self._write(pipe.pipe.pipe, partition, one) for partition, one in writings.items())
        )
        backfill = sum(event.backfill for event, _ in events)
        metrics.COLLECTED.labels(pipe.pipe.pipe, "backfill").inc(backfill)
        metrics.COLLECTED.labels(pipe.pipe.pipe, "live").inc(len(events) - backfill)

    async def _write(self, pipe: str, partition: int, writing: _Writing) -> None:
        await self._producer.send_and_wait(self._topic, partition, writing.records)
        writing.acks.add_in_order(pipe, writing.minutes, writing.first_sequence)

    def _minute(self, event: SourceEvent, accepted_us: int) -> int:
        """The minute that an event counts in: that of its own time, or of its accepted time if they differ too much."""
        time_us = event.time_us
        if time_us is not None and abs(time_us - accepted_us) <= self._tolerance_us:
            return time_us // _MINUTE_US
        return accepted_us // _MINUTE_US
