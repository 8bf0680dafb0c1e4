"""Report what this process accepted on the topic `accepted`: ranges of sequences, every second.

A report is also sent when nothing was accepted: it is the heartbeat. An event whose sender did not get a 202 is in no
report. docs/decisions/epochs.md describes the format.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from hifi.delivery.source_report import SourceReport
from hifi.kafka.producer import Producer, Sending
from hifi.record.record import Record
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Overloaded
from hifi.runtime.release import VERSION

_EPOCH_BITS: Final = 64
_MOST_RANGES: Final = 20_000
"""Of a report, and of what it says was deleted: so it is smaller than a record may be; the next one goes on."""

AckRanges = dict[str, dict[int, list[list[int]]]]
"""Pipe to minute to `[first, last]` of sequences, both included."""


class DeletedRange(NamedTuple):
    """Offsets of a source partition that were deleted before collect read them."""

    pipe: str
    partition: str
    first: int
    last: int
    reported: asyncio.Future[None]
    """Done when Kafka has acknowledged the report of it."""


class RequestTotals(NamedTuple):
    """The outcomes of requests since the last report."""

    answers: Counter[int]
    """HTTP status to number of responses."""
    refused: Counter[str]
    """Pipe to number of requests that exceeded a quota."""
    paused: Counter[str]
    """Pipe to number of requests that were refused because it is paused; `answers` leaves these out."""
    deleted: list[DeletedRange]
    """Ranges of records that were deleted before collect read them."""

    def acknowledge(self) -> None:
        """Kafka has acknowledged the report."""
        for deleted_range in self.deleted:
            if not deleted_range.reported.done():
                deleted_range.reported.set_result(None)


_NO_TOTALS: Final = RequestTotals(Counter(), Counter(), Counter(), [])


class PartitionAcks:
    """Sequences of one partition: the next one to assign, and those acknowledged since the last report. Pure."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self._ranges: AckRanges = {}

    def add(self, pipe: str, minute: int, first: int, last: int) -> None:
        """Record events as acknowledged.

        Args:
            pipe: name.
            minute: that the events count in.
            first: sequence of the first event.
            last: sequence of the last event.
        """
        ranges = self._ranges.setdefault(pipe, {}).setdefault(minute, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def add_in_order(self, pipe: str, minutes: Sequence[int], first: int) -> None:
        """Record events as acknowledged that have successive sequences, one range for each run of equal minutes.

        Args:
            pipe: name.
            minutes: that the events count in, in the order of their sequences.
            first: sequence of the first event.
        """
        start = 0
        for end in range(1, len(minutes) + 1):
            if end == len(minutes) or minutes[end] != minutes[start]:
                self.add(pipe, minutes[start], first + start, first + end - 1)
                start = end

    @property
    def reported(self) -> bool:
        """Whether `take` has returned everything."""
        return not self._ranges

    def take(self) -> AckRanges:
        """Return what was acknowledged since the last call; of very many ranges a part, and the next call goes on."""
        taken_ranges: AckRanges = {}
        left_ranges: AckRanges = {}
        room = _MOST_RANGES
        for pipe, minutes in self._ranges.items():
            for minute, ranges in minutes.items():
                if room:
                    taken_ranges.setdefault(pipe, {})[minute] = ranges[:room]
                if len(ranges) > room:
                    left_ranges.setdefault(pipe, {})[minute] = ranges[room:]
                room = max(0, room - len(ranges))
        self._ranges = left_ranges
        return taken_ranges

    def restore(self, ack_ranges: AckRanges) -> None:
        """Put back ranges from `take` whose report was not written."""
        newer_ranges, self._ranges = self._ranges, ack_ranges
        for pipe, minutes in newer_ranges.items():
            for minute, ranges in minutes.items():
                for first_sequence, last_sequence in ranges:
                    self.add(pipe, minute, first_sequence, last_sequence)

    def report(
        self,
        service: str,
        ack_ranges: AckRanges,
        totals: RequestTotals,
        demand: Mapping[str, float],
        sources: Mapping[str, SourceReport],
        *,
        closed: bool,
    ) -> bytes:
        """The value of a report's record, JSON.

        Args:
            service: whose report it is.
            ack_ranges: ranges to report.
            totals: to report.
            demand: quota to what senders offer, per second.
            sources: pipe to the progress of its source.
            closed: this is the last report of the epoch.
        """
        body: dict[str, Any] = {
            "service": service,
            "release": VERSION,
            "epoch": f"{self.epoch:016x}",
            "next": self.next_sequence,
            "closed": closed,
            "answers": {str(status): number for status, number in totals.answers.items()},
            "refused": totals.refused,
            "paused": totals.paused,
            "demand": demand,
            "deleted": [deleted_range[:4] for deleted_range in totals.deleted],
            "sources": sources,
            "pipes": {
                pipe: {str(minute): sorted(ranges) for minute, ranges in minutes.items()}
                for pipe, minutes in ack_ranges.items()
            },
        }
        return orjson.dumps(body)


class AckReporter:
    """Sends the reports of all partitions."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partitions: int,
        demand: Callable[[float], Mapping[str, float]] = lambda _: {},
        service: str = "ingest",
        sources: Callable[[], Mapping[str, SourceReport]] = dict,
    ) -> None:
        """Nothing was acknowledged yet.

        Args:
            producer: writes the reports.
            topic: `accepted`.
            partitions: of the topic.
            demand: returns what senders offer by quota, given the monotonic time in seconds; called once a report.
            service: whose reports these are.
            sources: returns the progress of each pipe's source; called once a report.
        """
        self._producer = producer
        self._topic = topic
        self._demand = demand
        self._service = service
        self._sources = sources
        self._in_flight: dict[int, tuple[Sending, AckRanges, RequestTotals]] = {}
        self.answers: Counter[int] = Counter()
        """HTTP status to number of responses since the last report; sent in the reports of partition 0."""
        self.refused: Counter[str] = Counter()
        """Pipe to number of requests that exceeded a quota since the last report; sent likewise."""
        self.paused: Counter[str] = Counter()
        """Pipe to number of requests refused since the last report because it is paused; sent likewise."""
        self._deleted_ranges: list[DeletedRange] = []
        self.partitions = [PartitionAcks(secrets.randbits(_EPOCH_BITS)) for _ in range(partitions)]

    def add_deleted(self, pipe: str, partition: str, offsets: range) -> asyncio.Future[None]:
        """Report offsets of a source partition that were deleted before they were read; sent likewise.

        Returns:
            Done when Kafka has acknowledged the report.
        """
        reported: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deleted_range = DeletedRange(pipe, partition, offsets.start, offsets.stop - 1, reported)
        self._deleted_ranges.append(deleted_range)
        return reported

    def send_reports(self) -> None:
        """Send a report for each partition, except where the last one is not acknowledged yet."""
        for partition in range(len(self.partitions)):
            if self._is_settled(partition):
                self._send(partition)

    async def close(self) -> None:
        """Send the closing reports and wait until all are written. No event may get a sequence after this."""
        await asyncio.gather(*(self._close(partition) for partition in range(len(self.partitions))))

    async def _close(self, partition: int) -> None:
        in_flight, acks = self._in_flight.get(partition), self.partitions[partition]
        if in_flight is not None:
            await asyncio.wait([in_flight[0].acknowledged])
        self._is_settled(partition)
        is_closed = False
        while not is_closed:
            ranges, totals = acks.take(), self._take_totals(partition)
            is_closed = acks.reported and (partition > 0 or not self._deleted_ranges)
            record = self._record(partition, ranges, totals, closed=is_closed)
            await self._producer.send_and_wait(self._topic, partition, [record])
            totals.acknowledge()

    def _is_settled(self, partition: int) -> bool:
        """Whether the last report is written or failed; the content of a failed one is restored."""
        in_flight = self._in_flight.get(partition)
        if in_flight is None:
            return True
        sending, ranges, totals = in_flight
        if not sending.acknowledged.done():
            return False
        del self._in_flight[partition]
        if sending.acknowledged.cancelled() or sending.acknowledged.exception() is not None:
            self._restore(partition, ranges, totals)
        else:
            totals.acknowledge()
        return True

    def _take_totals(self, partition: int) -> RequestTotals:
        if partition:
            return _NO_TOTALS
        deleted_ranges, self._deleted_ranges = (
            self._deleted_ranges[:_MOST_RANGES],
            self._deleted_ranges[_MOST_RANGES:],
        )
        totals = RequestTotals(self.answers, self.refused, self.paused, deleted_ranges)
        self.answers, self.refused, self.paused = Counter(), Counter(), Counter()
        return totals

    def _restore(self, partition: int, ranges: AckRanges, totals: RequestTotals) -> None:
        self.partitions[partition].restore(ranges)
        self.answers += totals.answers
        self.refused += totals.refused
        self.paused += totals.paused
        self._deleted_ranges = [*totals.deleted, *self._deleted_ranges]

    def _record(self, partition: int, ranges: AckRanges, totals: RequestTotals, *, closed: bool) -> Record:
        acks = self.partitions[partition]
        demand = {} if partition else self._demand(monotonic_s())
        sources = {} if partition else self._sources()
        report = acks.report(self._service, ranges, totals, demand, sources, closed=closed)
        return Record(b"%016x" % acks.epoch, report, [])

    def _send(self, partition: int) -> None:
        ranges, totals = self.partitions[partition].take(), self._take_totals(partition)
        record = self._record(partition, ranges, totals, closed=False)
        try:
            sending = self._producer.send(self._topic, partition, [record])
        except Overloaded:
            self._restore(partition, ranges, totals)
        else:
            self._in_flight[partition] = (sending, ranges, totals)
