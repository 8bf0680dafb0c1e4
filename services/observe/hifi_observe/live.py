"""What happened just now, for the views that move: records by stage, lags, destinations that keep failing."""

from collections import Counter, defaultdict
from dataclasses import dataclass

from hifi_observe.sketch import Sketch
from hifi_observe.stage import Stage


@dataclass(slots=True)
class Streak:
    """Outcomes of a destination in a row that were the same failure."""

    reason: str
    count: int
    since_ms: int
    last_ms: int


class Live:
    """Counts since the start, and the lags since they were last taken."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """Pipe to kind of stage to records seen."""
        self.newest_ms = 0
        """Append time of the newest record seen, milliseconds since 1970 UTC."""
        self.streaks: dict[tuple[str, str], Streak] = {}
        """Pipe and destination to its run of equal failures."""
        self.successes: dict[tuple[str, str], int] = {}
        """Pipe and destination to append time of its last delivery's receipt, milliseconds since 1970 UTC."""
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
        key = (pipe, at.who)
        if at.kind in ("filtered", "duplicate"):
            self.streaks.pop(key, None)
            return
        streak = self.streaks.get(key)
        if streak is None or streak.reason != reason:
            self.streaks[key] = Streak(reason, 1, append_ms, append_ms)
        else:
            streak.count += 1
            streak.last_ms = append_ms

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
