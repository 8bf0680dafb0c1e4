"""A row of an object, and its values as JSON. Pure."""

import base64
from typing import Any, Final, NamedTuple

import orjson

_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


class ObjectRow(NamedTuple):
    """A row that was read."""

    number: int
    """Of the row in its object, from 1."""
    data: bytes | None
    """JSON."""
    fields: dict[str, Any]
    """The same, as values; empty if the row cannot be read."""
    reason: str = ""
    """Why the row cannot be read: a short stable code, empty if it can."""
    detail: str = ""
    """The same in a sentence, without data."""


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


def row_of(number: int, fields: dict[str, Any]) -> ObjectRow:
    """A row with these values."""
    try:
        return ObjectRow(number, orjson.dumps(fields, default=_json, option=_OPTIONS), fields)
    except TypeError as error:  # such as an integer of more than 64 bits, or text that is not UTF-8
        return ObjectRow(number, None, {}, "not-json", f"a value cannot be written as JSON ({error})")


def _json(value: Any) -> Any:
    """Values that JSON does not have: bytes as base64, others, such as decimals, as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)
