"""Keeps the comparison of every pipe's watched fields up to date, minute by minute. Pure."""

from collections.abc import Mapping, Sequence

from hifi.pipe.watch.watched_field import WatchedField
from hifi_observe.alarms.alarm import Key
from hifi_observe.alarms.owner_conditions import SKEW
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.skew.comparison import DRIFTED, FieldSkew, SkewRules, compare


class SkewKeeper:
    """The newest comparison of every watched field."""

    def __init__(self, store: MinuteStore, rules: SkewRules) -> None:
        self._store = store
        self._rules = rules
        self._skews: dict[str, list[FieldSkew]] = {}
        self._compared_at: dict[str, tuple[int, Sequence[WatchedField]]] = {}

    def of(self, pipe: str) -> list[FieldSkew]:
        """The watched fields of a pipe, in declared order; empty: it watches none, or no minute has closed."""
        return self._skews.get(pipe, [])

    def step(self, watched: Mapping[str, Sequence[WatchedField]]) -> dict[Key, str]:
        """Compare the pipes for which a minute has closed or that watch other fields; return what has drifted.

        Args:
            watched: pipe to its watched fields; pipes that watch none are left out.
        """
        for pipe in self._skews.keys() - watched.keys():
            del self._skews[pipe], self._compared_at[pipe]
        for pipe, watch in watched.items():
            last = max(self._store.minutes.get(pipe, ()), default=None)
            if last is not None and self._compared_at.get(pipe) != (last, watch):
                drifted = {one.field for one in self.of(pipe) if one.state == DRIFTED}
                minutes = self._store.watched.get(pipe, {})
                self._skews[pipe] = compare(watch, minutes, last, self._rules, drifted)
                self._compared_at[pipe] = last, watch
        return {
            (SKEW, pipe, one.field): self._cause(one)
            for pipe, skews in self._skews.items()
            for one in skews
            if one.state == DRIFTED
        }

    def _cause(self, skew: FieldSkew) -> str:
        """What is told: figures only, no values, because a notice quotes no data of events."""
        return (
            f"the distribution of {skew.field} over {self._rules.window_minutes} minutes "
            f"({sum(skew.window):,} events) has a distance of {skew.distance or 0:.2f} from that of the "
            f"{sum(skew.reference):,} events before, where {self._rules.distance:g} is a drift"
        )
