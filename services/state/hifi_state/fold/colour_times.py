"""Of which times the other colour of a stream has events of a step, so that a result may be a part. Pure.

Each colour states from when on its events can still count (`until_ms`), which holds for ever, and between which times
they have counted before. So a window is whole if it ends before that of the other colour and none of its events is in
it. The results of a window wait for that, but not long for a colour that does not answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from hifi.pipe.step_inputs import FUTURE_MS

EARLIEST_MS: Final = -(2**62)
LATEST_MS: Final = 2**62
WAIT_MS: Final = 60_000
"""How long results wait for the other colour."""
_CLOCKS_MS: Final = 5_000
"""How far the clocks of both colours may differ."""
_ENDING_MS: Final = 300_000
"""After this time without a process, at most, a colour that has to sleep accepts nothing."""
_MOST_INTERVALS: Final = 100


class Interval(NamedTuple):
    """Times of events, milliseconds since 1970 UTC, both included."""

    first_ms: int
    last_ms: int


ALL_TIMES: Final = Interval(EARLIEST_MS, LATEST_MS)


@dataclass(frozen=True, slots=True)
class ColourTimes:
    """The times of the events of a colour's log that a step counts, as the colour states them.

    Attributes:
        since_ms: its log may have earlier ones that are in no result, milliseconds since 1970 UTC, as all times.
        lateness_ms: of the step.
        until_ms: earlier ones do not count from now on; None: not known yet.
        counted: the events that have counted are in these times, which are in order and apart.
    """

    since_ms: int
    lateness_ms: int = 0
    until_ms: int | None = None
    counted: tuple[Interval, ...] = ()

    def begun(self, now_ms: int) -> "ColourTimes":
        """The same if the log has been left out up to now."""
        return replace(self, since_ms=max(self.since_ms, now_ms + FUTURE_MS))

    def having(self, times: Interval | None) -> "ColourTimes":
        """The same with the times of more events; of many intervals those become one that are closest."""
        if times is None:
            return self
        merged_times: list[Interval] = []
        for interval in sorted((*self.counted, times)):
            if merged_times and interval.first_ms <= merged_times[-1].last_ms + 1:
                last_ms = max(merged_times[-1].last_ms, interval.last_ms)
                merged_times[-1] = merged_times[-1]._replace(last_ms=last_ms)
            else:
                merged_times.append(interval)
        while len(merged_times) > _MOST_INTERVALS:
            gaps_ms = [
                later_interval.first_ms - earlier_interval.last_ms
                for earlier_interval, later_interval in pairwise(merged_times)
            ]
            index = gaps_ms.index(min(gaps_ms))
            merged_times[index : index + 2] = [
                Interval(merged_times[index].first_ms, merged_times[index + 1].last_ms)
            ]
        return replace(self, counted=tuple(merged_times))

    def settled(self, until_ms: int | None, lateness_ms: int) -> "ColourTimes":
        """The same once no event before a time counts any more; None: not known."""
        if until_ms is None or (self.until_ms is not None and self.until_ms > until_ms):
            until_ms = self.until_ms
        return replace(self, until_ms=until_ms, lateness_ms=lateness_ms)

    def woken(self, woken_ms: int) -> "ColourTimes":
        """The same with what the other colour took for granted while this one slept; 0: it never did."""
        return self if not woken_ms else self.settled(woken_ms - self.lateness_ms, self.lateness_ms)

    def encode(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "since_ms": self.since_ms,
            "lateness_ms": self.lateness_ms,
            "until_ms": self.until_ms,
            "counted": encoded(self.counted),
        }

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> "ColourTimes":
        """Read `encode`.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        until_ms = body["until_ms"]
        return cls(
            _time_ms(body["since_ms"]),
            _time_ms(body["lateness_ms"]),
            None if until_ms is None else _time_ms(until_ms),
            decoded(body["counted"]),
        )


class Sleep(NamedTuple):
    """A colour that is asleep.

    Attributes:
        since_ms: it had been told so by then.
        seen_ms: it was so then.
    """

    since_ms: int
    seen_ms: int


class OtherColour(NamedTuple):
    """The state of a step in the other colour, as far as this colour knows it.

    Attributes:
        horizon_ms: windows up to here need not wait for it any more.
        times: it has events of these, or may get them.
    """

    horizon_ms: int
    times: tuple[Interval, ...]


NOT_KNOWN: Final = OtherColour(LATEST_MS, (ALL_TIMES,))
"""Nothing is known, and nothing will be."""


def other_colour(
    times: ColourTimes | None, sleep: Sleep | None, lateness_ms: int, now_ms: int
) -> OtherColour:
    """The state of a step in the other colour.

    Args:
        times: that the other one has stated last; None: none.
        sleep: it sleeps; None: it does not, or that is not known.
        lateness_ms: of the step in this colour.
        now_ms: milliseconds since 1970 UTC.
    """
    settled_ms, intervals = EARLIEST_MS, [ALL_TIMES]
    if times is not None:
        settled_ms = EARLIEST_MS if times.until_ms is None else times.until_ms
        intervals = [Interval(EARLIEST_MS, times.since_ms), *times.counted]
        if sleep is not None:
            asleep_ms = sleep.seen_ms - times.lateness_ms - _CLOCKS_MS
            if asleep_ms > settled_ms:
                intervals.append(Interval(settled_ms, sleep.since_ms + _ENDING_MS + FUTURE_MS))
                settled_ms = asleep_ms
        intervals.append(Interval(settled_ms, LATEST_MS))
    return OtherColour(max(settled_ms, now_ms - lateness_ms - WAIT_MS), tuple(intervals))


def may_have(times: Iterable[Interval], first_ms: int, end_ms: int) -> bool:
    """Whether there may be an event from a time on and before an end.

    Args:
        times: that events may have.
        first_ms: milliseconds since 1970 UTC.
        end_ms: likewise.
    """
    return any(interval.first_ms < end_ms and interval.last_ms >= first_ms for interval in times)


def encoded(times: Sequence[Interval]) -> list[list[int]]:
    """Times as JSON."""
    return [list(interval) for interval in times]


def decoded(values: Iterable[Sequence[int]]) -> tuple[Interval, ...]:
    """Read `encoded`.

    Raises:
        TypeError, ValueError: it is something else.
    """
    return tuple(Interval(_time_ms(first_ms), _time_ms(last_ms)) for first_ms, last_ms in values)


def _time_ms(value: Any) -> int:
    time_ms = int(value)
    if not EARLIEST_MS <= time_ms <= LATEST_MS:
        raise ValueError(f"{time_ms} is no time")
    return time_ms
