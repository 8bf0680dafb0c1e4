"""Events accepted with each write key, by day: counted by each process of ingest, and shared over a compacted topic.

A record has the running totals of one process, so writing or reading it again changes nothing. The figure of a key and
a day is the sum over the processes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from hifi.record.record import Record
from hifi.record.typed_body import LARGEST

_DAY_MINUTES: Final = 1440
_KEPT_DAYS: Final = 2
"""Days before the newest whose totals a process keeps; events of a day arrive within minutes of its end."""


class KeyDay(NamedTuple):
    """A day of a write key in a pipe."""

    pipe: str
    key: str
    """Id of the key (`hifi.pipe.issued_key.key_id`)."""
    day: int
    """Days since 1970 UTC."""


class AcceptedTotal(NamedTuple):
    """Events that ingest acknowledged, and the size of their data."""

    events: int = 0
    bytes: int = 0

    def plus(self, total: "AcceptedTotal") -> "AcceptedTotal":
        """Both together."""
        return AcceptedTotal(self.events + total.events, self.bytes + total.bytes)


class _RunningTotal:
    """A total that grows with each request."""

    __slots__ = ("bytes", "events", "key_day")

    def __init__(self, key_day: KeyDay) -> None:
        self.key_day = key_day
        self.events = self.bytes = 0


class KeyUsageCounts:
    """The totals of one process. Pure.

    Args:
        process: a name that no other process has or had.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._totals: dict[tuple[str, str, int], _RunningTotal] = {}
        """As `KeyDay` to totals, but a plain tuple is made in a fraction of the time."""
        self._changed: set[_RunningTotal] = set()

    def add(self, pipe: str, key: str, minutes: Sequence[int], records: Sequence[Record]) -> None:
        """Count records that Kafka acknowledged.

        Args:
            pipe: of the records.
            key: id of the write key.
            minutes: that the records count in, minutes since 1970 UTC.
            records: of `raw`, in the same order.
        """
        if len(records) == 1:  # the usual request; what follows would take three times as long
            self._count(pipe, key, minutes[0] // _DAY_MINUTES, 1, len(records[0].value or b""))
            return
        sizes_by_day: defaultdict[int, list[int]] = defaultdict(list)
        for minute, record in zip(minutes, records, strict=True):
            sizes_by_day[minute // _DAY_MINUTES].append(len(record.value or b""))
        for day, sizes in sizes_by_day.items():
            self._count(pipe, key, day, len(sizes), sum(sizes))

    def _count(self, pipe: str, key: str, day: int, events: int, size: int) -> None:
        key_day = pipe, key, day
        total = self._totals.get(key_day)
        if total is None:
            total = self._totals[key_day] = _RunningTotal(KeyDay(*key_day))
        total.events += events
        total.bytes += size
        self._changed.add(total)

    def take(self) -> dict[KeyDay, AcceptedTotal]:
        """Totals that changed since the last call; give them to `restore` if they cannot be written."""
        changed_totals, self._changed = self._changed, set()
        totals = {total.key_day: AcceptedTotal(total.events, total.bytes) for total in changed_totals}
        oldest = max((day for _, _, day in self._totals), default=0) - _KEPT_DAYS
        for key_day, total in list(self._totals.items()):
            if key_day[2] < oldest and total not in changed_totals:
                del self._totals[key_day]
        return totals

    def restore(self, totals: Mapping[KeyDay, AcceptedTotal]) -> None:
        """Return totals from `take` that were not written; newer ones replace them."""
        self._changed.update(self._totals[key_day] for key_day in totals)

    def records(self, totals: Mapping[KeyDay, AcceptedTotal]) -> list[Record]:
        """The records of totals from `take`."""
        return [
            Record(
                f"{key_day.pipe}/{key_day.key}/{key_day.day}/{self._process}".encode(),
                orjson.dumps(accepted._asdict()),
                [],
            )
            for key_day, accepted in totals.items()
        ]


class KeyUsage:
    """The totals of all processes, as the topic has them. Pure."""

    def __init__(self) -> None:
        self._totals_by_process: defaultdict[KeyDay, dict[str, AcceptedTotal]] = defaultdict(dict)

    def take(self, key: bytes | None, value: bytes | None, _: int = 0) -> None:
        """Take in a record of the topic.

        Raises:
            ValueError: it is not one.
        """
        try:
            pipe, key_id, day, process = (key or b"").decode().split("/")
            key_day = KeyDay(pipe, key_id, int(day))
            fields = orjson.loads(value or b"")
            total = AcceptedTotal(int(fields["events"]), int(fields["bytes"]))
            if not 0 <= min(total) <= max(total) < LARGEST:
                raise ValueError(f"{total} is no total")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the record of a key's usage: {error}") from None
        totals = self._totals_by_process[key_day]
        totals[process] = max(total, totals.get(process, total))  # totals only grow

    def between(self, first_day: int, last_day: int) -> dict[KeyDay, AcceptedTotal]:
        """The days from `first_day` to `last_day`, both included, of all keys."""
        return {
            key_day: AcceptedTotal(
                sum(total.events for total in totals.values()),
                sum(total.bytes for total in totals.values()),
            )
            for key_day, totals in self._totals_by_process.items()
            if first_day <= key_day.day <= last_day
        }
