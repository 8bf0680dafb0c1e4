"""What observe keeps of both colours for a year, beyond what it keeps of its own. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from typing_extensions import TypedDict

from hifi_observe.colours.colours_day import INCOMPLETE, ColoursDay, ColoursMinute
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES, UNKNOWN
from hifi_observe.minutes.day_record import MinuteState, day_of
from hifi_observe.minutes.merger import Records
from hifi_observe.minutes.minute_store import MinuteStore

OWN: Final = "own"
"""Log of this colour, until Kafka has said its identity."""


class HistoryJson(TypedDict):
    """What the observe of one colour keeps of a pipe."""

    log: str
    days: dict[str, Any]
    """Day, numbered since 1970 UTC, to `ColoursDay`, with the counts of its own log."""
    ids: dict[str, dict[str, Any]]
    """Minute to log to `NamedIds`, its own too."""


class ColoursHistory:
    """Days and ids over both colours.

    Args:
        store: has the records.
    """

    def __init__(self, store: MinuteStore) -> None:
        self._store = store
        self.log = OWN
        """Identity of the log of this colour."""

    def days(self, pipe: str) -> dict[int, ColoursDay]:
        """Day, numbered since 1970 UTC, to what both colours counted."""
        kept, own = self._store.colours_days.get(pipe, {}), self._store.days.get(pipe, {})
        days = {number: ColoursDay.load(orjson.loads(dumped)) for number, dumped in kept.items()}
        for number, record in own.items():
            day = days.get(number, ColoursDay())
            days[number] = ColoursDay(day.minutes, {**day.counts, self.log: record.counts})
        return days

    def ids(self, pipe: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Minute, log, and the ids of the events that were lost or late there (`NamedIds.dump`), in their order."""
        kept, own = self._store.colours_ids.get(pipe, {}), self._store.ids.get(pipe, {})
        for minute in sorted({*kept, *own}):
            by_log = orjson.loads(kept[minute]) if minute in kept else {}
            if minute in own:
                by_log[self.log] = orjson.loads(own[minute])
            for log, dumped in sorted(by_log.items()):
                yield minute, log, dumped

    def json(self, pipe: str, first: int, last: int) -> HistoryJson:
        """What the other colour asks for: the days from `first` to `last`."""
        ids: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for minute, log, dumped in self.ids(pipe):
            if first <= day_of(minute) <= last:
                ids[str(minute)][log] = dumped
        days = {str(number): day.dump() for number, day in self.days(pipe).items() if first <= number <= last}
        return {"log": self.log, "days": days, "ids": dict(ids)}

    def take(
        self,
        pipe: str,
        merged: Iterable[Mapping[str, Any]],
        histories: Mapping[str, HistoryJson],
        complete_by: int,
    ) -> Records:
        """Take in what both colours say; returns the records that changed.

        Args:
            pipe: its name.
            merged: its minutes over both colours (`merge_colours`).
            histories: colour to what its observe answered; one that did not answer is left out.
            complete_by: minutes from this one on are left out while they are not complete.
        """
        logs = {name: history["log"] for name, history in histories.items() if history["log"] != OWN}
        others = [history for history in histories.values() if history["log"] not in (self.log, OWN)]
        days = self._days(pipe)
        for history in others:
            for text, dumped in history["days"].items():
                before = days.get(int(text), ColoursDay())
                days[int(text)] = before.joined(ColoursDay.load(dumped), history["log"])
        judgements: defaultdict[int, list[tuple[int, ColoursMinute]]] = defaultdict(list)
        for row in merged:
            number, at = divmod(row["minute"], DAY_MINUTES)
            if logs.keys() >= row["colours"].keys() and (row["minute"] < complete_by or not row["missing"]):
                judgements[number].append((at, _judgement(row, logs)))
        for number, minutes in judgements.items():
            days[number] = days.get(number, ColoursDay()).judged(minutes)
        return [*self._changed_days(pipe, days), *self._changed_ids(pipe, others)]

    def _days(self, pipe: str) -> dict[int, ColoursDay]:
        kept = self._store.colours_days.get(pipe, {})
        return {number: ColoursDay.load(orjson.loads(dumped)) for number, dumped in kept.items()}

    def _changed_days(self, pipe: str, days: Mapping[int, ColoursDay]) -> Records:
        records: Records = []
        for number, day in sorted(days.items()):
            foreign = {log: counts for log, counts in day.counts.items() if log not in (self.log, OWN)}
            dumped = ColoursDay(day.minutes, foreign).dump()
            records += self._if_changed(
                record_keys.colours_day(pipe, number), self._store.colours_days[pipe].get(number), dumped
            )
        return records

    def _changed_ids(self, pipe: str, others: Iterable[HistoryJson]) -> Records:
        changed: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        kept = self._store.colours_ids[pipe]
        for history in others:
            for text, by_log in history["ids"].items():
                minute = int(text)
                before = orjson.loads(kept[minute]) if minute in kept else {}
                ids = changed[minute] or before
                for log, dumped in by_log.items():
                    if log not in (self.log, OWN) and (log == history["log"] or log not in ids):
                        ids[log] = dumped
                changed[minute] = ids
        records: Records = []
        for minute, ids in sorted(changed.items()):
            if ids:
                records += self._if_changed(record_keys.colours_ids(pipe, minute), kept.get(minute), ids)
        return records

    @staticmethod
    def _if_changed(key: bytes, before: bytes | None, value: dict[str, Any]) -> Records:
        dumped = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if before is not None and orjson.dumps(orjson.loads(before), option=orjson.OPT_SORT_KEYS) == dumped:
            return []
        return [(key, value)]


def _judgement(row: Mapping[str, Any], logs: Mapping[str, str]) -> ColoursMinute:
    unknown = row["state"] == UNKNOWN
    causes = ((INCOMPLETE,) if row["missing"] else ()) if unknown else tuple(row["causes"])
    counted = tuple(sorted(logs[name] for name in row["colours"]))
    return ColoursMinute(MinuteState(row["state"], causes), counted)
