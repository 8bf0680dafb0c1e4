"""Measure durations from the times in record headers, all in microseconds.

Measures: `<service>.in.<base>` and `<service>.out.<base>` (lag on arrival and departure, cumulative, from `event` or
`accepted` time), `<service>.process`, `<service>.transit` (from the append to the previous topic to its fetch),
`expel/<destination>` (first byte sent to status line) and `end.<base>/<destination>` (to the destination's 2xx). Append
times are whole milliseconds, so measures that use them may be 1 ms too low; durations are never below 0.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import sub
from typing import Final, cast

from hifi.record.cloudevents.timestamps import parse_us
from hifi_observe.ledger import stage
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordGroup, RecordTimes

_PREVIOUS: Final = {
    stage.NORMALIZED: stage.RAW,
    stage.ENRICHED: stage.NORMALIZED,
    stage.RECEIPTS: stage.ENRICHED,
}
"""Kind of topic to the one that its writer reads."""


@lru_cache(maxsize=32_768)
def parse_time_us(text: bytes | None) -> int | None:
    """An event time, microseconds since 1970 UTC; None where it cannot be read. Each is seen on four topics."""
    if text is None:
        return None
    try:
        return parse_us(text)
    except ValueError:
        return None


def event_times_us(texts: Iterable[bytes | None], accepted_us: Iterable[int]) -> list[int]:
    """The events' own times, microseconds since 1970 UTC; the accepted time of an event that has none."""
    times = list(map(parse_time_us, texts))
    if None not in times:
        return cast(list[int], times)
    return [accepted if time is None else time for time, accepted in zip(times, accepted_us, strict=True)]


class Transit:
    """Joins a record's append with the next service's fetch, in any order. Bounded: the oldest are forgotten."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._appended: dict[str, dict[bytes, int]] = {}
        self._fetched: dict[str, dict[bytes, int]] = {}

    def appended(self, topic: str, identities: Sequence[bytes], appends_us: Sequence[int]) -> list[int]:
        """Add appends of records to a topic; returns the transits now known, microseconds."""
        other, mine = self._fetched.setdefault(topic, {}), self._appended.setdefault(topic, {})
        if other:
            transits = self._join(other, mine, identities, appends_us)
            lengths_us = [max(0, -length) for length in transits]
        else:
            mine.update(zip(identities, appends_us, strict=True))
            lengths_us = []
        self._bound(mine)
        return lengths_us

    def fetched(self, topic: str, identities: Sequence[bytes], fetches_us: Sequence[int]) -> list[int]:
        """Add fetches of records by a topic's reader; returns the transits now known, microseconds."""
        other, mine = self._appended.setdefault(topic, {}), self._fetched.setdefault(topic, {})
        lengths_us = [max(0, length) for length in self._join(other, mine, identities, fetches_us)]
        self._bound(mine)
        return lengths_us

    @staticmethod
    def _join(
        other: dict[bytes, int], mine: dict[bytes, int], identities: Sequence[bytes], times_us: Sequence[int]
    ) -> list[int]:
        """Take out what `other` knows of these, and put the rest into `mine`; returns times less other times."""
        other_times_us = list(map(other.pop, identities, repeat(None)))
        if None not in other_times_us:
            return list(map(sub, times_us, cast(list[int], other_times_us)))
        lengths_us = []
        for identity, time_us, other_us in zip(identities, times_us, other_times_us, strict=True):
            if other_us is None:
                mine[identity] = time_us
            else:
                lengths_us.append(time_us - other_us)
        return lengths_us

    def _bound(self, kept: dict[bytes, int]) -> None:
        while len(kept) > self._limit:
            del kept[next(iter(kept))]


def measure(kind: str, pipe_minute: PipeMinute, groups: Iterable[RecordGroup], transit: Transit) -> list[int]:
    """Add all durations of a batch's groups to their minute.

    Returns:
        End-to-end lags of deliveries from accepted time, microseconds.
    """
    by_destination: dict[str, RecordTimes] = {}
    for group in groups:
        if group.times is not None:
            destination = group.stages[0].destination
            times = by_destination.get(destination)
            if times is None:
                times = by_destination[destination] = RecordTimes()
            times.extend(group.times)
    lags: list[int] = []
    for destination, times in by_destination.items():
        measured = times.complete() if times.malformed else times
        if not measured.identities:
            continue
        if kind == stage.RECEIPTS:
            lags += _measure_deliveries(pipe_minute, destination, measured, transit)
        else:
            _measure_hop(kind, pipe_minute, measured, transit)
    return lags


def _measure_hop(kind: str, pipe_minute: PipeMinute, times: RecordTimes, transit: Transit) -> None:
    ins, accepts, events = (
        times.in_us,
        times.accepted_us,
        event_times_us(times.event_times, times.accepted_us),
    )
    appends = [append_ms * 1000 for append_ms in times.append_ms]
    service, measure = stage.WRITERS[kind], pipe_minute.measure
    measure(service + ".in.event", map(sub, ins, events))
    measure(service + ".in.accepted", map(sub, ins, accepts))
    measure(service + ".process", _lengths(ins, appends))
    measure(service + ".out.event", map(sub, appends, events))
    measure(service + ".out.accepted", map(sub, appends, accepts))
    _measure_fetches(kind, pipe_minute, transit, times)
    lengths_us = transit.appended(kind, times.identities, appends)
    if lengths_us:
        measure(stage.READERS[kind] + ".transit", lengths_us)


def _measure_fetches(kind: str, pipe_minute: PipeMinute, transit: Transit, times: RecordTimes) -> None:
    previous = _PREVIOUS.get(kind)
    if previous is not None:
        lengths_us = transit.fetched(previous, times.identities, times.in_us)
        if lengths_us:
            pipe_minute.measure(stage.READERS[previous] + ".transit", lengths_us)


def _measure_deliveries(
    pipe_minute: PipeMinute, destination: str, times: RecordTimes, transit: Transit
) -> list[int]:
    ins, accepts, events = (
        times.in_us,
        times.accepted_us,
        event_times_us(times.event_times, times.accepted_us),
    )
    sents, answers = times.sent_us, times.answered_us
    _measure_fetches(stage.RECEIPTS, pipe_minute, transit, times)
    measure = pipe_minute.measure
    lags, lags_from_event = list(map(sub, answers, accepts)), list(map(sub, answers, events))
    measure("egest.in.event", map(sub, ins, events))
    measure("egest.in.accepted", map(sub, ins, accepts))
    measure("egest.process", _lengths(ins, sents))
    measure("egest.out.event", lags_from_event)
    measure("egest.out.accepted", lags)
    measure(f"expel/{destination}", _lengths(sents, answers))
    measure(f"end.event/{destination}", lags_from_event)
    measure(f"end.accepted/{destination}", lags)
    return lags


def _lengths(starts: Iterable[int], ends: Iterable[int]) -> list[int]:
    """From each start to its end, at least 0."""
    return [max(0, length) for length in map(sub, ends, starts)]
