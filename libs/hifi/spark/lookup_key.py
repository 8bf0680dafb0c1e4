"""Keys and values of lookup rows, converted by the rules that `hifi.spark.generator` applies to the event in SQL."""

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from hifi.pipe.model import Lookup, Pipe, SqlType
from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime import exact_json
from hifi.runtime.egress import EgressKind, egress

_MOST_DIGITS: Final = 20_000
"""Of a decimal that is written without an exponent; PostgreSQL's have 16,383 behind the point."""

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
"""Texts that Spark reads as numbers, too: Python alone reads `1_000` and the digits of all scripts."""
_DAY_AND_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ].*", re.ASCII | re.DOTALL)
"""A time of which Spark reads the date."""


def table_id(lookup: Lookup, pipe: str) -> str:
    """Identifies the table of a lookup of a pipe: equal for lookups with the same rows and columns, which share memory.

    The table of a database is shared by pipes only for which the same entries of the allowlist of addresses hold: one
    that may not connect to the database does not get what another one read.
    """
    declaration = lookup.model_dump_json(
        include={"file", "sql", "key", "fields", "types", "refresh", "expire", "shrink"}
    )
    columns = "|".join([*lookup.key.values(), "", *lookup.fields.values()])
    egress_entries = "".join(map(repr, egress(pipe).particular(EgressKind.DATABASE))) if lookup.sql else ""
    return hashlib.blake2b(f"{declaration}{columns}{egress_entries}".encode(), digest_size=8).hexdigest()


def table_ids(pipe: Pipe) -> set[str]:
    """Those of all lookups of a pipe."""
    return {table_id(lookup, pipe.pipe) for lookup in pipe.enrich.lookups.values()}


def key_text(parts: Sequence[str]) -> str:
    """The key of a row: a single part as it is, several parts with their lengths, so that different keys differ."""
    return parts[0] if len(parts) == 1 else "".join(f"{len(part)}:{part}" for part in parts)


def key_parts(text: str, count: int) -> list[str]:
    """The parts of a key: the opposite of `key_text`."""
    if count == 1:
        return [text]
    parts = []
    while text:
        length, _, remainder = text.partition(":")
        parts.append(remainder[: int(length)])
        text = remainder[int(length) :]
    return parts


def key_part(value: Any, kind: SqlType) -> str | None:
    """A part of a key, as Spark casts it to text. None: a null, which matches nothing.

    Args:
        value: as returned by `typed`.
        kind: its declared type.
    """
    if value is None:
        return None
    if kind is SqlType.BOOLEAN:
        return "true" if value else "false"
    if kind is SqlType.TIMESTAMP:
        return str(_microseconds(datetime.fromisoformat(value)))
    return str(value)


def text_of(value: Any) -> str | None:
    """A value returned by `typed`, as text that Spark casts back to the same value."""
    return _string(value) if value is not None else None


def typed(value: Any, kind: SqlType) -> Any:
    """A table's value converted to the JSON form of a declared type; None for null, NaN and blank text.

    Raises:
        ValueError, TypeError: the value does not fit the type.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and kind is not SqlType.STRING:
        value = value.strip()
        if not value:
            return None
    try:
        return _READERS[kind](value)
    except OverflowError as error:  # a time outside the range of UTC
        raise ValueError(str(error)) from None


def _string(value: Any) -> str:
    """The text that a source of events makes of the value: all digits of decimals, bytes as base64, JSON if nested."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal) and abs(value.adjusted()) <= _MOST_DIGITS:
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, dict | list | tuple):
        return exact_json.dumps(_nested(value)).decode()
    return value if isinstance(value, str) else str(value)


def _nested(value: Any) -> Any:
    """A value as JSON has it; what JSON does not have as text."""
    if isinstance(value, dict):
        return {_string(name): _nested(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(element) for element in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return exact_json.non_finite_as_text(value) if isinstance(value, float) else _string(value)


def _boolean(value: Any) -> bool:
    booleans = {"true": True, "t": True, "yes": True, "y": True, "1": True}
    booleans |= {"false": False, "f": False, "no": False, "n": False, "0": False}
    try:
        return value if isinstance(value, bool) else booleans[str(value).lower()]
    except KeyError:
        raise ValueError(f"{value!r} is not a boolean") from None


def _whole(value: Any, bits: int) -> int:
    try:
        number = value if isinstance(value, int) else Decimal(_number_text(value))
        # The range first: the digits of 1e999999999 as a whole number would fill the memory.
        if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) and number == int(number):
            return int(number)
    except ArithmeticError:  # not a number, or an infinite one
        pass
    raise ValueError(f"{value!r} is not a whole number of {bits} bits")


def _double(value: Any) -> float:
    number = float(_number_text(value) if isinstance(value, str) else value)
    if math.isinf(number) and any(map(str.isdigit, str(value))):
        raise ValueError(f"{value!r} is larger than a double can hold")
    return number


def _number_text(value: Any) -> str:
    text = str(value)
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{value!r} is not a number")
    return text


def _date(value: Any) -> str:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, datetime):
        return value.date().isoformat()
    day_and_time = _DAY_AND_TIME.fullmatch(str(value))
    return date.fromisoformat(day_and_time[1] if day_and_time else str(value)).isoformat()


def _timestamp(value: Any) -> str:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    instant = value if isinstance(value, datetime) else parse_iso8601(str(value))
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def _microseconds(instant: datetime) -> int:
    elapsed = instant - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


_READERS: dict[SqlType, Any] = {
    SqlType.STRING: _string,
    SqlType.BOOLEAN: _boolean,
    SqlType.INT: lambda value: _whole(value, 32),
    SqlType.BIGINT: lambda value: _whole(value, 64),
    SqlType.DOUBLE: _double,
    SqlType.DATE: _date,
    SqlType.TIMESTAMP: _timestamp,
}
