"""A fetched batch of one topic, sorted by pipe and minute before anything is entered: the hot path of observe.

At 2,000 events a second every event passes here about four times, so whatever can be done once for a group of records
is not done for each.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import sub
from typing import Any, Final, TypeAlias

from hifi.event import ACCEPTED, ANSWERED, IN, SENT, TIME
from hifi_observe.ledger import stage
from hifi_observe.ledger.durations import Transit, event_time_us
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import Stage

_BEFORE: Final = {
    stage.NORMALIZED: stage.RAW,
    stage.ENRICHED: stage.NORMALIZED,
    stage.RECEIPTS: stage.ENRICHED,
}
"""Kind of topic to the one that its writer reads."""
_HOPS: Final = frozenset((stage.RAW, stage.NORMALIZED, stage.ENRICHED))
TIMES: Final = (ACCEPTED, TIME, IN)
"""The headers that the times of a hop are measured by."""
RECEIPT_TIMES: Final = (*TIMES, SENT, ANSWERED)
Timed: TypeAlias = tuple[Any, ...]
"""A record whose times are measured: identity, append time in milliseconds, and these headers, None where missing."""


class RecordGroup:
    """The records of a batch that show the same stages of the same epoch's events, in one cell."""

    # No reference back to its place: a cycle would keep each batch until the collector comes.
    __slots__ = ("epoch", "first", "last", "passed", "pipe_minute", "shown", "stages", "through", "timed")

    def __init__(
        self,
        pipe_minute: PipeMinute,
        through: int,
        stages: tuple[Stage, ...],
        epoch: bytes,
        timed: list[Timed] | None,
    ) -> None:
        self.pipe_minute = pipe_minute
        self.through = through
        """Records below this offset were counted before a restart."""
        self.first = -1
        """Offset of the first record that counts; -1: none does."""
        self.last = -1
        self.stages = stages
        self.epoch = epoch.decode("ascii", "replace")
        self.shown: list[int] = []
        """Sequences that were seen."""
        self.passed: list[int] = []
        """Sequences whose records the reading service had committed past already."""
        self.timed = timed
        """Where its records go that are measured, together with those of other groups; None: they are not."""


@dataclass(slots=True)
class MinuteBatch:
    """The records of a batch that belong to one cell."""

    pipe_minute: PipeMinute
    through: int
    """Records below this offset were counted before a restart."""
    groups: dict[tuple[tuple[Stage, ...], bytes], RecordGroup] = field(default_factory=dict)
    hop: list[Timed] = field(default_factory=list)
    delivered: dict[str, list[Timed]] = field(default_factory=dict)
    """By destination."""

    def group(self, kind: str, stages: tuple[Stage, ...], epoch: bytes) -> RecordGroup:
        """The group of a record."""
        group = self.groups.get((stages, epoch))
        if group is None:
            timed = None
            if kind in _HOPS:
                timed = self.hop
            elif stages[0].kind == "delivered":
                timed = self.delivered.setdefault(stages[0].destination, [])
            group = self.groups[stages, epoch] = RecordGroup(
                self.pipe_minute, self.through, stages, epoch, timed
            )
        return group

    def enter(self, topic: str) -> None:
        """Put the sequences into the cell."""
        shown = [group for group in self.groups.values() if group.shown]
        if shown:
            self.pipe_minute.span(topic, min(group.first for group in shown))
            self.pipe_minute.span(topic, max(group.last for group in shown))
        for group in shown:
            self.pipe_minute.show(group.stages, group.epoch, group.shown)
        for group in self.groups.values():
            if group.passed:
                self.pipe_minute.pass_by(group.stages[0], group.epoch, group.passed)

    def measure(self, kind: str, transit: Transit) -> list[int]:
        """Put all durations into the cell; returns the end-to-end lags from accepted time, microseconds."""
        if self.hop:
            self._hop(kind, transit)
        ends: list[int] = []
        for name, timed in self.delivered.items():
            ends += self._deliveries(kind, name, timed, transit)
        return ends

    def _hop(self, kind: str, transit: Transit) -> None:
        rows = []
        for identity, append_ms, accepted, time, fetched in self.hop:
            try:
                accepted_us, in_us = int(accepted), int(fetched)
            except (TypeError, ValueError):
                continue  # a time is missing or malformed: it is not measured
            event_us = event_time_us(time, accepted_us)
            rows.append((identity, in_us, append_ms * 1000, accepted_us, event_us))
        if not rows:
            return
        identities, ins, appends, accepts, events = zip(*rows, strict=True)
        service, put = stage.WRITERS[kind], self.pipe_minute.measure
        put(service + ".in.event", map(sub, ins, events))
        put(service + ".in.accepted", map(sub, ins, accepts))
        put(service + ".process", _spans(ins, appends))
        put(service + ".out.event", map(sub, appends, events))
        put(service + ".out.accepted", map(sub, appends, accepts))
        self._fetched(kind, transit, zip(identities, ins, strict=True))
        known = transit.appended(kind, zip(identities, appends, strict=True))
        if known:
            put(stage.READERS[kind] + ".transit", known)

    def _fetched(self, kind: str, transit: Transit, fetched: Iterable[tuple[bytes, int]]) -> None:
        before = _BEFORE.get(kind)
        if before is not None:
            known = transit.fetched(before, fetched)
            if known:
                self.pipe_minute.measure(stage.READERS[before] + ".transit", known)

    def _deliveries(self, kind: str, name: str, timed: list[Timed], transit: Transit) -> list[int]:
        rows = []
        for identity, _, accepted, time, fetched, sent, answered in timed:
            try:
                sent_us, answered_us, accepted_us = int(sent), int(answered), int(accepted)
                in_us = int(fetched) if fetched is not None else sent_us
            except (TypeError, ValueError):
                continue
            event_us = event_time_us(time, accepted_us)
            rows.append((identity, in_us, sent_us, answered_us, accepted_us, event_us))
        if not rows:
            return []
        identities, ins, sents, answers, accepts, events = zip(*rows, strict=True)
        self._fetched(kind, transit, zip(identities, ins, strict=True))
        put = self.pipe_minute.measure
        ends, ends_from_event = list(map(sub, answers, accepts)), list(map(sub, answers, events))
        put("egest.in.event", map(sub, ins, events))
        put("egest.in.accepted", map(sub, ins, accepts))
        put("egest.process", _spans(ins, sents))
        put("egest.out.event", ends_from_event)
        put("egest.out.accepted", ends)
        put(f"expel/{name}", _spans(sents, answers))
        put(f"end.event/{name}", ends_from_event)
        put(f"end.accepted/{name}", ends)
        return ends


def _spans(begins: Iterable[int], ends: Iterable[int]) -> list[int]:
    """From each beginning to its end, at least 0."""
    return [max(0, length) for length in map(sub, ends, begins)]
