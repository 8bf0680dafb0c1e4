"""A row of an object, and its values as JSON. Pure."""

import base64
from typing import Any, Final

import orjson

_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS


class ObjectRow:
    """A row that was read.

    Attributes:
        number: of the row in its object, from 1.
        data: JSON.
        fields: the same, as values; empty if the row cannot be read.
        reason: why the row cannot be read: a short stable code, empty if it can.
        detail: the same in a sentence, without data.
    """

    __slots__ = ("data", "detail", "fields", "number", "reason")

    def __init__(
        self, number: int, data: bytes | None, fields: dict[str, Any], reason: str = "", detail: str = ""
    ) -> None:
        self.number = number
        self.data = data
        self.fields = fields
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
