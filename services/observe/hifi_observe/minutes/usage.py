"""Usage of pipes by day: events, their bytes and deliveries, added up from closed minutes. Pure.

A day's figure is what the record of the day has of minutes that are deleted, and the minutes that are kept. The record
names the last minute that it has, and is written before that minute is deleted, so a minute counts exactly once
wherever its owner was killed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hifi_observe.minutes.day_record import day_of


class Usage(NamedTuple):
    """Figures by which the use of a pipe may be charged."""

    events: int = 0
    """Accepted events, each once."""
    bytes: int = 0
    """Size of their data as it is in `raw`."""
    deliveries: int = 0
    """Deliveries that a destination acknowledged, each once; also those of replayed dead letters."""

    def plus(self, usage: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(self.events + usage.events, self.bytes + usage.bytes, self.deliveries + usage.deliveries)


NO_USAGE = Usage()


class DeletedMinutes(NamedTuple):
    """The usage of the minutes of a day that are deleted, up to and including the minute `through`."""

    through: int
    usage: Usage

    def dump(self) -> dict[str, int]:
        """JSON for the topic `minutes`."""
        return {"through": self.through, **self.usage._asdict()}

    @classmethod
    def load(cls, dump: Mapping[str, int]) -> "DeletedMinutes":
        """Restore what `dump` returned."""
        return cls(dump["through"], Usage(dump["events"], dump["bytes"], dump["deliveries"]))


def of_minute(merged: Mapping[str, Any]) -> Usage:
    """The usage of a merged minute."""
    deliveries = sum(row["delivered"] + row["replayed"] for row in merged.get("destinations", ()))
    return Usage(merged.get("in", 0), merged.get("bytes", 0), deliveries)


def with_deleted(
    minutes: Iterable[int], usage_by_minute: Mapping[int, Usage], days: Mapping[int, DeletedMinutes]
) -> dict[int, DeletedMinutes]:
    """Days to their new records, to write before minutes are deleted.

    Args:
        minutes: to delete.
        usage_by_minute: minute to its usage, where there is any.
        days: the records of the pipe.
    """
    changed_days: dict[int, DeletedMinutes] = {}
    for minute in sorted(minutes):
        usage, day = usage_by_minute.get(minute, NO_USAGE), day_of(minute)
        deleted_minutes = changed_days.get(day) or days.get(day) or DeletedMinutes(-1, NO_USAGE)
        if usage != NO_USAGE and minute > deleted_minutes.through:
            changed_days[day] = DeletedMinutes(minute, deleted_minutes.usage.plus(usage))
    return changed_days


def by_day(
    first_day: int, last_day: int, usage_by_minute: Mapping[int, Usage], days: Mapping[int, DeletedMinutes]
) -> dict[int, Usage]:
    """The days from `first_day` to `last_day` that have any usage.

    Args:
        first_day: days since 1970 UTC.
        last_day: the same, included.
        usage_by_minute: minute to its usage, where there is any.
        days: the records of the pipe.
    """
    usages: defaultdict[int, Usage] = defaultdict(Usage)
    for day, deleted in days.items():
        if first_day <= day <= last_day:
            usages[day] = deleted.usage
    for minute, usage in usage_by_minute.items():
        day = day_of(minute)
        if first_day <= day <= last_day and (day not in days or minute > days[day].through):
            usages[day] = usages[day].plus(usage)
    return dict(usages)
