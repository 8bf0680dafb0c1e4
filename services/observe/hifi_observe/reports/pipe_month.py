"""The minutes of a pipe in a month: each is up, down or unknown, and each that is not up has a reason. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hifi_observe.colours.colours_day import INCOMPLETE
from hifi_observe.minutes.availability import DAY_MINUTES, DOWN, UNKNOWN, UP, Uptime
from hifi_observe.minutes.day_record import COUNTS, KEPT_DAYS, DayRecord, MinuteState, day_of
from hifi_observe.reports.month import Month


class UnknownReason(StrEnum):
    """The reason why a minute is unknown."""

    GONE = "no-longer-kept"
    """It is so old that what observe recorded of it was deleted."""
    BEFORE = "before-first-minute"
    """It is before the first minute that observe recorded of the pipe."""
    OPEN = "not-closed"
    """It had not been judged yet when the report was made."""
    UNRECORDED = "not-recorded"
    """observe recorded nothing of it, although it recorded minutes before."""
    INCOMPLETE = INCOMPLETE
    """The observe of a colour did not answer, or the front was not watched all the time."""
    UNJUDGED = "not-judged"
    """observe recorded it, and had too little data to judge it."""


@dataclass(frozen=True, slots=True)
class MinuteSpan:
    """Minutes in a row with the same state and reasons."""

    first: int
    """Minutes since 1970 UTC."""
    end: int
    """The minute after the last one."""
    state: str
    reasons: tuple[str, ...] = ()
    """Causes of being down, or the reason why it is unknown."""

    @property
    def minutes(self) -> int:
        """Their number."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class PipeMonth:
    """The spans of a month, which have each of its minutes that has passed exactly once, and counts of events."""

    spans: tuple[MinuteSpan, ...]
    counts: Mapping[str, int]

    def of(self, state: str) -> list[MinuteSpan]:
        """The spans with a state, oldest first."""
        return [span for span in self.spans if span.state == state]

    @property
    def uptime(self) -> Uptime:
        """Minutes up, down and unknown."""
        minutes = dict.fromkeys((UP, DOWN, UNKNOWN), 0)
        for span in self.spans:
            minutes[span.state] += span.minutes
        return Uptime(minutes[UP], minutes[DOWN], minutes[UNKNOWN])


def pipe_month(days: Mapping[int, DayRecord], month: Month, closed_minute: int) -> PipeMonth:
    """The month of a pipe.

    Args:
        days: day, numbered since 1970 UTC, to what observe kept of it; also days before the month.
        month: to report on.
        closed_minute: the newest minute that observe closed; -1: none yet.
    """
    first_recorded, _ = recorded_range(days) or (None, None)
    spans: list[MinuteSpan] = []
    for span in _with_gaps(list(_recorded_spans(days, month)), month, closed_minute, first_recorded):
        previous_span = spans[-1] if spans else None
        if previous_span is not None and (previous_span.end, previous_span.state, previous_span.reasons) == (
            span.first,
            span.state,
            span.reasons,
        ):
            spans[-1] = MinuteSpan(previous_span.first, span.end, span.state, span.reasons)
        else:
            spans.append(span)
    month_days = [days[number] for number in numbers_of(month) if number in days]
    counts = {name: sum(record.counts.get(name, 0) for record in month_days) for name in COUNTS}
    return PipeMonth(tuple(spans), counts)


def first_kept(closed_minute: int) -> int:
    """The first minute whose record is not deleted by its age when a minute has closed."""
    return (day_of(closed_minute) - KEPT_DAYS) * DAY_MINUTES


def recorded_range(days: Mapping[int, DayRecord]) -> tuple[int, int] | None:
    """The first and the last minute of which anything is recorded; None: there is none."""
    first_minutes = [
        number * DAY_MINUTES + record.spans[0].first for number, record in days.items() if record.spans
    ]
    last_minutes = [
        number * DAY_MINUTES + record.spans[-1].end - 1 for number, record in days.items() if record.spans
    ]
    return (min(first_minutes), max(last_minutes)) if first_minutes else None


def numbers_of(month: Month) -> range:
    """The days of a month, numbered since 1970 UTC."""
    return range(month.first // DAY_MINUTES, month.end // DAY_MINUTES)


def _recorded_spans(days: Mapping[int, DayRecord], month: Month) -> Iterator[MinuteSpan]:
    for number in numbers_of(month):
        for state_span in days[number].spans if number in days else ():
            first_minute = number * DAY_MINUTES + state_span.first
            end_minute = min(first_minute + state_span.length, month.passed_end)
            if first_minute < end_minute:
                yield MinuteSpan(first_minute, end_minute, state_span.state.state, _reasons(state_span.state))


def _reasons(state: MinuteState) -> tuple[str, ...]:
    return state.causes or ((UnknownReason.UNJUDGED.value,) if state.state == UNKNOWN else ())


def _with_gaps(
    recorded_spans: list[MinuteSpan], month: Month, closed_minute: int, first_recorded: int | None
) -> Iterator[MinuteSpan]:
    next_minute = month.first
    for span in recorded_spans:
        yield from _gap(next_minute, span.first, closed_minute, first_recorded)
        yield span
        next_minute = span.end
    yield from _gap(next_minute, month.passed_end, closed_minute, first_recorded)


def _gap(
    first_minute: int, end_minute: int, closed_minute: int, first_recorded: int | None
) -> Iterator[MinuteSpan]:
    """Minutes from `first_minute` to before `end_minute` of which observe has no record, by reason."""
    judged_end = min(max(closed_minute + 1, first_minute), end_minute)
    gone_end = min(max(first_kept(closed_minute), first_minute), judged_end)
    before_end = judged_end if first_recorded is None else min(max(first_recorded, gone_end), judged_end)
    for start, stop, reason in (
        (first_minute, gone_end, UnknownReason.GONE),
        (gone_end, before_end, UnknownReason.BEFORE),
        (before_end, judged_end, UnknownReason.UNRECORDED),
        (judged_end, end_minute, UnknownReason.OPEN),
    ):
        if start < stop:
            yield MinuteSpan(start, stop, UNKNOWN, (reason.value,))
