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


def event_times_us(time_texts: Iterable[bytes | None], accepted_us: Iterable[int]) -> list[int]:
    """The events' own times, microseconds since 1970 UTC; the accepted time of an event that has none."""
    times = list(map(parse_time_us, time_texts))
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
        fetch_times, append_times = self._fetched.setdefault(topic, {}), self._appended.setdefault(topic, {})
        if fetch_times:
            transits = self._join(fetch_times, append_times, identities, appends_us)
            lengths_us = [max(0, -length) for length in transits]
        else:
            append_times.update(zip(identities, appends_us, strict=True))
            lengths_us = []
        self._bound(append_times)
        return lengths_us

    def fetched(self, topic: str, identities: Sequence[bytes], fetches_us: Sequence[int]) -> list[int]:
        """Add fetches of records by a topic's reader; returns the transits now known, microseconds."""
        append_times, fetch_times = self._appended.setdefault(topic, {}), self._fetched.setdefault(topic, {})
        lengths_us = [
            max(0, length) for length in self._join(append_times, fetch_times, identities, fetches_us)
        ]
        self._bound(fetch_times)
        return lengths_us

    @staticmethod
    def _join(
        counterparts: dict[bytes, int],
        unmatched: dict[bytes, int],
        identities: Sequence[bytes],
        times_us: Sequence[int],
    ) -> list[int]:
        """Subtract from each time that of its counterpart, which is removed; `unmatched` gets the times without one."""
        counterpart_times_us = list(map(counterparts.pop, identities, repeat(None)))
        if None not in counterpart_times_us:
            return list(map(sub, times_us, cast(list[int], counterpart_times_us)))
        lengths_us = []
        for identity, time_us, counterpart_us in zip(identities, times_us, counterpart_times_us, strict=True):
            if counterpart_us is None:
                unmatched[identity] = time_us
            else:
                lengths_us.append(time_us - counterpart_us)
        return lengths_us

    def _bound(self, times: dict[bytes, int]) -> None:
        while len(times) > self._limit:
            del times[next(iter(times))]


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
        complete_times = times.complete() if times.malformed else times
        if not complete_times.identities:
            continue
        if kind == stage.RECEIPTS:
            lags += _measure_deliveries(pipe_minute, destination, complete_times, transit)
        else:
            _measure_hop(kind, pipe_minute, complete_times, transit)
    return lags


def _measure_hop(kind: str, pipe_minute: PipeMinute, times: RecordTimes, transit: Transit) -> None:
    in_us, accepted_us, event_us = (
        times.in_us,
        times.accepted_us,
        event_times_us(times.event_times, times.accepted_us),
    )
    appends_us = [append_ms * 1000 for append_ms in times.append_ms]
    service, measure = stage.WRITERS[kind], pipe_minute.measure
    measure(service + ".in.event", map(sub, in_us, event_us))
    measure(service + ".in.accepted", map(sub, in_us, accepted_us))
    measure(service + ".process", _lengths(in_us, appends_us))
    measure(service + ".out.event", map(sub, appends_us, event_us))
    measure(service + ".out.accepted", map(sub, appends_us, accepted_us))
    _measure_fetches(kind, pipe_minute, transit, times)
    lengths_us = transit.appended(kind, times.identities, appends_us)
    if lengths_us:
        measure(stage.READERS[kind] + ".transit", lengths_us)


def _measure_fetches(kind: str, pipe_minute: PipeMinute, transit: Transit, times: RecordTimes) -> None:
    previous_kind = _PREVIOUS.get(kind)
    if previous_kind is not None:
        lengths_us = transit.fetched(previous_kind, times.identities, times.in_us)
        if lengths_us:
            pipe_minute.measure(stage.READERS[previous_kind] + ".transit", lengths_us)


def _measure_deliveries(
    pipe_minute: PipeMinute, destination: str, times: RecordTimes, transit: Transit
) -> list[int]:
    in_us, accepted_us, event_us = (
        times.in_us,
        times.accepted_us,
        event_times_us(times.event_times, times.accepted_us),
    )
    sent_us, answered_us = times.sent_us, times.answered_us
    _measure_fetches(stage.RECEIPTS, pipe_minute, transit, times)
    measure = pipe_minute.measure
    lags, lags_from_event = list(map(sub, answered_us, accepted_us)), list(map(sub, answered_us, event_us))
    measure("egest.in.event", map(sub, in_us, event_us))
    measure("egest.in.accepted", map(sub, in_us, accepted_us))
    measure("egest.process", _lengths(in_us, sent_us))
    measure("egest.out.event", lags_from_event)
    measure("egest.out.accepted", lags)
    measure(f"expel/{destination}", _lengths(sent_us, answered_us))
    measure(f"end.event/{destination}", lags_from_event)
    measure(f"end.accepted/{destination}", lags)
    return lags


def _lengths(starts_us: Iterable[int], ends_us: Iterable[int]) -> list[int]:
    """From each start to its end, at least 0."""
    return [max(0, length_us) for length_us in map(sub, ends_us, starts_us)]
