"""A row of an object, and its values as JSON. Pure."""

import base64
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson

from hifi.record.cloudevents.json_slices import is_within_depth
from hifi.runtime import exact_json

MAX_DEPTH: Final = 64
"""Deepest nesting of a row, as of an event over HTTP."""
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME
"""orjson 3.13 itself writes a time of day with 81,940 microseconds as `.81940`."""
_UTC: Final = "+00:00"


class ObjectRow:
    """A row that was read.

    Attributes:
        number: of the row in its object, from 1; in text that of its first line.
        data: JSON; of a row that cannot be read its text, or None.
        reason: why the row cannot be read: a short stable code, empty if it can.
        detail: the same in a sentence, without data.
    """

    __slots__ = ("data", "detail", "number", "reason")

    def __init__(self, number: int, data: bytes | None, reason: str = "", detail: str = "") -> None:
        self.number = number
        self.data = data
        self.reason = reason
        self.detail = detail


class UnreadableObject(Exception):
    """The rest of an object cannot be read.

    Attributes:
        reason: short stable code.
        detail: one sentence, without data.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class NoValue:
    """Takes the place of a value that Python cannot represent, such as a time after the year 9999."""


def row_of(number: int, fields: Mapping[str, Any]) -> ObjectRow:
    """A row with these values."""
    try:
        try:
            data = orjson.dumps(fields, default=_json, option=_OPTIONS)
        except TypeError:  # perhaps for the keys of a map
            fields = _with_text_keys(fields)
            data = orjson.dumps(fields, default=_json, option=_OPTIONS)
        if b"null" in data and exact_json.has_non_finite(fields):
            fields = exact_json.non_finite_as_text(fields)
            data = orjson.dumps(fields, default=_json, option=_OPTIONS)
    except (TypeError, RecursionError) as error:  # such as text that is not UTF-8
        problem = error.__cause__ or error  # what `_json` says
        return ObjectRow(
            number, None, "not-json", f"a value of row {number} cannot be written as JSON ({problem})"
        )
    if not is_within_depth(data, MAX_DEPTH):
        return ObjectRow(number, None, "not-json", f"row {number} is nested deeper than {MAX_DEPTH} levels")
    return ObjectRow(number, data)


def _with_text_keys(value: Any) -> Any:
    """The value with the keys of maps as text, in the form that they have as values.

    Raises:
        TypeError: two keys of a map have one form.
    """
    if isinstance(value, dict):
        members = {_key_text(key): _with_text_keys(member) for key, member in value.items()}
        if len(members) < len(value):
            raise TypeError("two keys of a map are written in the same way")
        return members
    return [_with_text_keys(element) for element in value] if isinstance(value, list | tuple) else value


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    text = orjson.dumps(exact_json.non_finite_as_text(key), default=_json, option=_OPTIONS)
    return text.decode().strip('"')


def _json(value: Any) -> Any:
    """Values that JSON does not have, as from a topic with Avro: bytes as base64, others as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime) and value.tzinfo is not None:
        text = value.isoformat()
        return text.removesuffix(_UTC) + "Z" if text.endswith(_UTC) else text
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds = Decimal(value // timedelta(microseconds=1)).scaleb(-6)
        return f"PT{seconds:f}S"
    if isinstance(value, NoValue):
        raise TypeError("a date or time is outside of the years 1 to 9999, or the text is no UUID")
    return str(value)
