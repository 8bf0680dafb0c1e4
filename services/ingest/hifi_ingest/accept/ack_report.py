"""What this process acknowledged, told on the topic `accepted`: ranges of sequences, each second, also when empty.

docs/decisions/epochs.md has the format. Only what a sender was told 202 for is in it.
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

Ranges = dict[str, dict[int, list[list[int]]]]
"""Pipe to minute to `[first, last]` of sequences."""


class Lane:
    """The identities that this process gives in one partition, and those that it acknowledged. Pure."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next = 0
        """The sequence of the next event."""
        self._open: Ranges = {}

    def add(self, pipe: str, minute: int, first: int, last: int) -> None:
        """The events with these sequences, both included, were acknowledged."""
        ranges = self._open.setdefault(pipe, {}).setdefault(minute, [])
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1][1] = last
        else:
            ranges.append([first, last])

    def take(self) -> Ranges:
        """What was acknowledged since the last time."""
        taken, self._open = self._open, {}
        return taken

    def give_back(self, taken: Ranges) -> None:
        """What was taken could not be told."""
        newer, self._open = self._open, taken
        for pipe, minutes in newer.items():
            for minute, ranges in minutes.items():
                for first, last in ranges:
                    self.add(pipe, minute, first, last)

    def message(self, taken: Ranges, answers: Mapping[int, int], *, closed: bool) -> bytes:
        """The value of the record that tells it; `answers` are HTTP statuses with how often they were given."""
        body: dict[str, Any] = {
            "epoch": f"{self.epoch:016x}",
            "next": self.next,
            "closed": closed,
            "answers": {str(status): number for status, number in answers.items()},
            "pipes": {
                pipe: {str(minute): sorted(ranges) for minute, ranges in minutes.items()}
                for pipe, minutes in taken.items()
            },
        }
        return orjson.dumps(body)


class Tally:
    """One lane a partition, told to Kafka."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._flying: dict[int, tuple[Sending, Ranges, Counter[int]]] = {}
        self.answers: Counter[int] = Counter()
        """HTTP statuses answered since they were last told. They belong to no partition: the first one tells them."""
        self.lanes = [Lane(secrets.randbits(_EPOCH_BITS)) for _ in range(partitions)]

    def tell(self) -> None:
        """Send what is new of each partition, unless its last tally is still on the way."""
        for partition in range(len(self.lanes)):
            if self._landed(partition):
                self._send(partition)

    async def close(self) -> None:
        """Send the closing tallies and wait for all; no event may be given an identity any more."""
        for partition, lane in enumerate(self.lanes):
            flying = self._flying.get(partition)
            if flying is not None:
                await asyncio.wait([flying[0].acknowledged])
            self._landed(partition)
            answers = self._take_answers(partition)
            record = Record(b"%016x" % lane.epoch, lane.message(lane.take(), answers, closed=True), [])
            await self._producer.send_and_wait(self._topic, partition, [record])

    def _landed(self, partition: int) -> bool:
        flying = self._flying.get(partition)
        if flying is None:
            return True
        sending, taken, answers = flying
        if not sending.acknowledged.done():
            return False
        del self._flying[partition]
        if sending.acknowledged.cancelled() or sending.acknowledged.exception() is not None:
            self.lanes[partition].give_back(taken)
            self.answers += answers
        return True

    def _take_answers(self, partition: int) -> Counter[int]:
        if partition:
            return Counter()
        taken, self.answers = self.answers, Counter()
        return taken

    def _send(self, partition: int) -> None:
        lane = self.lanes[partition]
        taken, answers = lane.take(), self._take_answers(partition)
        record = Record(b"%016x" % lane.epoch, lane.message(taken, answers, closed=False), [])
        try:
            self._flying[partition] = (self._producer.send(self._topic, partition, [record]), taken, answers)
        except Overloaded:
            lane.give_back(taken)
            self.answers += answers
