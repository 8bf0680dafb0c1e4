"""Measure durations from the times in record headers, all in microseconds.

Measures: `<service>.in.<base>` and `<service>.out.<base>` (lag on arrival and departure, cumulative, from `event` or
`accepted` time), `<service>.process`, `<service>.transit` (from the append to the previous topic to its fetch),
`expel/<destination>` (first byte sent to status line) and `end.<base>/<destination>` (to the destination's 2xx). Append
times are whole milliseconds, so measures that use them may be 1 ms too low; durations are never below 0.
"""

from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from operator import sub
from typing import Final

from hifi_observe.ledger import stage
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordGroup, Times

_PREVIOUS: Final = {
    stage.NORMALIZED: stage.RAW,
    stage.ENRICHED: stage.NORMALIZED,
    stage.RECEIPTS: stage.ENRICHED,
}
"""Kind of topic to the one that its writer reads."""


def event_time_us(text: bytes | None, accepted_us: int) -> int:
    """The event's own time, microseconds since 1970 UTC; its accepted time if it has none."""
    if text is None:
        return accepted_us
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return accepted_us
    return int(moment.timestamp() * 1_000_000) if moment.tzinfo is not None else accepted_us


class Transit:
    """Joins a record's append with the next service's fetch, in any order. Bounded: the oldest are forgotten."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._appended: dict[str, dict[bytes, int]] = {}
        self._fetched: dict[str, dict[bytes, int]] = {}

    def appended(self, topic: str, records: Iterable[tuple[bytes, int]]) -> list[int]:
        """Add records (identity, append time) of a topic; returns the transits now known, microseconds."""
        other, mine = self._fetched.setdefault(topic, {}), self._appended.setdefault(topic, {})
        known = []
        for identity, append_us in records:
            fetched_us = other.pop(identity, None) if other else None
            if fetched_us is None:
                mine[identity] = append_us
            else:
                known.append(max(0, fetched_us - append_us))
        self._bound(mine)
        return known

    def fetched(self, topic: str, records: Iterable[tuple[bytes, int]]) -> list[int]:
        """Add fetches (identity, time) by a topic's reader; returns the transits now known, microseconds."""
        other, mine = self._appended.setdefault(topic, {}), self._fetched.setdefault(topic, {})
        known = []
        for identity, fetched_us in records:
            append_us = other.pop(identity, None)
            if append_us is None:
                mine[identity] = fetched_us
            else:
                known.append(max(0, fetched_us - append_us))
        self._bound(mine)
        return known

    def _bound(self, kept: dict[bytes, int]) -> None:
        while len(kept) > self._limit:
            del kept[next(iter(kept))]


def measure(kind: str, pipe_minute: PipeMinute, groups: Iterable[RecordGroup], transit: Transit) -> list[int]:
    """Add all durations of a batch's groups to their minute.

    Returns:
        End-to-end lags of deliveries from accepted time, microseconds.
    """
    timed = [(group.stages[0].destination, group.times) for group in groups if group.times]
    if kind != stage.RECEIPTS:
        if timed:
            _measure_hop(kind, pipe_minute, chain.from_iterable(times for _, times in timed), transit)
        return []
    lags: list[int] = []
    by_destination: dict[str, list[list[Times]]] = {}
    for destination, times in timed:
        by_destination.setdefault(destination, []).append(times)
    for destination, lists in by_destination.items():
        lags += _measure_deliveries(pipe_minute, destination, chain.from_iterable(lists), transit)
    return lags


def _measure_hop(kind: str, pipe_minute: PipeMinute, timed: Iterable[Times], transit: Transit) -> None:
    rows = []
    for identity, append_ms, accepted, time, fetched in timed:
        try:
            accepted_us, in_us = int(accepted), int(fetched)
        except (TypeError, ValueError):
            continue  # a time is missing or malformed: this record is not measured
        event_us = event_time_us(time, accepted_us)
        rows.append((identity, in_us, append_ms * 1000, accepted_us, event_us))
    if not rows:
        return
    identities, ins, appends, accepts, events = zip(*rows, strict=True)
    service, put = stage.WRITERS[kind], pipe_minute.measure
    put(service + ".in.event", map(sub, ins, events))
    put(service + ".in.accepted", map(sub, ins, accepts))
    put(service + ".process", _lengths(ins, appends))
    put(service + ".out.event", map(sub, appends, events))
    put(service + ".out.accepted", map(sub, appends, accepts))
    _measure_fetches(kind, pipe_minute, transit, zip(identities, ins, strict=True))
    known = transit.appended(kind, zip(identities, appends, strict=True))
    if known:
        put(stage.READERS[kind] + ".transit", known)


def _measure_fetches(
    kind: str, pipe_minute: PipeMinute, transit: Transit, fetched: Iterable[tuple[bytes, int]]
) -> None:
    previous = _PREVIOUS.get(kind)
    if previous is not None:
        known = transit.fetched(previous, fetched)
        if known:
            pipe_minute.measure(stage.READERS[previous] + ".transit", known)


def _measure_deliveries(
    pipe_minute: PipeMinute, destination: str, timed: Iterable[Times], transit: Transit
) -> list[int]:
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
    _measure_fetches(stage.RECEIPTS, pipe_minute, transit, zip(identities, ins, strict=True))
    put = pipe_minute.measure
    lags, lags_from_event = list(map(sub, answers, accepts)), list(map(sub, answers, events))
    put("egest.in.event", map(sub, ins, events))
    put("egest.in.accepted", map(sub, ins, accepts))
    put("egest.process", _lengths(ins, sents))
    put("egest.out.event", lags_from_event)
    put("egest.out.accepted", lags)
    put(f"expel/{destination}", _lengths(sents, answers))
    put(f"end.event/{destination}", lags_from_event)
    put(f"end.accepted/{destination}", lags)
    return lags


def _lengths(starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    """From each start to its end, at least 0."""
    return [max(0, length) for length in map(sub, ends, starts)]
