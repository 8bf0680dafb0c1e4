"""Merge the partitions' shares of the pipes that this instance owns, and delete what is past its retention. Pure."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES, WEEK_MINUTES, IngestHealth, SloLimits
from hifi_observe.minutes.day_record import COUNTS, KEPT_DAYS, DayRecord, day_of
from hifi_observe.minutes.merged_minute import MinuteShare, may_end, merge, read_share
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import NamedIds
from hifi_observe.minutes.terms import with_term
from hifi_observe.minutes.usage import with_deleted

Records = list[tuple[bytes, dict[str, Any] | None]]
_BACK = WEEK_MINUTES
"""Minutes that a new owner goes back to merge what was not merged yet: Kafka keeps ack reports for a week."""
_AT_ONCE = DAY_MINUTES
"""Minutes of a gap that are merged at once, so that other pipes have their turn."""
_FORGOTTEN = 60
"""Minutes within which a ledger has written that it follows a minute no more."""
_RULES = ClosingRules()


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
        rules: ClosingRules = _RULES,
        owners: Callable[[str], tuple[str, ...] | None] = lambda _: None,
        term: Callable[[str], int] = lambda _: 0,
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
            rules: for how long ledgers follow unresolved events, and so need the shares after a restart.
            owners: returns by which the owner of a pipe is named; None: the pipe was deleted.
            term: returns the term (`hifi_observe.minutes.terms`) in which this instance owns a pipe; 0: none.
        """
        self._store = store
        self._partitions = partitions
        self._limits = limits
        self._first_minute = first_minute
        self._keep_minutes = int(keep_h * 60)
        self._amend_minutes = int(amend_s // 60) + 10
        self._keep_lags = keep_lags
        self._merged_to: dict[str, int] = {}
        self._merged_of: defaultdict[str, dict[int, dict[int, int]]] = defaultdict(dict)
        """Pipe and minute to partition and time of the shares that it was merged of: clocks of observers differ."""
        self._undeclared: set[str] = set()
        self._gaps: dict[str, int] = {}
        """Pipe to the minute from which on a gap is still to be merged."""
        self._rules = rules
        self._owners = owners
        self._term = term
        self.unreadable: dict[bytes, str] = {}
        """Key of a record that should be a share and is none, to why; the publication logs and removes it."""
        self.unmerged: dict[int, str] = {}
        """Minutes of the pipe merged last that failed and are tried again, to why; the publication removes them."""
        self._followed: dict[bytes, tuple[bytes, int]] = {}
        """Key of an old share to its value, and for how many minutes its events are followed."""

    def owned(self, pipes: Iterable[str], own_numbers: set[int]) -> list[str]:
        """The pipes that belong to partition numbers of this instance."""
        return [pipe for pipe in pipes if record_keys.partition_of(pipe, self._partitions) in own_numbers]

    def merge(self, pipe: str) -> Records:
        """Records to write for the minutes of a pipe that were closed or amended."""
        closed_minute, changed_minutes = (
            self._store.closed_minute(self._partitions),
            self._store.changed[pipe],
        )
        if not changed_minutes and self._merged_to.get(pipe) == closed_minute and pipe not in self._gaps:
            return []
        declared_limits = self._limits(pipe)
        if declared_limits is None:
            self._undeclared.add(pipe)
            self._gaps.pop(pipe, None)
        elif pipe in self._undeclared:
            self._undeclared.discard(pipe)
            self._merged_to[pipe] = closed_minute - 1  # it has no minutes while it was not declared
        limits = declared_limits or SloLimits(2**62, 2**62)
        # Minutes past their retention are neither merged nor counted again.
        due_minutes = {
            minute
            for minute in changed_minutes
            if closed_minute - self._keep_minutes <= minute <= closed_minute
        }
        changed_minutes.difference_update(
            [minute for minute in changed_minutes if minute < closed_minute - self._keep_minutes]
        )
        if closed_minute >= 0:
            if declared_limits is not None:
                due_minutes.update(self._unmerged(pipe, closed_minute))
            self._merged_to[pipe] = closed_minute
        records: Records = []
        added_counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        changed_days: defaultdict[int, list[int]] = defaultdict(list)
        for minute in sorted(due_minutes):
            merged, ids_records = self._merged_with_ids(pipe, minute, limits)
            if merged is not None:
                records.append((record_keys.minute(pipe, minute), merged))
                records += ids_records
                previous_counts = self._store.counts[pipe].get(minute, (0,) * len(COUNTS))
                for name, count in zip(COUNTS, previous_counts, strict=True):
                    added_counts[day_of(minute)][name] += merged[name] - count
                changed_days[day_of(minute)].append(minute)
                self._store.take(record_keys.minute(pipe, minute), orjson.dumps(merged))
            changed_minutes.difference_update({minute} - self.unmerged.keys())
        for number, minutes in sorted(changed_days.items()):
            day = self._day(pipe, number, minutes, added_counts[number], closed_minute)
            records.append((record_keys.day(pipe, number), day.dump()))
        return records + self._deletions(pipe, closed_minute)

    def _merged_with_ids(
        self, pipe: str, minute: int, limits: SloLimits
    ) -> tuple[dict[str, Any] | None, Records]:
        """A minute and the record of its ids, as `_merged`; if it fails it is tried again the next time."""
        try:
            merged = self._merged(pipe, minute, limits)
            return merged, [] if merged is None else self._ids(pipe, minute, merged)
        except Exception as error:  # noqa: BLE001 - one minute keeps no other one waiting
            self._merged_of[pipe].pop(minute, None)  # else the next attempt takes it for merged
            self.unmerged[minute] = repr(error)
            self._store.changed[pipe].add(minute)
            return None, []

    def _unmerged(self, pipe: str, closed_minute: int) -> list[int]:
        """The minutes since the last one that was merged, at most `_AT_ONCE`; later ones are left for the next time."""
        merged_minutes = self._store.minutes.get(pipe, {})
        first_minute = self._gaps.pop(pipe, None)
        if first_minute is None:
            last_minute = self._merged_to.get(pipe, max([*merged_minutes, self._last_recorded(pipe)]))
            first_minute = max(
                last_minute + 1 if last_minute >= 0 else closed_minute,
                closed_minute - _BACK,
                self._first_minute(pipe),
            )
        end_minute = min(first_minute + _AT_ONCE, closed_minute + 1)
        if end_minute <= closed_minute:
            self._gaps[pipe] = end_minute
        return [minute for minute in range(first_minute, end_minute) if minute not in merged_minutes]

    def _last_recorded(self, pipe: str) -> int:
        """The newest minute in the days of a pipe; -1: they have none."""
        days = self._store.days.get(pipe, {})
        return max(
            (day * DAY_MINUTES + record.spans[-1].end - 1 for day, record in days.items() if record.spans),
            default=-1,
        )

    def _merged(self, pipe: str, minute: int, limits: SloLimits) -> dict[str, Any] | None:
        shares = self._shares(pipe, minute)
        previous_minute = self._store.minute(pipe, minute)
        merged_of = self._merged_of[pipe]
        shares_of = {share.partition: share.at_us for share in shares}
        intake = self._store.intake(pipe, minute)
        if previous_minute is not None:
            known_intake = IngestHealth.of(previous_minute.get("intake", {}))
            if minute not in self._store.retold:
                # Markers cover the minutes that closed last: of those before a restart only the merged minute knows.
                intake = intake.worst(known_intake)
            if not shares and previous_minute.get("offsets"):
                return None  # its events cannot be merged again
            is_merged = _is_merged_of(shares_of, merged_of.get(minute), previous_minute)
            if is_merged and (minute not in self._store.retold or intake == known_intake):
                return None
        merged_of[minute] = shares_of
        if len(merged_of) > self._amend_minutes:
            del merged_of[min(merged_of)]
        merged = merge(pipe, minute, shares, limits, intake, keep_lags=self._keep_lags())
        shares_at_us = {str(partition): at_us for partition, at_us in shares_of.items()}
        return with_term(self._term(pipe), merged | {"shares_at_us": shares_at_us})

    def _shares(self, pipe: str, minute: int) -> list[MinuteShare]:
        """The shares of a minute, without what another program wrote in the place of one."""
        shares = []
        for partition, value in self._store.parts[pipe].get(minute, {}).items():
            try:
                shares.append(read_share(value))
            except ValueError as error:
                self.unreadable[record_keys.part(pipe, minute, partition)] = str(error)
        return shares

    def _ids(self, pipe: str, minute: int, merged: Mapping[str, Any]) -> Records:
        """Store the ids of lost and late events, and return their record; names that were known stay."""
        previous_ids = self._store.ids[pipe].get(minute)
        ids = NamedIds.of(merged, NamedIds.load(orjson.loads(previous_ids)).names if previous_ids else {})
        key, ids_json = record_keys.ids(pipe, minute), ids.dump() if ids else None
        if ids_json is None and previous_ids is None:
            return []
        self._store.take(key, orjson.dumps(ids_json) if ids_json else None)
        return [(key, ids_json)]

    def _day(
        self,
        pipe: str,
        number: int,
        changed_minutes: Iterable[int],
        added_counts: Mapping[str, int],
        closed_minute: int,
    ) -> DayRecord:
        """A day with changed minutes; if its first minutes were deleted, `added_counts` is added to its last counts."""
        store, first_minute = self._store, number * DAY_MINUTES
        previous_day = store.days[pipe].get(number)
        minutes = set(changed_minutes)
        if previous_day is not None and first_minute < closed_minute - self._keep_minutes:
            counts = {name: max(0, previous_day.counts.get(name, 0) + added_counts[name]) for name in COUNTS}
        else:
            # All minutes are counted again: the last record of the day may not have reached Kafka.
            minute_counts = store.counts[pipe]
            minutes.update(
                minute
                for minute in range(first_minute, first_minute + DAY_MINUTES)
                if minute in minute_counts
            )
            counts = {
                name: sum(minute_counts[minute][index] for minute in minutes)
                for index, name in enumerate(COUNTS)
            }
        states = [(minute - first_minute, store.state(pipe, minute)) for minute in minutes]
        day, owners = (previous_day or DayRecord()).updated(states, counts), self._owners(pipe)
        if previous_day is None and number < day_of(closed_minute):  # the owner may be another one since
            owners = self._earlier_owners(pipe, number) or owners
        if owners is not None and (previous_day is None or number >= day_of(closed_minute)):
            day = day.of_owners(owners)
        store.days[pipe][number] = day
        return day

    def _earlier_owners(self, pipe: str, number: int) -> tuple[str, ...] | None:
        """By which the owner of a pipe was named on the last day before this one that has a record; None: not known."""
        days = self._store.days[pipe]
        earlier_day = max((recorded for recorded in days if recorded < number), default=None)
        return None if earlier_day is None else days[earlier_day].owners

    def _deletions(self, pipe: str, closed_minute: int) -> Records:
        """Deletions of minutes, shares, days and ids past their retention, after the usage of the minutes."""
        deletions: Records = []
        if closed_minute < 0:
            return deletions
        expired_minutes = [
            minute
            for minute in self._store.minutes.get(pipe, {})
            if minute < closed_minute - self._keep_minutes
        ]
        days = with_deleted(expired_minutes, self._store.usage[pipe], self._store.usage_days[pipe])
        for day, deleted_minutes in days.items():
            deletions.append((record_keys.usage(pipe, day), deleted_minutes.dump()))
            self._store.usage_days[pipe][day] = deleted_minutes
        for minute in expired_minutes:
            deletions.append((record_keys.minute(pipe, minute), None))
            self._store.take(record_keys.minute(pipe, minute), None)
        for minute in [
            minute for minute in self._store.parts[pipe] if minute < closed_minute - self._amend_minutes
        ]:
            for key in self._old_shares(pipe, minute, closed_minute - minute):
                deletions.append((key, None))
                self._store.take(key, None)
                self._followed.pop(key, None)
        oldest_day = day_of(closed_minute) - KEPT_DAYS
        old_keys = [
            *(record_keys.day(pipe, day) for day in self._store.days.get(pipe, {}) if day < oldest_day),
            *(
                record_keys.usage(pipe, day)
                for day in self._store.usage_days.get(pipe, {})
                if day < oldest_day
            ),
            *(
                record_keys.ids(pipe, minute)
                for minute in self._store.ids.get(pipe, {})
                if day_of(minute) < oldest_day
            ),
            *(
                record_keys.colours_day(pipe, day)
                for day in self._store.colours_days.get(pipe, {})
                if day < oldest_day
            ),
            *(
                record_keys.colours_ids(pipe, minute)
                for minute in self._store.colours_ids.get(pipe, {})
                if day_of(minute) < oldest_day
            ),
        ]
        for key in old_keys:
            deletions.append((key, None))
            self._store.take(key, None)
        return deletions

    def _old_shares(self, pipe: str, minute: int, age_minutes: int) -> list[bytes]:
        """Keys of the shares of a minute that nobody needs any more.

        While the minute may be amended it is merged of all its shares, so they go together.

        Args:
            pipe: its name.
            minute: minutes since 1970 UTC.
            age_minutes: of the minute, minutes.
        """
        shares = {
            record_keys.part(pipe, minute, partition): value
            for partition, value in self._store.parts[pipe][minute].items()
        }
        old_keys = [key for key, value in shares.items() if self._followed_minutes(key, value) < age_minutes]
        return old_keys if age_minutes > self._keep_minutes or len(old_keys) == len(shares) else []

    def _followed_minutes(self, key: bytes, value: bytes) -> int:
        """For how many minutes the events of a share are followed; 0: all are resolved."""
        previous_entry = self._followed.get(key)
        if previous_entry is not None and previous_entry[0] is value:
            return previous_entry[1]
        minutes = 0
        with contextlib.suppress(KeyError, TypeError, ValueError):  # what is no share is followed for no time
            share = orjson.loads(value)
            if share["pipe_minute"]["unresolved"]:
                minutes = int(self._rules.followed_s(may_end=may_end(share)) // 60) + _FORGOTTEN
        self._followed[key] = value, minutes
        return minutes


def _is_merged_of(
    shares_of: Mapping[int, int], earlier_shares: Mapping[int, int] | None, previous_minute: Mapping[str, Any]
) -> bool:
    """Whether a minute was merged of these shares.

    Args:
        shares_of: partition to the time of its share.
        earlier_shares: of which this instance merged it last; None: it has not since its start.
        previous_minute: as it was merged last.
    """
    if earlier_shares is not None:
        return shares_of == earlier_shares
    recorded_shares = previous_minute.get("shares_at_us")
    if recorded_shares is None:  # merged by a release before
        return max(shares_of.values(), default=0) <= int(previous_minute.get("at_us", 0))
    return all(recorded_shares.get(str(partition)) == at_us for partition, at_us in shares_of.items())
