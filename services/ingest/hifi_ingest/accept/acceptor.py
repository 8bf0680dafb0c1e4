"""Handing a request's events to Kafka, and saying for each whether Kafka has it."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from hifi.clock import MICROSECONDS
from hifi.errors import Overloaded, Rejected
from hifi.event import ACCEPTED, IN, MINUTE, PIPE, PIPE_VERSION, SEQ, Headers, Record
from hifi.kafka.producer import Producer, Sending
from hifi.pipe.registry import PipeVersion
from hifi_ingest.accept.ack_report import Lane, Tally
from hifi_ingest.accept.partitioner import partition
from hifi_ingest.decode.attributes import Incoming
from hifi_ingest.http.answers import Problem, retry_later

_MINUTE_US: Final = 60 * MICROSECONDS
_LOOK_S: Final = 0.05
"""Looking at every lane of the producer for each request would be 4 % of its time."""


class Outcome(StrEnum):
    """What became of one event of a request that was not accepted as a whole."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """Handed to Kafka, which did not acknowledge it in time: it may be delivered or not."""


class _Group:
    """The events of a request that go to one partition, on their way."""

    __slots__ = ("indexes", "lane", "minutes", "sending", "sequence")

    def __init__(
        self, lane: Lane, sequence: int, indexes: list[int], minutes: list[int], sending: Sending
    ) -> None:
        self.lane = lane
        self.sequence = sequence
        self.indexes = indexes
        self.minutes = minutes
        self.sending = sending


class Acceptor:
    """Gives each event its identity and its place, and waits for Kafka."""

    def __init__(
        self, producer: Producer, topic: str, tally: Tally, *, ack_timeout_s: float, tolerance_s: float
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._tally = tally
        self._ack_timeout_s = ack_timeout_s
        self._tolerance_us = int(tolerance_s * MICROSECONDS)
        self._look_again_s = 0.0
        self._stalled = False

    def check(self) -> None:
        """Raises Problem: Kafka does not acknowledge at the moment, so nothing is taken."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + _LOOK_S
            self._stalled = self._producer.stalled_s(now_s) > self._ack_timeout_s
        if self._stalled:
            raise retry_later("Kafka does not acknowledge events at the moment; nothing was taken", 2)

    async def accept(
        self, known: PipeVersion, events: Sequence[Incoming], in_us: int, accepted_us: int
    ) -> None:
        """Return when Kafka has acknowledged every event.

        Args:
            known: the pipe that takes them.
            events: of one request, checked.
            in_us: when the last byte of the request came in, microseconds since 1970 UTC.
            accepted_us: the stamp of this moment, microseconds since 1970 UTC.

        Raises:
            Problem: 503 with the outcome of each event, or 413.
        """
        if not events:
            return
        groups = self._send(known, events, in_us, accepted_us)
        pending = [group.sending.acknowledged for group in groups]
        await asyncio.wait(pending, timeout=self._ack_timeout_s)
        outcomes: dict[int, Outcome] = {}
        pipe = known.pipe.pipe
        for group in groups:
            outcome = _outcome(group.sending)
            if outcome is Outcome.ACCEPTED:
                _count(group, pipe)
            outcomes.update(dict.fromkeys(group.indexes, outcome))
        if any(outcome is not Outcome.ACCEPTED for outcome in outcomes.values()):
            raise _not_accepted(events, outcomes)

    def _send(
        self, known: PipeVersion, events: Sequence[Incoming], in_us: int, accepted_us: int
    ) -> list[_Group]:
        lanes = self._tally.lanes
        places: dict[int, list[int]] = {}
        for index, event in enumerate(events):
            places.setdefault(partition(event.key, len(lanes)), []).append(index)
        common = [
            (PIPE, known.pipe.pipe.encode()),
            (PIPE_VERSION, b"%d" % known.version),
            (ACCEPTED, b"%d" % accepted_us),
            (IN, b"%d" % in_us),
        ]
        groups: list[_Group] = []
        try:
            for place, indexes in places.items():
                groups.append(
                    self._send_group(
                        place, [events[index] for index in indexes], indexes, common, accepted_us
                    )
                )
        except (Overloaded, Rejected) as error:
            # Nothing has run in between, so no lane has taken what is queued: all of it can be taken back.
            for group in groups:
                group.sending.abandon()
            if isinstance(error, Rejected):
                raise Problem(413, error.detail) from None
            raise retry_later("too much is waiting for Kafka already; nothing was taken") from None
        return groups

    def _send_group(
        self, place: int, events: list[Incoming], indexes: list[int], common: Headers, accepted_us: int
    ) -> _Group:
        lane = self._tally.lanes[place]
        epoch, first = b"%016x:" % lane.epoch, lane.next
        minutes = [self._minute(event.time_us, accepted_us) for event in events]
        records = [
            Record(
                event.key,
                event.data,
                [*event.headers, *common, (SEQ, epoch + b"%d" % sequence), (MINUTE, b"%d" % minute)],
            )
            for sequence, (event, minute) in enumerate(zip(events, minutes, strict=True), first)
        ]
        sending = self._producer.send(self._topic, place, records)
        lane.next = first + len(events)
        return _Group(lane, first, indexes, minutes, sending)

    def _minute(self, time_us: int | None, accepted_us: int) -> int:
        """The minute that an event counts in everywhere."""
        if time_us is None or abs(time_us - accepted_us) > self._tolerance_us:
            time_us = accepted_us
        return time_us // _MINUTE_US


def _outcome(sending: Sending) -> Outcome:
    acknowledged = sending.acknowledged
    if acknowledged.done() and not acknowledged.cancelled() and acknowledged.exception() is None:
        return Outcome.ACCEPTED
    return Outcome.REFUSED if sending.abandon() else Outcome.UNKNOWN


def _count(group: _Group, pipe: str) -> None:
    """Put a group's sequences into the tally, one range for each run of equal minutes."""
    first, minutes = group.sequence, group.minutes
    start = 0
    for at in range(1, len(minutes) + 1):
        if at == len(minutes) or minutes[at] != minutes[start]:
            group.lane.add(pipe, minutes[start], first + start, first + at - 1)
            start = at


def _not_accepted(events: Sequence[Incoming], outcomes: dict[int, Outcome]) -> Problem:
    listed: list[dict[str, Any]] = [
        {"index": index, "id": events[index].id.decode(), "outcome": outcome}
        for index, outcome in sorted(outcomes.items())
    ]
    counts = {outcome: sum(each is outcome for each in outcomes.values()) for outcome in Outcome}
    detail = (
        "Kafka did not acknowledge every event in time; send again those that are refused,"
        " and those that are unknown if a second copy does no harm"
    )
    return retry_later(
        detail, members={**{each.value: count for each, count in counts.items()}, "events": listed}
    )
