"""Write events of sources to `raw`, each with an identity, its minute and its position in the source."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hifi.delivery.ack_report import AckReporter, PartitionAcks
from hifi.delivery.raw_records import raw_records
from hifi.kafka.producer import Producer
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.raw_record import RawRecords
from hifi.runtime import metrics
from hifi.runtime.clock import MICROSECONDS


class RawWriter:
    """Writes the events of all sources."""

    def __init__(self, producer: Producer, topic: str, reporter: AckReporter, tolerance_s: float) -> None:
        """Nothing is written yet.

        Args:
            producer: to the stream.
            topic: `raw`.
            reporter: gets the records that Kafka has acknowledged.
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
        reader_run: bytes,
        in_us: int,
        *,
        at_once: bool = False,
    ) -> asyncio.Future[Any]:
        """Queue events as soon as there is room for them. Events of later calls are written after them.

        Args:
            pipe: that they belong to.
            events: at least one, in the order of their positions.
            accepted_us: their accepted times, microseconds since 1970 UTC.
            source: name of the source partition.
            reader_run: see `SourcePosition.run`.
            in_us: time at which the events were read, microseconds since 1970 UTC.
            at_once: see `Producer.send`.

        Returns:
            Done when Kafka has acknowledged all of them; with `Unacknowledged` if the producer was stopped before.

        Raises:
            Overloaded: the producer was stopped.
        """
        name = pipe.pipe.pipe
        records_by_partition = raw_records(
            pipe, events, accepted_us, source, reader_run, in_us, self._partitions, self._tolerance_us
        )
        for partition, partition_records in records_by_partition.items():
            self._partitions[partition].next_sequence += len(partition_records.records)
        acknowledgements = []
        for partition, partition_records in records_by_partition.items():
            sending = await self._producer.send_when_room(
                self._topic, partition, partition_records.records, at_once=at_once
            )
            report = partial(_report, name, self._partitions[partition], partition_records)
            sending.acknowledged.add_done_callback(report)
            acknowledgements.append(sending.acknowledged)
        backfill_count = sum(event.backfill for event in events)
        metrics.COLLECTED.labels(name, "backfill").inc(backfill_count)
        metrics.COLLECTED.labels(name, "live").inc(len(events) - backfill_count)
        return asyncio.gather(*acknowledgements)


def _report(
    pipe: str, acks: PartitionAcks, partition_records: RawRecords, acknowledgement: asyncio.Future[None]
) -> None:
    """Report records that Kafka has acknowledged."""
    if not acknowledgement.cancelled() and acknowledgement.exception() is None:
        acks.add_in_order(pipe, partition_records.minutes, partition_records.first_sequence)
