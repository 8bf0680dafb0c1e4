"""Write events of sources to `raw`, each with an identity, its minute and its position in the source.

normalize drops what a reader reads again, by the run of the reader: in a partition of `raw`, an event is a copy if its
position is not above the highest one before the run. So nothing is written twice within a run, and nothing of a run
after an event of it that may be missing: the reader goes back, with another run.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hifi.delivery.ack_report import AckReporter, PartitionAcks
from hifi.delivery.raw_records import raw_records
from hifi.kafka.batches import retrieve_error
from hifi.kafka.producer import Producer
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.raw_record import RawRecords
from hifi.runtime import metrics
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Fenced, Unacknowledged


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
        self._last: dict[tuple[str, bytes, int], tuple[bytes, asyncio.Future[None]]] = {}
        """Pipe, source partition and partition of `raw` to the run that wrote last, and the acknowledgement of that:
        while it is not there, or when it never will be."""

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
        """Queue events as soon as there is room for them. Events of later calls are written after them, or not at all.

        Args:
            pipe: that they belong to.
            events: at least one, in the order of their positions.
            accepted_us: their accepted times, microseconds since 1970 UTC.
            source: name of the source partition.
            reader_run: see `SourcePosition.run`.
            in_us: time at which the events were read, microseconds since 1970 UTC.
            at_once: see `Producer.send`.

        Returns:
            Done when Kafka has acknowledged all of them. With `Fenced` if it is not known whether they are in `raw`: go
            back to the committed position, with another run.

        Raises:
            Fenced: that is so for earlier events of this run.
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
                self._topic, partition, partition_records.records, at_once=at_once, repeats=False
            )
            line, acknowledged = (name, source, partition), sending.acknowledged
            last_run, last_acknowledged = self._last.get(line, (reader_run, acknowledged))
            if last_run == reader_run and _is_lost(last_acknowledged):
                sending.abandon()  # no other task has run since, so the producer still has all of it
                raise Fenced(f"earlier events of {source.decode()} may not be in {self._topic}[{partition}]")
            self._last[line] = reader_run, acknowledged
            report = partial(self._report, line, self._partitions[partition], partition_records)
            acknowledged.add_done_callback(report)
            acknowledgements.append(acknowledged)
        backfill_count = sum(event.backfill for event in events)
        metrics.COLLECTED.labels(name, "backfill").inc(backfill_count)
        metrics.COLLECTED.labels(name, "live").inc(len(events) - backfill_count)
        writing = asyncio.ensure_future(_written(acknowledgements))
        writing.add_done_callback(retrieve_error)
        return writing

    def _report(
        self,
        line: tuple[str, bytes, int],
        acks: PartitionAcks,
        partition_records: RawRecords,
        acknowledged: asyncio.Future[None],
    ) -> None:
        """Report records that Kafka has acknowledged."""
        if _is_lost(acknowledged):
            return
        acks.add_in_order(line[0], partition_records.minutes, partition_records.first_sequence)
        last_records = self._last.get(line)
        if last_records is not None and last_records[1] is acknowledged:
            del self._last[line]


def _is_lost(acknowledged: asyncio.Future[None]) -> bool:
    """Whether Kafka will never acknowledge records: they may be in `raw` or not."""
    return acknowledged.done() and (acknowledged.cancelled() or acknowledged.exception() is not None)


async def _written(acknowledgements: Sequence[asyncio.Future[None]]) -> None:
    """Wait for acknowledgements.

    Raises:
        Fenced: Kafka will never acknowledge one.
    """
    try:
        await asyncio.gather(*acknowledgements)
    except Unacknowledged as error:
        raise Fenced(f"it is not known whether events are in raw: {error}") from error
