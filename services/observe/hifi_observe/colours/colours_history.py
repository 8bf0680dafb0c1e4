"""Days and ids over both colours, which observe keeps for a year beside those of its own colour. Pure."""

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
    """The days and ids that the observe of one colour keeps of a pipe."""

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
        """Day, numbered since 1970 UTC, to the counts of both colours."""
        values, own_days = self._store.colours_days.get(pipe, {}), self._store.days.get(pipe, {})
        days = {number: ColoursDay.load(orjson.loads(value)) for number, value in values.items()}
        for number, record in own_days.items():
            day = days.get(number, ColoursDay())
            days[number] = ColoursDay(day.minutes, {**day.counts, self.log: record.counts})
        return days

    def ids(self, pipe: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Minute, log, and the ids of the events that were lost or late there (`NamedIds.dump`), in their order."""
        values, own_ids = self._store.colours_ids.get(pipe, {}), self._store.ids.get(pipe, {})
        for minute in sorted({*values, *own_ids}):
            ids_by_log = orjson.loads(values[minute]) if minute in values else {}
            if minute in own_ids:
                ids_by_log[self.log] = orjson.loads(own_ids[minute])
            for log, ids_json in sorted(ids_by_log.items()):
                yield minute, log, ids_json

    def json(self, pipe: str, first_day: int, last_day: int, *, hides_ids: bool) -> HistoryJson:
        """The answer to the other colour: the days from `first_day` to `last_day`.

        Args:
            pipe: its name.
            first_day: numbered since 1970 UTC.
            last_day: likewise.
            hides_ids: whether the pipe masks the ids of its events, so that their names are left out.
        """
        ids: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for minute, log, ids_json in self.ids(pipe):
            if first_day <= day_of(minute) <= last_day:
                ids[str(minute)][log] = ids_json | {"names": {}} if hides_ids else ids_json
        days = {
            str(number): day.dump()
            for number, day in self.days(pipe).items()
            if first_day <= number <= last_day
        }
        return {"log": self.log, "days": days, "ids": dict(ids)}

    def take(
        self,
        pipe: str,
        merged: Iterable[Mapping[str, Any]],
        histories: Mapping[str, HistoryJson],
        complete_by: int,
    ) -> Records:
        """Take in the answers of both colours; returns the records that changed.

        Args:
            pipe: its name.
            merged: its minutes over both colours (`merge_colours`).
            histories: colour to what its observe answered; one that did not answer is left out.
            complete_by: minutes from this one on are left out while they are not complete.
        """
        logs = {name: history["log"] for name, history in histories.items() if history["log"] != OWN}
        other_histories = [history for history in histories.values() if history["log"] not in (self.log, OWN)]
        days = self._days(pipe)
        for history in other_histories:
            for text, day_json in history["days"].items():
                day = days.get(int(text), ColoursDay())
                days[int(text)] = day.joined(ColoursDay.load(day_json), history["log"])
        judgements: defaultdict[int, list[tuple[int, ColoursMinute]]] = defaultdict(list)
        for row in merged:
            number, day_minute = divmod(row["minute"], DAY_MINUTES)
            if logs.keys() >= row["colours"].keys() and (row["minute"] < complete_by or not row["missing"]):
                judgements[number].append((day_minute, _judgement(row, logs)))
        for number, minutes in judgements.items():
            days[number] = days.get(number, ColoursDay()).judged(minutes)
        return [*self._changed_days(pipe, days), *self._changed_ids(pipe, other_histories)]

    def _days(self, pipe: str) -> dict[int, ColoursDay]:
        values = self._store.colours_days.get(pipe, {})
        return {number: ColoursDay.load(orjson.loads(value)) for number, value in values.items()}

    def _changed_days(self, pipe: str, days: Mapping[int, ColoursDay]) -> Records:
        records: Records = []
        for number, day in sorted(days.items()):
            other_counts = {log: counts for log, counts in day.counts.items() if log not in (self.log, OWN)}
            day_json = ColoursDay(day.minutes, other_counts).dump()
            records += self._if_changed(
                record_keys.colours_day(pipe, number), self._store.colours_days[pipe].get(number), day_json
            )
        return records

    def _changed_ids(self, pipe: str, other_histories: Iterable[HistoryJson]) -> Records:
        changed_ids: defaultdict[int, dict[str, Any]] = defaultdict(dict)
        values = self._store.colours_ids[pipe]
        for history in other_histories:
            for text, ids_by_log in history["ids"].items():
                minute = int(text)
                previous_ids = orjson.loads(values[minute]) if minute in values else {}
                ids = changed_ids[minute] or previous_ids
                for log, ids_json in ids_by_log.items():
                    if log not in (self.log, OWN) and (log == history["log"] or log not in ids):
                        ids[log] = ids_json
                changed_ids[minute] = ids
        records: Records = []
        for minute, ids in sorted(changed_ids.items()):
            if ids:
                records += self._if_changed(record_keys.colours_ids(pipe, minute), values.get(minute), ids)
        return records

    @staticmethod
    def _if_changed(key: bytes, previous_value: bytes | None, value: dict[str, Any]) -> Records:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if (
            previous_value is not None
            and orjson.dumps(orjson.loads(previous_value), option=orjson.OPT_SORT_KEYS) == text
        ):
            return []
        return [(key, value)]


def _judgement(row: Mapping[str, Any], logs: Mapping[str, str]) -> ColoursMinute:
    is_unknown = row["state"] == UNKNOWN
    causes = ((INCOMPLETE,) if row["missing"] else ()) if is_unknown else tuple(row["causes"])
    counted_logs = tuple(sorted(logs[name] for name in row["colours"]))
    return ColoursMinute(MinuteState(row["state"], causes), counted_logs)
