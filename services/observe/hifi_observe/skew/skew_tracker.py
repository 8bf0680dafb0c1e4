"""Keep the comparison of every pipe's watched fields up to date, minute by minute. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from hifi.pipe.watched_field import WatchedField
from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.owner_conditions import SKEW
from hifi_observe.ledger.watch_counts import WatchCounts
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.skew.comparison import DRIFTED, FieldSkew, SkewRules, compare

_PIPES_A_STEP: Final = 2
"""Pipes that are compared in one step, the longest-waiting first."""


class SkewTracker:
    """The newest comparison of every watched field."""

    def __init__(self, store: MinuteStore, rules: SkewRules) -> None:
        self._store = store
        self._rules = rules
        self._skews: dict[str, list[FieldSkew]] = {}
        self._compared_at: dict[str, tuple[int, Sequence[WatchedField]]] = {}

    def of(self, pipe: str) -> list[FieldSkew]:
        """The watched fields of a pipe, in declared order; empty: it watches none, or no minute has closed."""
        return self._skews.get(pipe, [])

    def step(self, watched_fields: Mapping[str, Sequence[WatchedField]]) -> dict[Key, str]:
        """Compare pipes for which a minute has closed or that watch other fields; return what has drifted.

        Args:
            watched_fields: pipe to its watched fields; pipes that watch none are left out.
        """
        for pipe in self._skews.keys() - watched_fields.keys():
            del self._skews[pipe], self._compared_at[pipe]
        due_pipes = [
            pipe
            for pipe, watch in watched_fields.items()
            if self._compared_at.get(pipe) != (self._newest_minute(pipe), watch)
        ]
        # A comparison over a day takes some hundredths of a second, so that many at once would hold up other tasks.
        for pipe in sorted(due_pipes, key=lambda pipe: self._compared_at.get(pipe, (-1,))[0])[:_PIPES_A_STEP]:
            self._compare(pipe, watched_fields[pipe])
        return {
            (SKEW, pipe, skew.field): self._cause(skew)
            for pipe, skews in self._skews.items()
            for skew in skews
            if skew.state == DRIFTED
        }

    def _newest_minute(self, pipe: str) -> int:
        """The newest minute of a pipe that is closed; -1: none."""
        return max(self._store.minutes.get(pipe, ()), default=-1)

    def _compare(self, pipe: str, watch: Sequence[WatchedField]) -> None:
        last_minute = self._newest_minute(pipe)
        if last_minute < 0:
            return
        first_minute = last_minute - self._rules.window_minutes - self._rules.reference_minutes
        minutes = {
            minute: WatchCounts.load(orjson.loads(counts))
            for minute, counts in self._store.watched.get(pipe, {}).items()
            if first_minute < minute <= last_minute
        }
        drifted = {skew.field for skew in self.of(pipe) if skew.state == DRIFTED}
        self._skews[pipe] = compare(watch, minutes, last_minute, self._rules, drifted)
        self._compared_at[pipe] = last_minute, watch

    def _cause(self, skew: FieldSkew) -> str:
        """The cause for a notice: figures only, no values, because a notice quotes no data of events."""
        return (
            f"the distribution of {skew.field} over {self._rules.window_minutes} minutes "
            f"({sum(skew.window):,} events) has a distance of {skew.distance or 0:.2f} from that of the "
            f"{sum(skew.reference):,} events before, where {self._rules.distance:g} is a drift"
        )
