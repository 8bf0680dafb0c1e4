"""Write events of sources to `raw`, each with an identity, its minute and its position in the source."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hifi.delivery.ack_report import AckReporter, PartitionAcks
from hifi.kafka.producer import Producer
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.raw_record import RawRecords
from hifi.runtime import metrics
from hifi.runtime.clock import MICROSECONDS
from hifi_collect.raw_records import raw_records


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

    async def begin(
        self,
        pipe: PipeRevision,
        events: Sequence[SourceEvent],
        accepted_us: Sequence[int],
        source: bytes,
        run: bytes,
        in_us: int,
        *,
        at_once: bool = False,
    ) -> asyncio.Future[Any]:
        """Queue events, as soon as there is room for them. What is queued after them is written after them.

        Args:
            pipe: that they belong to.
            events: at least one, in the order of their positions.
            accepted_us: their accepted times, microseconds since 1970 UTC.
            source: name of the source partition.
            run: see `SourcePosition.run`.
            in_us: when they were read, microseconds since 1970 UTC.
            at_once: see `Producer.send`.

        Returns:
            Done when Kafka has acknowledged all of them; with `Unacknowledged` if the producer was stopped before.

        Raises:
            Overloaded: the producer was stopped.
        """
        name = pipe.pipe.pipe
        by_partition = raw_records(
            pipe, events, accepted_us, source, run, in_us, self._partitions, self._tolerance_us
        )
        for partition, raw in by_partition.items():
            self._partitions[partition].next_sequence += len(raw.records)
        acknowledged = []
        for partition, raw in by_partition.items():
            sending = await self._producer.send_when_room(
                self._topic, partition, raw.records, at_once=at_once
            )
            report = partial(_report, name, self._partitions[partition], raw)
            sending.acknowledged.add_done_callback(report)
            acknowledged.append(sending.acknowledged)
        backfill = sum(event.backfill for event in events)
        metrics.COLLECTED.labels(name, "backfill").inc(backfill)
        metrics.COLLECTED.labels(name, "live").inc(len(events) - backfill)
        return asyncio.gather(*acknowledged)


def _report(pipe: str, acks: PartitionAcks, written: RawRecords, ended: asyncio.Future[None]) -> None:
    """Report records that Kafka has acknowledged."""
    if not ended.cancelled() and ended.exception() is None:
        acks.add_in_order(pipe, written.minutes, written.first_sequence)
