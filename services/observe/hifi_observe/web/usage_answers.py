"""Usage by pipe, write key and day, for those who must bill."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Final

from typing_extensions import TypedDict

from hifi.kafka.key_usage import AcceptedTotal
from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem
from hifi_observe.kafka.key_usage_follower import KeyUsageFollower
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.usage import NO_USAGE, Usage, by_day

_EPOCH: Final = date(1970, 1, 1)
_DAY_US: Final = DAY_MINUTES * 60_000_000
_DEFAULT_DAYS: Final = 31


class KeyUsageJson(TypedDict):
    """Events and bytes that were accepted with a write key."""

    key: str
    """Its id, as `hifi keys list` shows it."""
    events: int
    bytes: int


class DayUsage(TypedDict):
    """The usage of a pipe on a day (UTC)."""

    day: str
    pipe: str
    events: int
    bytes: int
    deliveries: int
    state: str
    """`open`: not all of its minutes are closed; `closed`; `final`: it does not change any more."""
    keys: list[KeyUsageJson]


class UsageList(TypedDict):
    """Usage from a day to another one."""

    usage: list[DayUsage]


class UsageAnswers:
    """Answers about usage.

    Args:
        store: has the minutes and days.
        partitions: of the stream.
        keys: what was accepted with each write key.
        keep_h: how long minutes are kept, hours.
    """

    def __init__(
        self, store: MinuteStore, partitions: ObservedPartitions, keys: KeyUsageFollower, keep_h: float
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._keys = keys
        self._keep_minutes = int(keep_h * 60)

    def rows(
        self, first_text: str | None, last_text: str | None, pipe: str | None, may_see: Callable[[str], bool]
    ) -> UsageList:
        """The usage of the pipes that somebody sees, by day and pipe.

        Args:
            first_text: day such as `2026-11-27`; None: 31 days before now.
            last_text: the same, included; None: today.
            pipe: only this one; None: all.
            may_see: whether a pipe may be shown.

        Raises:
            Problem: 400, a day cannot be parsed; 503, the usage by key was not read yet.
        """
        if not self._keys.read:
            raise Problem(503, "The usage of write keys has not been read from Kafka yet.")
        today = now_us() // _DAY_US
        first_day = _day(first_text, today - _DEFAULT_DAYS + 1)
        last_day = _day(last_text, today)
        keys: defaultdict[tuple[int, str], dict[str, AcceptedTotal]] = defaultdict(dict)
        for (name, key, day), accepted in self._keys.usage.between(first_day, last_day).items():
            keys[day, name][key] = accepted
        usages = {
            (day, name): usage
            for name in {*self._store.usage, *self._store.usage_days}
            for day, usage in by_day(
                first_day,
                last_day,
                self._store.usage.get(name, {}),
                self._store.usage_days.get(name, {}),
            ).items()
        }
        return {
            "usage": [
                self._row(day, name, usages.get((day, name), NO_USAGE), keys.get((day, name), {}))
                for day, name in sorted(usages.keys() | keys.keys())
                if may_see(name) and pipe in (None, name)
            ]
        }

    def _row(self, day: int, pipe: str, usage: Usage, keys: Mapping[str, AcceptedTotal]) -> DayUsage:
        return {
            "day": str(_EPOCH + timedelta(day)),
            "pipe": pipe,
            "events": usage.events,
            "bytes": usage.bytes,
            "deliveries": usage.deliveries,
            "state": self._state(day),
            "keys": [
                {"key": key, "events": accepted.events, "bytes": accepted.bytes}
                for key, accepted in sorted(keys.items())
            ],
        }

    def _state(self, day: int) -> str:
        closed_minute, last_minute = (
            self._store.closed_minute(self._partitions.count),
            (day + 1) * DAY_MINUTES - 1,
        )
        if closed_minute < last_minute:
            return "open"
        return "final" if last_minute < closed_minute - self._keep_minutes else "closed"


def _day(text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        return (date.fromisoformat(text) - _EPOCH).days
    except ValueError:
        raise Problem(400, f"{text!r} is not a day such as 2026-11-27", title="Invalid day") from None
