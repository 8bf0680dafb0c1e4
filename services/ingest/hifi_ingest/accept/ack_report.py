"""Report what this process acknowledged to senders on the topic `accepted`: ranges of sequences, every second.

A report is also sent when nothing was acknowledged: it is ingest's heartbeat. An event whose sender did not get a 202
is in no report. docs/decisions/epochs.md describes the format.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import orjson

from hifi.errors import Overloaded
from hifi.event import Record
from hifi.kafka.producer import Producer, Sending

_EPOCH_BITS: Final = 64

AckRanges = dict[str, dict[int, list[list[int]]]]
"""Pipe to minute to `[first, last]` of sequences, both included."""


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

    def take(self) -> AckRanges:
        """Return what was acknowledged since the last call, and start anew."""
        taken, self._ranges = self._ranges, {}
        return taken

    def restore(self, taken: AckRanges) -> None:
        """Put back ranges from `take` whose report was not written."""
        newer, self._ranges = self._ranges, taken
        for pipe, minutes in newer.items():
            for minute, ranges in minutes.items():
                for first, last in ranges:
                    self.add(pipe, minute, first, last)

    def report(self, taken: AckRanges, answers: Mapping[int, int], *, closed: bool) -> bytes:
        """The value of a report's record, JSON.

        Args:
            taken: ranges to report.
            answers: HTTP status to number of responses.
            closed: this is the last report of the epoch.
        """
        body: dict[str, Any] = {
            "epoch": f"{self.epoch:016x}",
            "next": self.next_sequence,
            "closed": closed,
            "answers": {str(status): number for status, number in answers.items()},
            "pipes": {
                pipe: {str(minute): sorted(ranges) for minute, ranges in minutes.items()}
                for pipe, minutes in taken.items()
            },
        }
        return orjson.dumps(body)


class AckReporter:
    """Sends the reports of all partitions."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._in_flight: dict[int, tuple[Sending, AckRanges, Counter[int]]] = {}
        self.answers: Counter[int] = Counter()
        """HTTP status to number of responses since the last report; sent in the reports of partition 0."""
        self.partitions = [PartitionAcks(secrets.randbits(_EPOCH_BITS)) for _ in range(partitions)]

    def send_reports(self) -> None:
        """Send a report for each partition, except where the last one is not acknowledged yet."""
        for partition in range(len(self.partitions)):
            if self._is_settled(partition):
                self._send(partition)

    async def close(self) -> None:
        """Send the closing reports and wait until all are written. No event may get a sequence after this."""
        for partition, acks in enumerate(self.partitions):
            in_flight = self._in_flight.get(partition)
            if in_flight is not None:
                await asyncio.wait([in_flight[0].acknowledged])
            self._is_settled(partition)
            answers = self._take_answers(partition)
            record = Record(b"%016x" % acks.epoch, acks.report(acks.take(), answers, closed=True), [])
            await self._producer.send_and_wait(self._topic, partition, [record])

    def _is_settled(self, partition: int) -> bool:
        """Whether the last report is written or failed; the content of a failed one is restored."""
        in_flight = self._in_flight.get(partition)
        if in_flight is None:
            return True
        sending, taken, answers = in_flight
        if not sending.acknowledged.done():
            return False
        del self._in_flight[partition]
        if sending.acknowledged.cancelled() or sending.acknowledged.exception() is not None:
            self.partitions[partition].restore(taken)
            self.answers += answers
        return True

    def _take_answers(self, partition: int) -> Counter[int]:
        if partition:
            return Counter()
        taken, self.answers = self.answers, Counter()
        return taken

    def _send(self, partition: int) -> None:
        acks = self.partitions[partition]
        taken, answers = acks.take(), self._take_answers(partition)
        record = Record(b"%016x" % acks.epoch, acks.report(taken, answers, closed=False), [])
        try:
            sending = self._producer.send(self._topic, partition, [record])
        except Overloaded:
            acks.restore(taken)
            self.answers += answers
        else:
            self._in_flight[partition] = (sending, taken, answers)
