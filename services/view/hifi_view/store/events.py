"""The rows that records of a topic make. Pure."""

import math
from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from hifi.pipe.view import View, ViewedTopic, ViewType
from hifi.record.event_time import event_time_us
from hifi.record.hop import hop
from hifi.record.identity import (
    ACCEPTED_AT,
    FORMAT,
    KIND_AT,
    SEQ_AT,
    identity_header,
    split_identity,
)
from hifi.record.packed_text import SEPARATOR
from hifi.runtime import exact_json
from hifi.runtime.errors import NotAnEvent

LONGEST_TEXT_BYTES: Final = 64 * 1024
"""Of a text in a row; a longer one is null."""
LONGEST_KEY_BYTES: Final = 4096
"""Of a key field: as long as a CloudEvents attribute may be."""
_TOLERANCE_US: Final = 120 * 1_000_000
"""Largest time by which an event's time may be after its acceptance. A later one would hold its row for ever."""
_INT_DIGITS: Final = 999
"""`exact_json` reads whole numbers with more digits as Decimal."""
_INT64: Final = range(-(2**63), 2**63)

Value: TypeAlias = str | int | float | None
Key: TypeAlias = tuple[str | int, ...]
"""Values of the key fields, in declared order."""


class EventPosition(NamedTuple):
    """Position of an event. Of two events of a row the greater one is newer; no two events of a log have the same."""

    time_us: int
    """Time of the event, microseconds since 1970 UTC; 0 if offsets order the view."""
    partition: int
    offset: int
    """In `raw`."""
    event_index: int
    """Of the event in the record of `raw`."""


class RowEvent(NamedTuple):
    """An event that has a row."""

    key: Key
    values: tuple[Value, ...]
    """Of all columns, those of the key first."""
    position: EventPosition
    accepted_us: int
    unfit: int
    """Values that did not fit their type, and are null."""


class Refusal(NamedTuple):
    """An event of the pipe that has no row."""

    reason: str
    """`no-key`, `long-key`, `not-json`, `not-an-event` or `unreadable`."""
    event: str
    """Its identity, `<epoch>:<sequence>`; empty: it cannot be read."""


class Skipped(StrEnum):
    """A record that concerns no row."""

    OTHER = "other"
    """Of another pipe, or no event."""
    NO_DATA = "no_data"
    """An event without data, such as one that its pipe filters out."""


Read: TypeAlias = RowEvent | Refusal | Skipped


class EventReader:
    """Reads the records of one topic for one view."""

    def __init__(self, view: View) -> None:
        """Read for a view."""
        self._prefix = b"%d;%b;" % (FORMAT, view.from_.pipe.encode())
        self._is_raw = view.from_.at is ViewedTopic.RAW
        self._orders_by_time = view.order == "time"
        self._columns = list(view.columns.items())
        self._text_columns = [name for name, kind in self._columns if kind is ViewType.TEXT]
        self._key_fields = len(view.key)

    def read(
        self, headers: Sequence[tuple[str, bytes]], value: bytes | None, partition: int, offset: int
    ) -> Read:
        """The row event of a record, or the reason why it has none.

        Args:
            headers: of the record, in their order.
            value: of the record; None: it has none.
            partition: of the record.
            offset: of the record in its topic.
        """
        header = self._header(headers)
        if header is None:
            return Skipped.OTHER
        try:
            identity_fields = split_identity(header)
            record_hop = hop(headers)
        except NotAnEvent:
            return Refusal("not-an-event", "")
        event_identity = identity_fields[SEQ_AT].decode("ascii")
        raw_offset = offset if self._is_raw else record_hop.raw
        if raw_offset < 0:
            return Refusal("not-an-event", event_identity)
        if value is None:
            return Skipped.NO_DATA
        accepted_us = int(identity_fields[ACCEPTED_AT])
        time_us = _time_us(headers, accepted_us) if self._orders_by_time else 0
        position = EventPosition(time_us, partition, raw_offset, record_hop.event_index)
        data = _object(value)
        if data is not None and any(isinstance(data.get(name), float) for name in self._text_columns):
            data = exact_json.loads(value)  # perhaps a whole number of more than 64 bits
        return self._row(data, position, accepted_us, event_identity)

    def _header(self, headers: Sequence[tuple[str, bytes]]) -> bytes | None:
        """The header `hifi` of an event of the pipe; None: it is another record."""
        try:
            header = identity_header(headers)
        except NotAnEvent:
            return None
        if not header.startswith(self._prefix):
            return None
        identity_fields = header.split(SEPARATOR)
        # An event of a kind that a later release writes is another record.
        is_event = len(identity_fields) <= KIND_AT or not identity_fields[KIND_AT]
        return header if is_event else None

    def _row(
        self, data: dict[str, Any] | None, position: EventPosition, accepted_us: int, event_identity: str
    ) -> RowEvent | Refusal:
        if data is None:
            return Refusal("not-json", event_identity)
        values: list[Value] = []
        unfit = 0
        for name, kind in self._columns:
            field_value = data.get(name)
            value = fitted(field_value, kind)
            if value is None and field_value is not None:
                unfit += 1
            values.append(value)
        key = tuple(values[: self._key_fields])
        if None in key or "" in key:
            return Refusal("no-key", event_identity)
        if any(
            isinstance(key_value, str) and len(key_value.encode()) > LONGEST_KEY_BYTES for key_value in key
        ):
            return Refusal("long-key", event_identity)
        return RowEvent(key, tuple(values), position, accepted_us, unfit)  # type: ignore[arg-type]  # None is not in key


def _object(value: bytes) -> dict[str, Any] | None:
    """The data of an event; None: it is no JSON object."""
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError:  # or a number is larger than a double
        try:
            data = exact_json.loads(value)
        except ValueError:
            return None
    return data if isinstance(data, dict) else None


def fitted(value: Any, kind: ViewType) -> Value:
    """A JSON value as a type of SQLite; None: it is null or does not fit."""
    if kind is ViewType.TEXT:
        if _is_whole(value):
            value = str(value)
        fits = isinstance(value, str) and (len(value) * 4 <= LONGEST_TEXT_BYTES or _utf8_fits(value))
        return value if fits else None
    if kind is ViewType.BOOL:
        return int(value) if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if kind is ViewType.INT:
        return value if isinstance(value, int) and value in _INT64 else None
    return _double(value) if isinstance(value, int | float | Decimal) else None


def _double(number: float | Decimal) -> float | None:
    try:
        value = float(number)
    except OverflowError:  # a whole number beyond the range of a double
        return None
    return value if math.isfinite(value) else None


def _is_whole(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.adjusted() >= _INT_DIGITS and not value.as_tuple().exponent
    return isinstance(value, int) and not isinstance(value, bool)


def _utf8_fits(value: str) -> bool:
    return len(value.encode()) <= LONGEST_TEXT_BYTES


def _time_us(headers: Sequence[tuple[str, bytes]], accepted_us: int) -> int:
    """The time of an event; its accepted time if it has no time or a later one."""
    time_us = event_time_us(headers, accepted_us)
    return accepted_us if time_us > accepted_us + _TOLERANCE_US else time_us
