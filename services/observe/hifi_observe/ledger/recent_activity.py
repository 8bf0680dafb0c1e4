"""What happened just now, for the views that move: records by stage, lags, destinations that keep failing."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi_observe.ledger.breaker_reports import REFUSED, BreakerReports
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import Stage

SAME_ANSWERS: Final = 10
"""Equal failures in a row that make a destination's alarm."""
_DESTINATIONS: Final = 5000
"""Whose breakers are kept; beyond, those seen first are forgotten."""


@dataclass(slots=True)
class FailureStreak:
    """Outcomes of a destination in a row that were the same failure. Times in milliseconds since 1970 UTC.

    Deliveries that were handed over without a request, as the destination had failed before, are of the same streak.
    """

    reason: str
    count: int
    since_ms: int
    last_ms: int
    after_ms: int = 0
    """When another failure came last; 0: none did since a success."""
    times_ms: deque[int] = field(default_factory=lambda: deque(maxlen=SAME_ANSWERS))
    """Of the newest outcomes."""

    def json(self) -> list[Any]:
        """For the topic."""
        return [self.reason, self.count, self.since_ms, self.last_ms, self.after_ms, list(self.times_ms)]


class RecentActivity:
    """Counts since the start, and the lags since they were last taken."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Pipe to kind of stage to records seen."""
        self.newest_ms = 0
        """Append time of the newest record seen, milliseconds since 1970 UTC."""
        self.streaks: dict[tuple[str, str], FailureStreak] = {}
        """Pipe and destination to its run of equal failures."""
        self.successes: dict[tuple[str, str], int] = {}
        """Pipe and destination to append time of its last delivery's receipt, milliseconds since 1970 UTC."""
        self.breakers: dict[tuple[str, str], BreakerReports] = {}
        """Pipe and destination to what its receipts tell of its circuit breakers."""
        self.skipped: Counter[str] = Counter()
        """Topic to offsets that Kafka no longer had when observe came to read them."""
        self.skipped_us = 0
        """When that was last found, microseconds since 1970 UTC."""
        self._lags: defaultdict[str, Sketch] = defaultdict(Sketch)

    def note(self, pipe: str, at: Stage, number: int) -> None:
        """Records were seen."""
        self.counts[pipe][at.kind] += number

    def success(self, pipe: str, destination: str, append_ms: int) -> None:
        """The receipt of a delivery was seen."""
        self.successes[pipe, destination] = append_ms
        self.streaks.pop((pipe, destination), None)

    def outcome(self, pipe: str, at: Stage, reason: str, append_ms: int) -> None:
        """Another receipt was seen; `reason` is the answer's status, or a code where there was no answer."""
        if at.kind in ("filtered", "duplicate"):
            return  # they say nothing of the destination
        key = (pipe, at.destination)
        streak = self.streaks.get(key)
        if streak is None:
            streak = self.streaks[key] = FailureStreak(reason, 0, append_ms, append_ms)
        elif streak.reason in REFUSED:
            streak.reason = reason
        elif reason not in (streak.reason, *REFUSED):
            streak = self.streaks[key] = FailureStreak(reason, 0, append_ms, append_ms, streak.last_ms)
        streak.count += 1
        streak.last_ms = append_ms
        streak.times_ms.append(append_ms)

    def breaker(self, pipe: str, at: Stage, headers: Mapping[str, bytes], append_ms: int) -> None:
        """A receipt may tell how a breaker is."""
        if not at.destination:
            return
        key = (pipe, at.destination)
        one = self.breakers.get(key)
        if one is None:
            if len(self.breakers) >= _DESTINATIONS:
                del self.breakers[next(iter(self.breakers))]
            one = self.breakers[key] = BreakerReports()
        one.tell("retry" if at.kind == "to-retry" else at.kind, headers, append_ms)

    def skip(self, topic: str, number: int, now_us: int) -> None:
        """Kafka no longer had records that were to be read."""
        self.skipped[topic] += number
        self.skipped_us = now_us

    def lags(self, pipe: str, values_us: list[int]) -> None:
        """Deliveries succeeded with these lags from accepted time, microseconds."""
        self._lags[pipe].extend(values_us)

    def take_lags(self) -> dict[str, Sketch]:
        """The lags of each pipe since they were last taken."""
        taken = dict(self._lags)
        self._lags.clear()
        return taken
