"""Give each event of a request identity, minute and partition, write it to Kafka, and report its acknowledgement."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from hifi.delivery.ack_report import AckReporter, PartitionAcks
from hifi.kafka.key_usage import KeyUsageCounts
from hifi.kafka.producer import Producer, Sending
from hifi.pipe.revision import PipeRevision
from hifi.record.cloudevents.event import DecodedEvent
from hifi.record.hop import write_first_hop
from hifi.record.identity import identity_prefix
from hifi.record.partitioner import partition_of
from hifi.record.raw_record import RawRecords
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Overloaded, Rejected
from hifi.runtime.http.problem import Problem, retry_later
from hifi_ingest.bodies import AckOutcome, EventProblem, RefusalMembers

_MINUTE_US: Final = 60 * MICROSECONDS
_STALL_CHECK_S: Final = 0.05
"""Checking all partitions of the producer on each request would take 4 % of a request's time."""


class _PartitionGroup:
    """The events of a request for one partition."""

    __slots__ = ("acks", "indexes", "raw", "sending")

    sending: Sending

    def __init__(self, acks: PartitionAcks) -> None:
        self.acks = acks
        self.raw = RawRecords(acks.epoch, acks.next_sequence)
        self.indexes: list[int] = []


class Acceptor:
    """Assigns each event its identity, minute and partition, writes it, and waits for the acknowledgement."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        reporter: AckReporter,
        usage: KeyUsageCounts,
        *,
        ack_timeout_s: float,
        tolerance_s: float,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = reporter.partitions
        self._usage = usage
        self._ack_timeout_s = ack_timeout_s
        self._tolerance_us = int(tolerance_s * MICROSECONDS)
        self._next_check_s = 0.0
        self._stalled = False

    def check(self) -> None:
        """Raises Problem (503) if Kafka has not acknowledged anything for longer than the time-out."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + _STALL_CHECK_S
            self._stalled = self._producer.stalled_s(now_s) > self._ack_timeout_s
        if self._stalled:
            raise retry_later("Kafka is not acknowledging events; no event was accepted", 2)

    async def accept(
        self, pipe: PipeRevision, events: Sequence[DecodedEvent], in_us: int, accepted_us: int, key: str
    ) -> None:
        """Write events and return when Kafka has acknowledged all of them.

        Args:
            pipe: that the events belong to.
            events: of one request.
            in_us: when the last byte of the request was received, microseconds since 1970 UTC.
            accepted_us: accepted time of the events, microseconds since 1970 UTC.
            key: id of the write key that they were sent with.

        Raises:
            Problem: 503 with the outcome of each event, or 413.
        """
        if not events:
            return
        groups = self._send(pipe, events, in_us, accepted_us)
        await asyncio.wait([group.sending.acknowledged for group in groups], timeout=self._ack_timeout_s)
        outcomes: dict[int, AckOutcome] = {}
        for group in groups:
            outcome = _outcome(group.sending)
            if outcome is AckOutcome.ACCEPTED:
                group.acks.add_in_order(pipe.pipe.pipe, group.raw.minutes, group.raw.first_sequence)
                self._usage.add(pipe.pipe.pipe, key, group.raw.minutes, group.raw.records)
            outcomes.update(dict.fromkeys(group.indexes, outcome))
        if any(outcome is not AckOutcome.ACCEPTED for outcome in outcomes.values()):
            raise _not_accepted(events, outcomes)

    def _send(
        self, pipe: PipeRevision, events: Sequence[DecodedEvent], in_us: int, accepted_us: int
    ) -> list[_PartitionGroup]:
        groups = self._group(pipe, events, in_us, accepted_us)
        sent_groups = []
        try:
            for partition, group in groups.items():
                group.sending = self._producer.send(self._topic, partition, group.raw.records)
                group.acks.next_sequence = group.raw.first_sequence + len(group.raw.records)
                sent_groups.append(group)
        except (Overloaded, Rejected) as error:
            # No other task has run since the first send, so the producer still has all of it and can drop it.
            for group in sent_groups:
                group.sending.abandon()
            if isinstance(error, Rejected):
                raise Problem(413, error.detail) from None
            raise retry_later("the buffer of events for Kafka is full; no event was accepted") from None
        return sent_groups

    def _group(
        self, pipe: PipeRevision, events: Sequence[DecodedEvent], in_us: int, accepted_us: int
    ) -> dict[int, _PartitionGroup]:
        """The records of events, by partition.

        While a rollout runs, the events of some keys get the next revision.
        An event counts in the minute of its own time, or of its accepted time if the two differ too much.
        """
        prefix, rollout = _prefix(pipe, accepted_us), pipe.rollout
        next_prefix = b"" if rollout is None else _prefix(rollout.next, accepted_us)
        hop = write_first_hop(in_us)
        partition_count, accepted_minute = len(self._partitions), accepted_us // _MINUTE_US
        earliest_us, latest_us = accepted_us - self._tolerance_us, accepted_us + self._tolerance_us
        groups: dict[int, _PartitionGroup] = {}
        for index, (_, _, key, headers, data, time_us) in enumerate(events):
            partition = partition_of(key, partition_count)
            group = groups.get(partition)
            if group is None:
                group = groups[partition] = _PartitionGroup(self._partitions[partition])
            minute = accepted_minute
            if time_us is not None and earliest_us <= time_us <= latest_us:
                minute = time_us // _MINUTE_US
            event_prefix = prefix if rollout is None or not rollout.gets(key) else next_prefix
            group.raw.add(key, data, headers, event_prefix, minute, hop)
            group.indexes.append(index)
        return groups


def _prefix(pipe: PipeRevision, accepted_us: int) -> bytes:
    return identity_prefix(pipe.pipe.pipe, pipe.number, pipe.offset, accepted_us)


def _outcome(sending: Sending) -> AckOutcome:
    acknowledged = sending.acknowledged
    if acknowledged.done() and not acknowledged.cancelled() and acknowledged.exception() is None:
        return AckOutcome.ACCEPTED
    return AckOutcome.REFUSED if sending.abandon() else AckOutcome.UNKNOWN


def _not_accepted(events: Sequence[DecodedEvent], outcomes: dict[int, AckOutcome]) -> Problem:
    event_problems: list[EventProblem] = [
        {"index": index, "id": events[index].id.decode(), "outcome": outcome}
        for index, outcome in sorted(outcomes.items())
    ]
    counts = Counter(outcomes.values())
    members: RefusalMembers = {
        "accepted": counts[AckOutcome.ACCEPTED],
        "refused": counts[AckOutcome.REFUSED],
        "unknown": counts[AckOutcome.UNKNOWN],
        "events": event_problems,
    }
    detail = (
        "Kafka did not acknowledge every event in time: repeat the request with the same Idempotency-Key or ids, or"
        " send the refused events again, and the unknown ones if a second copy does no harm"
    )
    return retry_later(detail, members=members)
