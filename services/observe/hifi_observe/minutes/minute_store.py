"""In-memory view of the topic `minutes`: merged minutes, shares, markers and momentary figures. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from pydantic import TypeAdapter

from hifi_observe.minutes import record_checks, record_keys
from hifi_observe.minutes.availability import DOWN, IngestHealth
from hifi_observe.minutes.day_record import COUNTS, DayRecord, MinuteState
from hifi_observe.minutes.figures_pieces import joined
from hifi_observe.minutes.open_minute import OpenMinutes
from hifi_observe.minutes.terms import TERM, is_older_share, is_overtaken, term_of
from hifi_observe.minutes.usage import NO_USAGE, DeletedMinutes, Usage, of_minute

_Loaded = TypeVar("_Loaded")
_KEPT_MINUTES: Final = 8 * 1440
"""Minutes for which the figures of ingest in markers are kept."""


@dataclass(frozen=True, slots=True)
class DownMinute:
    """A minute that is down, when it last became worse."""

    at_us: int
    """When that was found, microseconds since 1970 UTC."""
    lost: int
    causes: frozenset[str]


class MinuteStore:
    """A view of the topic, updated record by record. Merged minutes stay JSON until they are requested."""

    newest_term: int = 0
    """The highest term of all records so far, also of those that the topic has no more; 0: none has one."""

    def __init__(self) -> None:
        self.minutes: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Pipe to minute to merged minute."""
        self.states: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """Pipe to minute to up, down or unknown."""
        self.downs: defaultdict[str, dict[int, DownMinute]] = defaultdict(dict)
        """Pipe to minutes that are down."""
        self.causes: defaultdict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
        """Pipe to minute to the causes of being down; minutes that are not down are left out."""
        self.counts: defaultdict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
        """Pipe to minute to its `COUNTS`."""
        self.days: defaultdict[str, dict[int, DayRecord]] = defaultdict(dict)
        """Pipe to day to the states of its minutes."""
        self.ids: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Pipe to minute to the ids of its lost and late events as JSON (`NamedIds.load`), where there are any."""
        self.colours_days: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Pipe to day to its minutes over both colours as JSON (`ColoursDay.load`)."""
        self.colours_ids: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Pipe to minute to log to the ids of its lost and late events as JSON, of other logs than this colour's."""
        self.usage: defaultdict[str, dict[int, Usage]] = defaultdict(dict)
        """Pipe to minute to its usage, where there is any."""
        self.usage_days: defaultdict[str, dict[int, DeletedMinutes]] = defaultdict(dict)
        """Pipe to day to the usage of its deleted minutes."""
        self.parts: defaultdict[str, dict[int, dict[int, bytes]]] = defaultdict(dict)
        """Pipe to minute to partition to its share."""
        self.markers: dict[int, dict[str, Any]] = {}
        """Partition number to its newest marker."""
        self.gaps: dict[int, dict[int, int]] = defaultdict(dict)
        """Minute to partition number to the longest gap in ingest's heartbeat, seconds."""
        self.answers: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        """Minute to partition number to ingest's answers: 5xx, and all."""
        self.paused: dict[int, dict[int, dict[str, int]]] = defaultdict(dict)
        """Minute to partition number to pipe to requests refused because it is paused."""
        self.retold: set[int] = (
            set()
        )  # minutes for which a marker replaced a gap in the heartbeat by another one
        self.losses: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """Pipe to minute to events lost in it, where any were."""
        self.watched: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Pipe to minute to the counts of watched fields as JSON (`WatchCounts.load`), where there are any."""
        self.open_minutes = OpenMinutes()
        self.live: dict[int, dict[str, Any]] = {}
        """Partition number to its momentary figures."""
        self.previous_live: dict[int, dict[str, Any]] = {}
        """Partition number to its previous momentary figures, for rates."""
        self._live_pieces: defaultdict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        """Partition number to pieces of its momentary figures whose first piece is still to come."""
        self.fronts: dict[int, dict[str, Any]] = {}
        """Minute to the refusals of the front before two colours in it."""
        self.changed: defaultdict[str, set[int]] = defaultdict(set)
        """Pipe to minutes whose shares changed since they were last merged."""
        self.overtaken: defaultdict[str, dict[bytes, bytes]] = defaultdict(dict)
        """Pipe to key to the value of its share or merged minute, where an older record came after it: it must be
        written again, since Kafka keeps the last one."""

    def kept(self) -> tuple[Mapping[str, Collection[int]], ...]:
        """All kept records of pipes: of each kind, pipe to its minutes or days."""
        return self.changed, self.minutes, self.parts, self.days, self.ids, self.usage_days

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the topic.

        Raises:
            KeyError, TypeError, ValueError: it is none of this topic; nothing was changed.
        """
        kind, *key_parts = record_keys.split(key or b"")
        match kind, key_parts:
            case "minute", [pipe, minute]:
                self._take_minute(pipe, int(minute), value)
            case "part", [pipe, minute, partition]:
                self._take_share(pipe, int(minute), int(partition), value)
            case "day", [pipe, number]:
                _store_or_delete(
                    self.days[pipe],
                    int(number),
                    value,
                    lambda day: DayRecord.load(_checked(record_checks.DAY, day)),
                )
            case (("ids" | "colours-day" | "colours-ids"), [pipe, number]):
                stores = {"ids": self.ids, "colours-day": self.colours_days, "colours-ids": self.colours_ids}
                _store_or_delete(stores[kind][pipe], int(number), value, bytes)
            case "usage", [pipe, number]:
                _store_or_delete(
                    self.usage_days[pipe],
                    int(number),
                    value,
                    lambda day: DeletedMinutes.load(_checked(record_checks.USAGE, day)),
                )
            case "closed", [partition] if value is not None:
                self._take_marker(int(partition), _checked(record_checks.MARKER, value))
            case "open", [partition] if value is not None:
                rows = _checked(record_checks.OPEN, value)["rows"]
                open_rows = [row for row in rows if row["minute"] not in self.minutes.get(row["pipe"], ())]
                self.open_minutes.take(int(partition), open_rows)
            case "live", [partition, *piece] if value is not None:
                self._take_live(int(partition), int(piece[0]) if piece else 0, orjson.loads(value))
            case "front", [minute]:
                _store_or_delete(self.fronts, int(minute), value, partial(_checked, record_checks.FRONT))
            case _:
                pass  # written by a later version
        self.newest_term = max(self.newest_term, term_of(value))

    def _take_minute(self, pipe: str, minute: int, value: bytes | None) -> None:
        if value is None:
            self.minutes[pipe].pop(minute, None)
            self.states[pipe].pop(minute, None)
            self.downs[pipe].pop(minute, None)
            self.causes[pipe].pop(minute, None)
            self.counts[pipe].pop(minute, None)
            self.losses[pipe].pop(minute, None)
            self.watched[pipe].pop(minute, None)
            self.usage[pipe].pop(minute, None)
            self.overtaken[pipe].pop(record_keys.minute(pipe, minute), None)
            return
        known_value = self.minutes[pipe].get(minute)
        if known_value is not None and is_overtaken(term_of(value), term_of(known_value)):
            self.overtaken[pipe][record_keys.minute(pipe, minute)] = known_value
            return
        merged = _checked(record_checks.MINUTE, value)
        self.overtaken[pipe].pop(record_keys.minute(pipe, minute), None)
        usage, counts = of_minute(merged), tuple(int(merged[name]) for name in COUNTS)
        if merged.get("watched"):
            self.watched[pipe][minute] = orjson.dumps(merged["watched"])
        if usage != NO_USAGE:
            self.usage[pipe][minute] = usage
        self.minutes[pipe][minute] = value
        self.states[pipe][minute] = merged["state"]
        self.counts[pipe][minute] = counts
        self.causes[pipe].pop(minute, None)
        if merged["causes"]:
            self.causes[pipe][minute] = tuple(merged["causes"])
        self.open_minutes.close(pipe, minute)
        if merged["lost"]:
            self.losses[pipe][minute] = merged["lost"]
        else:
            self.losses[pipe].pop(minute, None)
        if merged["state"] != DOWN:
            self.downs[pipe].pop(minute, None)
            return
        down_minute = DownMinute(merged["at_us"], merged["lost"], frozenset(merged["causes"]))
        down_before = self.downs[pipe].get(minute)
        if (
            down_before is None
            or down_minute.lost > down_before.lost
            or down_minute.causes - down_before.causes
        ):
            self.downs[pipe][minute] = down_minute

    def _take_share(self, pipe: str, minute: int, partition: int, value: bytes | None) -> None:
        shares, key = self.parts[pipe].setdefault(minute, {}), record_keys.part(pipe, minute, partition)
        known_value = shares.get(partition)
        if known_value is not None and is_older_share(value, known_value):
            self.overtaken[pipe][key] = known_value
            return
        self.overtaken[pipe].pop(key, None)
        if value is None:
            shares.pop(partition, None)
            if not shares:
                del self.parts[pipe][minute]
                self.changed[pipe].discard(minute)
        elif known_value != value:
            shares[partition] = value
            self.changed[pipe].add(minute)

    def _take_marker(self, partition: int, marker: dict[str, Any]) -> None:
        if is_overtaken(marker.get(TERM, 0), self.markers.get(partition, {}).get(TERM, 0)):
            return
        self.markers[partition] = marker
        for minute_text, gap_s in marker.get("gaps", {}).items():
            minute = int(minute_text)
            if self.gaps[minute].get(partition, gap_s) != gap_s:
                self._retell(minute)
            self.gaps[minute][partition] = gap_s
        for minute, (failed_count, answered_count) in marker.get("answers", {}).items():
            self.answers[int(minute)][partition] = (failed_count, answered_count)
        for minute, pipes in marker.get("paused", {}).items():
            self.paused[int(minute)][partition] = pipes
        first_kept_minute = marker["minute"] - _KEPT_MINUTES
        for by_minute in (self.gaps, self.answers, self.paused):
            for old_minute in [minute for minute in by_minute if minute < first_kept_minute]:
                del by_minute[old_minute]
        self.retold = {minute for minute in self.retold if minute >= first_kept_minute}

    def _retell(self, minute: int) -> None:
        """Judge a minute again, whose heartbeat was reported before it had come: the clock was ahead."""
        self.retold.add(minute)
        for pipe, minutes in self.minutes.items():
            if minute in minutes:
                self.changed[pipe].add(minute)

    def _take_live(self, partition: int, piece: int, value: dict[str, Any]) -> None:
        if piece:
            record_checks.LIVE_PIECE.validate_python(value)
            self._live_pieces[partition][piece] = value
            return
        record_checks.LIVE.validate_python(value)
        pieces = self._live_pieces.pop(partition, {})
        further_pieces = [pieces[number] for number in sorted(pieces) if pieces[number]["at"] == value["at"]]
        if len(further_pieces) < value.get("pieces", 1) - 1 and partition in self.live:
            return  # some are of another publication: the figures before hold
        value = joined(value, further_pieces)
        previous_figures = self.live.get(partition)
        if previous_figures is not None and previous_figures["at"] != value["at"]:
            self.previous_live[partition] = previous_figures
        self.live[partition] = value

    def take_overtaken(self, pipe: str) -> list[tuple[bytes, dict[str, Any]]]:
        """Shares and merged minutes of a pipe to write again; they are returned once."""
        return [(key, orjson.loads(value)) for key, value in self.overtaken.pop(pipe, {}).items()]

    def closed_minute(self, partitions: int) -> int:
        """The newest minute that all partition numbers have closed; -1: none yet."""
        if not self.markers or len(self.markers) < partitions:
            return -1
        return min(int(marker["minute"]) for marker in self.markers.values())

    def intake(self, pipe: str, minute: int) -> IngestHealth:
        """Health of ingest for a pipe in a minute, over all partition numbers."""
        answers = self.answers.get(minute, {}).values()
        return IngestHealth(
            max(self.gaps.get(minute, {}).values(), default=None),
            sum(failed_count for failed_count, _ in answers),
            sum(answered_count for _, answered_count in answers),
            sum(pipes.get(pipe, 0) for pipes in self.paused.get(minute, {}).values()),
        )

    def minute(self, pipe: str, minute: int) -> dict[str, Any] | None:
        """A merged minute without its term; None if it is not known."""
        value = self.minutes.get(pipe, {}).get(minute)
        if value is None:
            return None
        merged: dict[str, Any] = orjson.loads(value)
        merged.pop(TERM, None)
        return merged

    def state(self, pipe: str, minute: int) -> MinuteState:
        """The state of a merged minute, with its causes."""
        return MinuteState(self.states[pipe][minute], self.causes[pipe].get(minute, ()))

    def latest(self, pipe: str) -> dict[str, Any] | None:
        """The newest merged minute of a pipe; None: it has none."""
        merged_minutes = self.minutes.get(pipe)
        return self.minute(pipe, max(merged_minutes)) if merged_minutes else None


def _checked(check: TypeAdapter[Any], value: bytes) -> dict[str, Any]:
    """The value of a record.

    Raises:
        ValueError: it is something else.
    """
    body: dict[str, Any] = orjson.loads(value)
    check.validate_python(body)
    return body


def _store_or_delete(
    values: dict[int, _Loaded], key: int, value: bytes | None, load: Callable[[bytes], _Loaded]
) -> None:
    """Store the value of a record by its key; None deletes."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = load(value)
