"""Merge the partitions' shares of the pipes that this instance owns, and delete what is past its retention. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES, DOWN, UNKNOWN, UP, IngestHealth, SloLimits
from hifi_observe.minutes.merged_minute import load_part, merge
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.usage import with_deleted

Records = list[tuple[bytes, dict[str, Any] | None]]
_BACK = 1440
"""Minutes that a new owner goes back to merge what was not merged yet."""


class MinuteMerger:
    """Decides which records to write for a pipe."""

    def __init__(
        self,
        store: MinuteStore,
        partitions: int,
        limits: Callable[[str], SloLimits | None],
        first_minute: Callable[[str], int],
        *,
        keep_h: float,
        amend_s: float,
        keep_lags: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up.

        Args:
            store: the topic `minutes`.
            partitions: of the stream.
            limits: returns the SLO limits of a pipe; None: the pipe was deleted.
            first_minute: returns the minute before which a pipe has no minutes, unless events are counted in them.
            keep_h: how long minutes are kept, hours.
            amend_s: how long minutes are amended, seconds.
            keep_lags: whether minutes keep their distribution of lags, for a stream with two colours.
        """
        self._store = store
        self._partitions = partitions
        self._limits = limits
        self._first_minute = first_minute
        self._keep = int(keep_h * 60)
        self._amend = int(amend_s // 60) + 10
        self._keep_lags = keep_lags
        self._merged_to: dict[str, int] = {}

    def owned(self, pipes: Iterable[str], mine: set[int]) -> list[str]:
        """The pipes that belong to partition numbers of this instance."""
        return [pipe for pipe in pipes if record_keys.partition_of(pipe, self._partitions) in mine]

    def merge(self, pipe: str) -> Records:
        """Records to write for the minutes of a pipe that were closed or amended."""
        closed, changed = self._store.closed_minute(self._partitions), self._store.changed[pipe]
        if not changed and self._merged_to.get(pipe) == closed:
            return []
        promised = self._limits(pipe)
        limits = promised or SloLimits(2**62, 2**62)
        due = {minute for minute in changed if minute <= closed}
        if closed >= 0 and promised is not None:
            merged_minutes = self._store.minutes.get(pipe, {})
            last = self._merged_to.get(pipe, max(merged_minutes, default=closed - 1))
            first = max(last + 1, closed - _BACK, self._first_minute(pipe))
            due.update(minute for minute in range(first, closed + 1) if minute not in merged_minutes)
            self._merged_to[pipe] = closed
        records: Records = []
        moved: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for minute in sorted(due):
            # Minutes past their retention are neither merged nor counted again.
            merged = self._merged(pipe, minute, limits) if minute >= closed - self._keep else None
            if merged is not None:
                records.append((record_keys.minute(pipe, minute), merged))
                before = self._store.states[pipe].get(minute)
                moved[minute // DAY_MINUTES][merged["state"]] += 1
                if before is not None:
                    moved[minute // DAY_MINUTES][before] -= 1
                self._store.take(record_keys.minute(pipe, minute), orjson.dumps(merged))
            changed.discard(minute)
        for number, states in sorted(moved.items()):
            records.append(
                (record_keys.day(pipe, number), self._day(pipe, number, states, closed - self._keep))
            )
        return records + self._old(pipe, closed)

    def _merged(self, pipe: str, minute: int, limits: SloLimits) -> dict[str, Any] | None:
        parts = [load_part(orjson.loads(value)) for value in self._store.parts[pipe].get(minute, {}).values()]
        before = self._store.minute(pipe, minute)
        if before is not None and max((part.at_us for part in parts), default=0) <= before["at_us"]:
            return None
        intake = self._store.intake(pipe, minute)
        if before is not None:
            # Markers cover the minutes that closed last: of those before a restart only the merged minute knows.
            intake = intake.worst(IngestHealth(**before.get("intake", {})))
        return merge(pipe, minute, parts, limits, intake, keep_lags=self._keep_lags())

    def _day(self, pipe: str, number: int, moved: Counter[str], oldest: int) -> dict[str, int]:
        """Minutes of a day by state; if its first minutes were deleted, the last known counts plus changes since."""
        counted_before = self._store.days[pipe].get(number)
        if counted_before is not None and number * DAY_MINUTES < oldest:
            by_state = {state: max(0, count + moved[state]) for state, count in counted_before.items()}
        else:
            states = self._store.states[pipe]
            day = range(number * DAY_MINUTES, (number + 1) * DAY_MINUTES)
            counted = Counter(states[minute] for minute in day if minute in states)
            by_state = {state: counted[state] for state in (UP, DOWN, UNKNOWN)}
        self._store.days[pipe][number] = by_state
        return by_state

    def _old(self, pipe: str, closed: int) -> Records:
        """Deletions of minutes and shares past their retention, after the usage of the minutes."""
        deletions: Records = []
        if closed < 0:
            return deletions
        past = [minute for minute in self._store.minutes.get(pipe, {}) if minute < closed - self._keep]
        days = with_deleted(past, self._store.usage[pipe], self._store.usage_days[pipe])
        for day, deleted in days.items():
            deletions.append((record_keys.usage(pipe, day), deleted.dump()))
            self._store.usage_days[pipe][day] = deleted
        for minute in past:
            deletions.append((record_keys.minute(pipe, minute), None))
            self._store.take(record_keys.minute(pipe, minute), None)
        for minute in [minute for minute in self._store.parts[pipe] if minute < closed - self._amend]:
            for partition, value in list(self._store.parts[pipe][minute].items()):
                if minute < closed - self._keep or not orjson.loads(value)["pipe_minute"]["unresolved"]:
                    deletions.append((record_keys.part(pipe, minute, partition), None))
                    self._store.take(record_keys.part(pipe, minute, partition), None)
        return deletions
