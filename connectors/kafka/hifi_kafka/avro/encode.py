"""JSON to Avro values, by a schema. Pure.

It accepts what `decode` writes: text for logical types, base64 for bytes. A part of a timestamp or a time that is finer
than its type is cut off, and a number with a fraction becomes the nearest of its type; a whole number never changes. Of
a union the first type that keeps the whole value is taken, else the one that loses the least.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from io import BytesIO
from math import isinf
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import UUID

import fastavro

from hifi.avro.schema import AvroSchema, branch_name
from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime.errors import Rejected
from hifi.runtime.floating_point import changes_whole, nearest
from hifi.runtime.json_pointer import json_pointer
from hifi_kafka.avro.defaults import InvalidDefault, default_value

T = TypeVar("T")
Convert: TypeAlias = Callable[[Any], Any]
_INT: Final = 2**31
_LONG: Final = 2**63
_FRACTION: Final = re.compile(r"\.(\d*[1-9])?0*(?!\d)")
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[Ee][+-]?\d+)?", re.ASCII)
"""Texts that are decimals for others, too: Python reads `1_000` and the digits of all scripts."""
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


class _Unfit(Exception):
    """A value does not fit; the path is added from the inside to the outside."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        self.reason = reason
        self.path = path

    def nested_in(self, name: str) -> "_Unfit":
        return _Unfit(self.reason, (name, *self.path))


class Encoder:
    """Encodes values with one schema.

    Args:
        schema: of the values.
        unknown: what becomes of fields that the schema does not have.
    """

    def __init__(self, schema: AvroSchema, unknown: Literal["reject", "drop"] = "reject") -> None:
        self._parsed = schema.parsed
        self._compiler = _Compiler(schema.names, drop=unknown == "drop")
        self._convert = self._compiler.convert(schema.parsed)

    def __call__(self, value: Any) -> bytes:
        """The value in Avro, without a header.

        Args:
            value: decoded JSON; numbers with a fraction as float or Decimal.

        Raises:
            Rejected: it does not fit; the detail names the field.
        """
        self._compiler.losses = 0
        try:
            converted = self._convert(value)
        except _Unfit as unfit:
            pointer = json_pointer(unfit.path)
            detail = f"{pointer or 'the value'} does not fit the Avro schema: {unfit.reason}"
            raise Rejected("avro-schema", detail, pointer) from None
        except RecursionError:
            raise Rejected("avro-schema", "the value is nested too deeply for Avro") from None
        stream = BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._parsed, converted)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise Rejected(
                "avro-schema", f"the value cannot be written as Avro ({type(error).__name__})"
            ) from None
        return stream.getvalue()


class _Compiler:
    """Makes the conversions of the types of a schema, each once."""

    def __init__(self, names: Mapping[str, Any], *, drop: bool) -> None:
        self._names = names
        self._drop = drop
        self._conversions: dict[str, Convert] = {}
        self.losses = 0
        """Parts of the current value that were left out or rounded so far."""

    def _counted(self, conversion: Convert, keeps: Callable[[Any, Any], bool]) -> Convert:
        """A conversion that counts a loss where a value is not kept."""

        def convert(value: Any) -> Any:
            converted = conversion(value)
            if not keeps(value, converted):
                self.losses += 1
            return converted

        return convert

    def convert(self, node: Any) -> Convert:
        if isinstance(node, list):
            return self._union(node)
        if isinstance(node, str):
            if node in _ROUNDING:
                return self._counted(_PRIMITIVE[node], _ROUNDING[node])
            return _PRIMITIVE[node] if node in _PRIMITIVE else self._named(node)
        kind = str(node["type"]), str(node.get("logicalType"))
        if kind in _LOGICAL:
            keeps = _keeps_milliseconds if "millis" in kind[1] else _keeps_text
            return self._counted(_LOGICAL[kind], keeps)
        return self._complex(node["type"], node)

    def _complex(self, kind: Any, node: Mapping[str, Any]) -> Convert:
        if node.get("logicalType") == "decimal":
            return _decimal(node["precision"], node.get("scale", 0))
        if kind in {"record", "error", "enum", "fixed"}:
            return self._named(node["name"], node)
        if kind == "array":
            return _array(self.convert(node["items"]))
        return _map(self.convert(node["values"])) if kind == "map" else self.convert(kind)

    def _named(self, name: str, node: Mapping[str, Any] | None = None) -> Convert:
        if name not in self._conversions:
            self._conversions[name] = self._recursive(name)
            named_type = self._names[name] if node is None else node
            if named_type["type"] in {"record", "error"}:
                self._conversions[name] = self._record(named_type["fields"])
            elif named_type["type"] == "enum":
                self._conversions[name] = _enum(named_type["symbols"])
            else:
                self._conversions[name] = _fixed(named_type["size"])
        return self._conversions[name]

    def _recursive(self, name: str) -> Convert:
        """The conversion of a type that contains itself, which is being made."""

        def convert(value: Any) -> Any:
            return self._conversions[name](value)

        return convert

    def _union(self, branches: Sequence[Any]) -> Convert:
        conversions = [(branch_name(branch), self.convert(branch)) for branch in branches if branch != "null"]
        branch_names = ", ".join(branch_name(branch) for branch in branches)

        def convert(value: Any) -> Any:
            if value is None and "null" in branches:
                return None
            losses_before, fewest_losses, best = self.losses, -1, None
            for tag, conversion in conversions:
                self.losses = losses_before
                try:
                    converted = conversion(value)
                except _Unfit:
                    if len(conversions) == 1:
                        raise  # it names the field within
                    continue
                losses = self.losses - losses_before
                if fewest_losses < 0 or losses < fewest_losses:
                    fewest_losses, best = losses, (tag, converted)
                if not losses:
                    break
            self.losses = losses_before + max(fewest_losses, 0)
            if best is None:
                raise _Unfit(f"it is none of {branch_names}")
            return best

        return convert

    def _record(self, fields: Sequence[Mapping[str, Any]]) -> Convert:
        field_encoders = [
            (
                field["name"],
                self.convert(field["type"]),
                self._default(field) if "default" in field else None,
                _takes_null(field["type"]),
            )
            for field in fields
        ]
        field_names, drop = {field["name"] for field in fields}, self._drop

        def convert(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise _Unfit("it is no object")
            encoded_fields = {}
            for name, conversion, default, nullable in field_encoders:
                if name in value:
                    try:
                        encoded_fields[name] = conversion(value[name])
                    except _Unfit as unfit:
                        raise unfit.nested_in(name) from None
                elif default is not None:
                    encoded_fields[name] = default()
                elif not nullable:
                    raise _Unfit("it is missing, and the schema has no default", (name,))
            unknown_count = len(value) - len(field_names.intersection(value))
            if unknown_count and drop:
                self.losses += unknown_count
            elif unknown_count:
                unknown = next(name for name in value if name not in field_names)
                raise _Unfit("the schema does not have the field", (unknown,))
            return encoded_fields

        return convert

    def _default(self, field: Mapping[str, Any]) -> Callable[[], Any]:
        """Gives the value of a field that is missing, which is read at the first one."""
        values: list[Any] = []

        def default() -> Any:
            if not values:
                try:
                    values.append(default_value(field["type"], field["default"], self._names))
                except InvalidDefault as error:
                    raise _Unfit(f"it is missing, and {error}", (field["name"],)) from None
            return values[0]

        return default


def _takes_null(node: Any) -> bool:
    return node == "null" or (isinstance(node, list) and "null" in node)


def _null(value: Any) -> None:
    if value is not None:
        raise _Unfit("it is not null")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("it is not true or false")
    return value


def _integer(limit: int) -> Convert:
    def convert(value: Any) -> int:
        if isinstance(value, float | Decimal):
            if value < -limit or value >= limit:
                raise _Unfit(f"it is no integer of {limit.bit_length()} bits")
            value = int(value) if value == int(value) else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Unfit("it is no integer")
        if not -limit <= value < limit:
            raise _Unfit(f"it is no integer of {limit.bit_length()} bits")
        return value

    return convert


def _number(bits: int) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, str) and value in _NON_FINITE:
            return float(value)
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
            raise _Unfit("it is no number")
        number = nearest(value, bits)
        if isinf(number):
            raise _Unfit("the number is too large")
        if changes_whole(_as_written(value), number):
            raise _Unfit("the integer has more digits than the floating-point type")
        return number

    return convert


def _as_written(value: float | Decimal) -> int | Decimal:
    """A number as JSON has it."""
    return Decimal(repr(value)) if isinstance(value, float) else value


def _keeps_sign(value: Any, number: int) -> bool:
    """Whether a whole number is the value; it cannot be -0."""
    return bool(number) or not str(value).startswith("-")


def _same_number(value: Any, number: float) -> bool:
    """Whether a number of 64 bits is the value, as far as its shortest text tells."""
    return number == value or (isinstance(value, Decimal) and Decimal(repr(number)) == value)


def _keeps_milliseconds(text: str, timestamp: datetime | time) -> bool:
    return timestamp.microsecond % 1000 == 0 and _keeps_text(text, timestamp)


def _keeps_text(text: str, value: datetime | date | time | str) -> bool:
    """Whether a value is written as it was, but for zeros at the end of a fraction, and `+00:00` for `Z`."""
    value_text = value if isinstance(value, str) else value.isoformat()
    if isinstance(value, datetime) and text.endswith("Z"):
        text = f"{text[:-1]}+00:00"
    elif isinstance(value, datetime) and value.utcoffset():
        return False  # only the moment is kept
    return _without_zeros(text) == _without_zeros(value_text)


def _without_zeros(text: str) -> str:
    """A time without zeros at the end of its fraction."""
    return _FRACTION.sub(lambda match: f".{match[1]}" if match[1] else "", text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit("it is no text")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise _Unfit("it is not base64") from None


def _enum(symbols: Sequence[str]) -> Convert:
    symbol_set = frozenset(symbols)

    def convert(value: Any) -> str:
        if _text(value) not in symbol_set:
            raise _Unfit("it is no symbol of the enum")
        return str(value)

    return convert


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        fixed_bytes = _bytes(value)
        if len(fixed_bytes) != size:
            raise _Unfit(f"it has {len(fixed_bytes)} bytes, not {size}")
        return fixed_bytes

    return convert


def _array(conversion: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _Unfit("it is no array")
        encoded_items = []
        for index, item in enumerate(value):
            try:
                encoded_items.append(conversion(item))
            except _Unfit as unfit:
                raise unfit.nested_in(str(index)) from None
        return encoded_items

    return convert


def _map(conversion: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Unfit("it is no object")
        encoded_values = {}
        for name, item in value.items():
            try:
                encoded_values[name] = conversion(item)
            except _Unfit as unfit:
                raise unfit.nested_in(name) from None
        return encoded_values

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
            raise _Unfit("it is no decimal")
        if isinstance(value, str) and _DECIMAL.fullmatch(value) is None:
            raise _Unfit("it is no decimal")
        try:
            decimal = Decimal(str(value))
        except InvalidOperation:
            raise _Unfit("it is no decimal") from None
        if not decimal.is_finite() or (decimal and decimal.adjusted() >= precision - scale):
            raise _Unfit(f"it has more than {precision - scale} digits before the point")
        sign, digits, exponent = decimal.as_tuple()
        assert isinstance(exponent, int)
        if not decimal:
            return Decimal((sign, (0,), -scale))
        if (finer := -exponent - scale) <= 0:
            return decimal
        if finer >= len(digits) or any(digits[-finer:]):
            raise _Unfit(f"it has more than {scale} digits after the point")
        return Decimal((sign, digits[:-finer], -scale))

    return convert


def _timestamp(value: Any) -> datetime:
    timestamp = _parsed(parse_iso8601, value, "no time in RFC 3339")
    if timestamp.tzinfo is None:
        raise _Unfit("the time has no offset from UTC")
    try:
        timestamp.astimezone(UTC)
    except OverflowError:
        raise _Unfit("the time is outside of the years 1 to 9999 in UTC") from None
    return timestamp


def _local_timestamp(value: Any) -> datetime:
    timestamp = _parsed(parse_iso8601, value, "no time in RFC 3339 without an offset")
    if timestamp.tzinfo is not None:
        raise _Unfit("the time has an offset from UTC")
    return timestamp


def _time(value: Any) -> time:
    time_of_day = _parsed(time.fromisoformat, value, "no time of day")
    if time_of_day.utcoffset():
        raise _Unfit("the time of day has an offset from UTC")
    return time_of_day.replace(tzinfo=None)


def _date(value: Any) -> date:
    return _parsed(date.fromisoformat, value, "no date")


def _uuid(value: Any) -> str:
    _parsed(UUID, value, "no UUID")
    return _text(value)


def _parsed(parse: Callable[[str], T], value: Any, mismatch: str) -> T:
    try:
        return parse(_text(value))
    except ValueError:
        raise _Unfit(f"it is {mismatch}") from None


_PRIMITIVE: Final[Mapping[str, Convert]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer(_INT),
    "long": _integer(_LONG),
    "float": _number(32),
    "double": _number(64),
    "string": _text,
    "bytes": _bytes,
}
_ROUNDING: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "int": _keeps_sign,
    "long": _keeps_sign,
    "float": lambda value, number: number == value,
    "double": _same_number,
}
_LOGICAL: Final[Mapping[tuple[str, str], Convert]] = {
    ("long", "timestamp-millis"): _timestamp,
    ("long", "timestamp-micros"): _timestamp,
    ("long", "local-timestamp-millis"): _local_timestamp,
    ("long", "local-timestamp-micros"): _local_timestamp,
    ("int", "time-millis"): _time,
    ("long", "time-micros"): _time,
    ("int", "date"): _date,
    ("string", "uuid"): _uuid,
}
