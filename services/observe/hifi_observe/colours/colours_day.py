"""A day of a pipe over both colours, as observe keeps it for a year. Pure.

Minutes are judged over both colours while their lags are known, and the judgement is kept: a colour that is asleep, or
whose stream was made anew, answers no longer.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from hifi_observe.minutes.availability import UNKNOWN
from hifi_observe.minutes.day_record import COUNTS, DayRecord, MinuteState, state_spans

INCOMPLETE: Final = "incomplete"
"""Reason why a minute is unknown: that of a colour or of the front is."""


class ColoursMinute(NamedTuple):
    """A minute judged over both colours."""

    state: MinuteState
    logs: tuple[str, ...]
    """The logs whose counts it has, in alphabetical order; see docs/decisions/log-identity.md."""


@dataclass(frozen=True, slots=True)
class ColoursDay:
    """A day of a pipe."""

    minutes: Mapping[int, ColoursMinute] = field(default_factory=dict)
    """By their number from the start of the day."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Log to its `COUNTS` of the day."""

    @classmethod
    def load(cls, dump: Mapping[str, Any]) -> "ColoursDay":
        """Restore what `dump` returned."""
        minutes: dict[int, ColoursMinute] = {}
        for first_minute, length, state, causes, logs in dump["runs"]:
            minute = ColoursMinute(MinuteState(state, tuple(causes)), tuple(logs))
            minutes |= dict.fromkeys(range(first_minute, first_minute + length), minute)
        return cls(minutes, dump["counts"])

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes` and the other colour."""
        span_rows = [
            [span.first, span.length, span.state.state.state, span.state.state.causes, span.state.logs]
            for span in state_spans(self.minutes)
        ]
        return {"runs": span_rows, "counts": self.counts}

    def judged(self, judgements: Iterable[tuple[int, ColoursMinute]]) -> "ColoursDay":
        """The day with newer judgements of some minutes, where they know as much as those before."""
        minutes = dict(self.minutes)
        for number, minute in judgements:
            minutes[number] = fuller(minutes.get(number), minute)
        return ColoursDay(minutes, self.counts)

    def joined(self, other_day: "ColoursDay", log: str) -> "ColoursDay":
        """The day with the judgements and counts of the other colour added.

        Args:
            other_day: the same day as the other colour keeps it.
            log: of the other colour, whose counts it knows best.
        """
        minutes = dict(other_day.minutes)
        for number, minute in self.minutes.items():
            minutes[number] = fuller(minutes.get(number), minute)
        counts = {**other_day.counts, **self.counts}
        if log in other_day.counts:
            counts[log] = other_day.counts[log]
        return ColoursDay(minutes, counts)

    def record(self) -> DayRecord:
        """The day as that of one stream."""
        states = {number: minute.state for number, minute in self.minutes.items()}
        total: Counter[str] = Counter()
        for counts in self.counts.values():
            total.update({name: counts.get(name, 0) for name in COUNTS})
        return DayRecord(tuple(state_spans(states)), total)


def fuller(earlier: ColoursMinute | None, later: ColoursMinute) -> ColoursMinute:
    """The judgement that knows more: a state, or the counts of more logs; if both know the same, the second."""
    if earlier is None:
        return later
    earlier_known, later_known = earlier.state.state != UNKNOWN, later.state.state != UNKNOWN
    if earlier_known != later_known:
        return earlier if earlier_known else later
    return later if set(earlier.logs) <= set(later.logs) else earlier
