"""Find destinations whose last outcomes were all the same failure, over all partition numbers. Pure.

Each partition number publishes its own streak. They are merged in three steps: find the current failure, find when its
run starts (after the last success or different failure on any partition), count the outcomes since then.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hifi_observe.ledger.breaker_reports import REFUSED
from hifi_observe.ledger.recent_activity import FailureStreak


class FailureRun(NamedTuple):
    """A destination's run of equal failures."""

    reason: str
    in_a_row: int
    since_ms: int


def failing_destinations(
    streaks: Mapping[str, list[FailureStreak]], successes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Destinations with a run of equal failures at the end of their outcomes.

    Args:
        streaks: destination to the streaks of partition numbers.
        successes: destination to its last success on any partition number, milliseconds since 1970 UTC.

    Returns:
        `destination`, `reason`, `in_a_row`, `since_ms` of each, by destination.
    """
    failing = []
    for destination, destination_streaks in sorted(streaks.items()):
        streak = failure_run(destination_streaks, successes.get(destination, 0))
        if streak is not None:
            failing.append({"destination": destination} | streak._asdict())
    return failing


def failure_run(streaks: Iterable[FailureStreak], success_ms: int) -> FailureRun | None:
    """The run of equal failures since the last success on any partition number; None: there is none."""
    ongoing = [streak for streak in streaks if streak.last_ms >= success_ms]
    if not ongoing:
        return None
    reason = _current_reason(ongoing)
    same_failures = [streak for streak in ongoing if streak.reason in (reason, *REFUSED)]
    start_ms = _start_ms(ongoing, same_failures, success_ms)
    counts_and_starts = [
        count_and_start
        for streak in same_failures
        if (count_and_start := _outcomes_since(streak, start_ms)) is not None
    ]
    if not counts_and_starts:
        return None
    return FailureRun(
        reason,
        sum(count for count, _ in counts_and_starts),
        min(since_ms for _, since_ms in counts_and_starts),
    )


def _current_reason(streaks: list[FailureStreak]) -> str:
    """The newest failure; one that was answered goes before a delivery without a request."""
    return max(streaks, key=lambda streak: (streak.reason not in REFUSED, streak.last_ms)).reason


def _start_ms(streaks: list[FailureStreak], same_failures: list[FailureStreak], success_ms: int) -> int:
    """The time of the last outcome that was not this failure."""
    other_outcomes_ms = [streak.last_ms for streak in streaks if streak not in same_failures]
    return max([success_ms, *other_outcomes_ms, *(streak.previous_failure_ms for streak in same_failures)])


def _outcomes_since(streak: FailureStreak, start_ms: int) -> tuple[int, int] | None:
    """Number of the outcomes of a streak since a time, and the time of the first; None: there is none."""
    times_ms = [at_ms for at_ms in streak.times_ms if at_ms >= start_ms]
    if not times_ms:
        return None
    if streak.since_ms >= start_ms:
        return streak.count, streak.since_ms
    return len(times_ms), times_ms[0]
