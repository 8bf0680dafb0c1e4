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
"""Why a minute is unknown: that of a colour or of the front is."""


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
    def load(cls, dumped: Mapping[str, Any]) -> "ColoursDay":
        """What `dump` returned."""
        minutes: dict[int, ColoursMinute] = {}
        for first, length, state, causes, logs in dumped["runs"]:
            minute = ColoursMinute(MinuteState(state, tuple(causes)), tuple(logs))
            minutes |= dict.fromkeys(range(first, first + length), minute)
        return cls(minutes, dumped["counts"])

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes` and the other colour."""
        dumped = [
            [run.first, run.length, run.state.state.state, run.state.state.causes, run.state.logs]
            for run in state_spans(self.minutes)
        ]
        return {"runs": dumped, "counts": self.counts}

    def judged(self, judgements: Iterable[tuple[int, ColoursMinute]]) -> "ColoursDay":
        """The day with newer judgements of some minutes, where they know as much as those before."""
        minutes = dict(self.minutes)
        for number, minute in judgements:
            minutes[number] = fuller(minutes.get(number), minute)
        return ColoursDay(minutes, self.counts)

    def joined(self, other: "ColoursDay", log: str) -> "ColoursDay":
        """The day with what the other colour knows besides.

        Args:
            other: the same day as the other colour keeps it.
            log: of the other colour, whose counts it knows best.
        """
        minutes = dict(other.minutes)
        for number, minute in self.minutes.items():
            minutes[number] = fuller(minutes.get(number), minute)
        counts = {**other.counts, **self.counts}
        if log in other.counts:
            counts[log] = other.counts[log]
        return ColoursDay(minutes, counts)

    def record(self) -> DayRecord:
        """The day as that of one stream."""
        states = {number: minute.state for number, minute in self.minutes.items()}
        total: Counter[str] = Counter()
        for counts in self.counts.values():
            total.update({name: counts.get(name, 0) for name in COUNTS})
        return DayRecord(tuple(state_spans(states)), total)


def fuller(before: ColoursMinute | None, minute: ColoursMinute) -> ColoursMinute:
    """The judgement that knows more: a state, or the counts of more logs; if both know the same, the second."""
    if before is None:
        return minute
    judged_before, judged = before.state.state != UNKNOWN, minute.state.state != UNKNOWN
    if judged_before != judged:
        return before if judged_before else minute
    return minute if set(before.logs) <= set(minute.logs) else before
