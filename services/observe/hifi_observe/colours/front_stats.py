"""Refusals of the front, minute by minute, from HAProxy's counters. Pure.

HAProxy counts the responses to clients by their class, and the same for what each server answered. The difference is
HAProxy's own: 503 without a server, 504 when a server was too slow, 400 and 408 for requests that it could not read.
"""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

_KEEP_MINUTES: Final = 120
_CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx", "other")
_SERVER: Final = "2"
"""Type of the rows of servers."""


@dataclass(frozen=True, slots=True)
class FrontCounters:
    """Counters of the front since it started.

    Attributes:
        answered: responses to clients.
        failed: responses of the class 5xx that no server sent.
        rejected: responses of the class 4xx that no server sent.
        connection_errors: connections to servers that failed, also where another server answered then.
    """

    answered: int = 0
    failed: int = 0
    rejected: int = 0
    connection_errors: int = 0

    def since(self, earlier: "FrontCounters") -> "FrontCounters":
        """The counts since then; all counts, if the front has started again."""
        if self.answered < earlier.answered:
            return self
        earlier_counts = asdict(earlier)
        return FrontCounters(
            **{name: max(0, value - earlier_counts[name]) for name, value in asdict(self).items()}
        )


def parse_counters(text: str) -> FrontCounters:
    """Counters from the answer to `show stat`, over all proxies that serve HTTP.

    Raises:
        ValueError: it is no such answer.
    """
    rows = list(csv.DictReader(text.lstrip("# \n").splitlines()))
    if not rows or "hrsp_5xx" not in rows[0]:
        raise ValueError("no CSV with the column hrsp_5xx")
    sent_counts: Counter[str] = Counter()
    relayed_counts: Counter[str] = Counter()
    connection_errors = 0
    for row in rows:
        status_counts = {name: int(row[name]) for name in ("hrsp_4xx", "hrsp_5xx") if row.get(name)}
        if row["svname"] == "FRONTEND":
            sent_counts.update(status_counts)
            sent_counts["answered"] += sum(int(row[f"hrsp_{status_class}"] or 0) for status_class in _CLASSES)
        elif row["type"] == _SERVER:
            relayed_counts.update(status_counts)
            connection_errors += int(row["econ"] or 0)
    return FrontCounters(
        sent_counts["answered"],
        max(0, sent_counts["hrsp_5xx"] - relayed_counts["hrsp_5xx"]),
        max(0, sent_counts["hrsp_4xx"] - relayed_counts["hrsp_4xx"]),
        connection_errors,
    )


class FrontMinutes:
    """Adds up what was counted in each minute."""

    def __init__(self) -> None:
        self._previous_counters: FrontCounters | None = None
        self._read_s: float | None = None
        self._minutes: dict[int, Counter[str]] = {}
        self._gaps: dict[int, float] = {}

    def take(self, counters: FrontCounters, now_s: float) -> None:
        """Take in a reading; `now_s` since 1970 UTC."""
        minute = int(now_s // 60)
        if self._read_s is None:
            self._read_s = now_s
        self.miss(now_s)
        if self._previous_counters is not None:
            self._minutes.setdefault(minute, Counter()).update(
                asdict(counters.since(self._previous_counters))
            )
        self._previous_counters, self._read_s = counters, now_s
        for old_minute in [kept_minute for kept_minute in self._gaps if kept_minute < minute - _KEEP_MINUTES]:
            self._minutes.pop(old_minute, None)
            del self._gaps[old_minute]

    def miss(self, now_s: float) -> None:
        """Add the time since the last reading to the gaps of its minutes."""
        if self._read_s is None:
            return
        for minute in range(int(self._read_s // 60), int(now_s // 60) + 1):
            gap_s = min(now_s, (minute + 1) * 60) - max(self._read_s, minute * 60)
            self._gaps[minute] = max(self._gaps.get(minute, 0.0), gap_s)

    def of(self, minute: int) -> dict[str, Any] | None:
        """The counts of a minute, and `gap_s`, the longest time in it without a reading, seconds.

        Returns:
            None: the front was not watched before the minute began, or the minute has not ended.
        """
        if not {minute - 1, minute, minute + 1} <= self._gaps.keys():
            return None
        counter = self._minutes.get(minute, Counter[str]())
        counts = {name: counter[name] for name in FrontCounters.__dataclass_fields__}
        return {**counts, "gap_s": round(self._gaps[minute], 1)}


def sum_of_fronts(fronts: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """A minute of all fronts together: counts are added, and the gap is the shortest of all fronts.

    Args:
        fronts: what `FrontMinutes.of` returns for each of them.

    Returns:
        None: one of them was not watched all the time, or there is none.
    """
    watched_fronts = [front for front in fronts if front is not None]
    if not watched_fronts or len(watched_fronts) < len(fronts):
        return None
    counts = {
        name: sum(front[name] for front in watched_fronts) for name in FrontCounters.__dataclass_fields__
    }
    return {**counts, "gap_s": min(front["gap_s"] for front in watched_fronts)}


def refusals(front: Mapping[str, Any] | None) -> tuple[int, int]:
    """5xx that the front sent itself, and all that it sent itself."""
    return (0, 0) if front is None else (front["failed"], front["failed"] + front["rejected"])
