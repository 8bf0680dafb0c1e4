"""The record of a day of a pipe, kept for a year: the state of each minute, and counts of events. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Generic, NamedTuple, TypeVar

from hifi_observe.minutes.availability import DAY_MINUTES, DOWN, UNKNOWN, UP

COUNTS: Final = ("in", "delivered", "dead", "lost", "late")
"""Counts of a merged minute that a day adds up."""
KEPT_DAYS: Final = 400
"""Days for which days and the ids of lost and late events are kept: a year, and time to report on its first month."""


class MinuteState(NamedTuple):
    """Whether a minute was up, down or unknown, with the causes of being down."""

    state: str
    causes: tuple[str, ...] = ()


_State = TypeVar("_State", bound=tuple[Any, ...])


class StateSpan(NamedTuple, Generic[_State]):
    """Minutes in a row with the same state and causes."""

    first: int
    """Its first minute, counted from the start of the day."""
    length: int
    state: _State

    @property
    def end(self) -> int:
        """The minute after its last one."""
        return self.first + self.length


@dataclass(frozen=True, slots=True)
class DayRecord:
    """A day of a pipe. Minutes without a span are those of which observe recorded nothing."""

    spans: tuple[StateSpan[MinuteState], ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    owners: tuple[str, ...] | None = None
    """By which the owner of the pipe was named at the end of the day; None: not known, of a release before."""

    @classmethod
    def load(cls, dump: Mapping[str, Any]) -> "DayRecord":
        """Restore what `dump` returned.

        Raises:
            TypeError, ValueError: its spans are not those of a day.
        """
        spans = tuple(
            StateSpan(int(first_minute), int(length), MinuteState(str(state), tuple(map(str, causes))))
            for first_minute, length, state, *causes in dump["runs"]
        )
        if not all(0 <= span.first <= span.end <= DAY_MINUTES for span in spans):
            raise ValueError("a span is not in the day")
        owners = dump.get("owners")
        return cls(spans, dump["counts"], None if owners is None else tuple(owners))

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes`."""
        return {
            "runs": [[span.first, span.length, span.state.state, *span.state.causes] for span in self.spans],
            "counts": dict(self.counts),
        } | ({} if self.owners is None else {"owners": list(self.owners)})

    def states(self) -> Iterator[tuple[int, MinuteState]]:
        """Minutes of the day with their states, ascending."""
        for span in self.spans:
            for minute in range(span.first, span.first + span.length):
                yield minute, span.state

    def by_state(self, first: int = 0, end: int = DAY_MINUTES) -> dict[str, int]:
        """Number of minutes up, down and unknown, from a minute of the day to before another."""
        minutes = dict.fromkeys((UP, DOWN, UNKNOWN), 0)
        for span in self.spans:
            minutes[span.state.state] += max(0, min(span.end, end) - max(span.first, first))
        return minutes

    def updated(self, minutes: Iterable[tuple[int, MinuteState]], counts: Mapping[str, int]) -> "DayRecord":
        """The day with the states of some minutes, counted from its start, and other counts."""
        states = dict(self.states())
        states.update(minutes)
        return DayRecord(
            tuple(state_spans(states)), {name: counts.get(name, 0) for name in COUNTS}, self.owners
        )

    def of_owners(self, owners: tuple[str, ...]) -> "DayRecord":
        """The day with these names of the owner."""
        return replace(self, owners=owners)


def state_spans(states: Mapping[int, _State]) -> Iterator[StateSpan[_State]]:
    """The states of minutes as spans, ascending."""
    # Minutes in a row have the same difference between their number and their position.
    positions = enumerate(sorted(states))
    for (_, state), group in groupby(positions, lambda row: (row[1] - row[0], states[row[1]])):
        minutes = [minute for _, minute in group]
        yield StateSpan(minutes[0], len(minutes), state)


def day_of(minute: int) -> int:
    """The day of a minute, numbered since 1970 UTC."""
    return minute // DAY_MINUTES
