"""The records of one partition that a producer has not had acknowledged yet."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import TopicPartition

from hifi.record.record import Record
from hifi.runtime import metrics
from hifi.runtime.errors import Unacknowledged

MAX_BATCH_BYTES: Final = 512 * 1024


class Sending:
    """Records for one partition, queued or in flight, acknowledged together."""

    __slots__ = ("acknowledged", "handed_over", "records", "size_bytes")

    def __init__(self, records: Sequence[Record], size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handed_over = False
        """Kafka may have received some of it: abandoning it now leaves its outcome unknown."""

    def abandon(self) -> bool:
        """Do not send it (again). True: Kafka never received it. False: Kafka may have stored it."""
        self.acknowledged.cancel()
        return not self.handed_over


class PartitionQueue:
    """One batch in flight, and the records queued behind it."""

    __slots__ = (
        "at_once",
        "batches",
        "client",
        "failures",
        "in_flight",
        "queued",
        "queued_bytes",
        "repeats",
        "sent_s",
        "since_s",
        "tp",
        "unacknowledged",
        "written",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.tp = TopicPartition(topic, partition)
        self.queued: deque[Sending] = deque()
        self.queued_bytes = 0
        self.at_once = False
        self.in_flight: list[Sending] = []
        self.client: Any = None
        """The aiokafka producer that has the batch in flight, since `sent_s`."""
        self.batches: deque[Any] = deque()
        """Kafka batches of the batch in flight that the client has not got yet: each one after the one before."""
        self.unacknowledged = 0
        """Kafka batches that are not acknowledged yet, until the batch in flight is."""
        self.since_s = 0.0
        """When the batch in flight was taken from the queue, on the loop's clock."""
        self.sent_s = 0.0
        """When it, or the last one of its Kafka batches, was given to a client."""
        self.failures = 0
        """Failures of the batch in flight so far."""
        self.repeats = True
        """Whether a batch that may be written already is sent again. If not, all that is behind fails with it."""
        self.written = metrics.WRITTEN.labels(topic)

    @property
    def full(self) -> bool:
        """Whether what is queued gains nothing from waiting for more: it fills a batch, or nothing comes after it."""
        return self.at_once or self.queued_bytes >= MAX_BATCH_BYTES

    def add(self, sending: Sending, *, at_once: bool = False) -> None:
        """Queue records; what is queued is full from now on if they are to be sent at once."""
        self.at_once |= at_once
        self.queued.append(sending)
        self.queued_bytes += sending.size_bytes

    def take(self, now_s: float) -> None:
        """Take the next batch from the queue into flight."""
        self.since_s = self.sent_s = now_s
        self.client = None
        self.failures = 0
        self.in_flight = [self.queued.popleft()]
        size = self.in_flight[0].size_bytes
        while self.queued and size + self.queued[0].size_bytes <= MAX_BATCH_BYTES:
            self.in_flight.append(self.queued.popleft())
            size += self.in_flight[-1].size_bytes
        self.queued_bytes -= size
        self.at_once &= bool(self.queued)

    def take_all(self) -> None:
        """Take all that is queued into flight, behind the batch that is."""
        self.in_flight += self.queued
        self.queued.clear()
        self.queued_bytes = 0
        self.at_once = False

    @property
    def may_be_written(self) -> bool:
        """Whether Kafka may have received some of the batch in flight."""
        return any(sending.handed_over for sending in self.in_flight)

    def unsent(self) -> list[Sending]:
        """The records of the batch in flight that were not abandoned and are to be sent, now or again."""
        return [sending for sending in self.in_flight if not sending.acknowledged.cancelled()]

    def complete(self, error: BaseException | None = None) -> int:
        """End the batch in flight, acknowledged or with an error; returns its size, bytes."""
        sendings, self.in_flight = self.in_flight, []
        self.client = None
        self.batches.clear()
        size = records = 0
        for sending in sendings:
            size += sending.size_bytes
            if sending.acknowledged.done():
                records += sending.handed_over and len(sending.records)
            elif error is None:
                records += len(sending.records)
                sending.acknowledged.set_result(None)
            else:
                sending.acknowledged.set_exception(Unacknowledged(repr(error)))
                sending.acknowledged.exception()  # it is no error if nobody waits for it
        if error is None:
            self.written.inc(records)
        return size
