"""The values of columns as Debezium writes them, as JSON has them. Pure.

Debezium writes counts of days and microseconds, base64 and placeholders, and says in the schema of each record which is
what. Here a time becomes RFC 3339, without a zone for `timestamp`; JSON becomes JSON; what JSON has no type for becomes
the text of PostgreSQL, which a column of the same type reads as the same value.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from hifi.record.cloudevents.json_slices import is_within_depth
from hifi.runtime import exact_json

SOURCE_TYPE: Final = "__debezium.source.column.type"
"""Parameter of a field with the name of the column's type in PostgreSQL, upper-case."""
_PLAIN_TYPES: Final = (
    r"bool|char|name|int2|int4|int8|smallserial|serial|bigserial|text|oid|json|jsonb|jsonpath|xml|uuid|bpchar|varchar|"
    r"point|lseg|path|box|polygon|line|circle|float4|float8|macaddr|macaddr8|inet|cidr|pg_lsn|pg_snapshot|tsvector|"
    r"tsquery|xid|xid8|cid|tid|txid_snapshot|refcursor|date|time|timetz|timestamp|timestamptz|interval|"
    r"(?:int4|int8|num|ts|tstz|date)(?:multi)?range|"
    r"reg(?:class|collation|config|dictionary|namespace|oper|operator|proc|procedure|role|type)"
)
NAMED_TYPES: Final = rf"(?:.+[.])?(?!(?:{_PLAIN_TYPES})$)[^.]+"
"""Types whose names Debezium is to write, those of users too: others are known by the schema."""
_KNOWN_TYPES: Final = frozenset({"BYTEA", "BIT", "VARBIT", "HSTORE", "MONEY", "NUMERIC"})
_PLAIN: Final = re.compile(_PLAIN_TYPES, re.IGNORECASE)
Types: TypeAlias = Mapping[str, str]
"""Types of users and extensions, upper-case: a domain to the type below it, any other to itself. Empty: nobody
knows, or there are several of the name."""
_DEBEZIUM: Final = "io.debezium."
_BITS: Final = "io.debezium.data.Bits"
_PLACEHOLDER_ARRAYS: Final = frozenset(
    {"_TEXT", "_VARCHAR", "_BPCHAR", "_BYTEA", "_INT4", "_INT8", "_DATE", "_UUID", "_JSON", "_JSONB"}
)
"""Arrays for which Debezium has a placeholder if they did not change; it writes null for others."""
_LONG_BITS: Final = 200
"""A shorter column of bits is never stored apart from its row."""
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = -2_440_588
_LAST_DAY: Final = 2_145_042_905
"""Days of the dates that PostgreSQL has, since 1970."""
_FIRST_US: Final = _FIRST_DAY * _DAY_US
_GREGORIAN_DAY: Final = -141_427
"""1582-10-15. Java has another calendar for days before."""
_INFINITE_DAYS: Final = {
    -2_147_472_692: "infinity",
    -2_147_472_691: "-infinity",
    -622_191_234: "infinity",
    -622_191_233: "infinity",
    -625_821_272: "-infinity",
    -625_821_271: "-infinity",
}
"""Values of an infinite date in 32 bits, in changes, and in snapshots and arrays."""
_INFINITE_MS: Final = {9_223_372_036_825_200: "infinity", -9_223_372_036_832_400: "-infinity"}
_INFINITE_US: Final = {moment * 1000: text for moment, text in _INFINITE_MS.items()}
_NOT_FINITE: Final = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
_MOST_DEPTH: Final = 250
"""Of JSON: a service that writes an event anew has 254 levels for the row around it, too."""
_MOST_BITS: Final = 83_886_080
_MOST_MONEY: Final = 10**13
"""An amount with hundredths below it is exact as a floating-point number."""
_POWER_OF_TEN: Final = re.compile(r"^-?\d+([.]\d+)?E-?\d+$")
_ZONED: Final = re.compile(r"^([+-]?\d+)-(\d\d)-(\d\d)T([0-9:.]+)Z$")


class Unreadable(ValueError):
    """Debezium does not write the value as it is. The message says which column, and has no values."""


class Field(NamedTuple):
    """A column.

    Attributes:
        name: of the column.
        convert: makes the JSON value of one that is not null; whether it was read by JDBC, as in a snapshot.
        placeholder: value that stands for one that did not change; None: there is none, and null may stand for it.
    """

    name: str
    convert: Callable[[Any, bool], Any]
    placeholder: Any


class Row(NamedTuple):
    """A row as JSON has it.

    Attributes:
        values: by column.
        unchanged: columns that are not in it, because they did not change.
    """

    values: dict[str, Any]
    unchanged: list[str]


def placeholder(topic: str) -> str:
    """The text that Debezium writes for long values that did not change; no value of a table equals it."""
    return "hifi-unchanged-" + hashlib.sha256(topic.encode()).hexdigest()[:32]


def read_fields(schema: Mapping[str, Any], unchanged: str, types: Types) -> list[Field]:
    """The columns of a row's schema.

    Args:
        schema: of the member `after` or `before` of a record.
        unchanged: the placeholder.
        types: those that `types_to_look_up` named.
    """
    return [_field(column_schema, unchanged, types) for column_schema in schema["fields"]]


def types_to_look_up(schema: Mapping[str, Any]) -> dict[str, str]:
    """Column to its type, if only the database knows what it is: Debezium writes a domain as the type below it."""
    types_by_column = {
        column_schema["field"]: _unknown_type(column_schema) for column_schema in schema["fields"]
    }
    return {column: name for column, name in types_by_column.items() if name}


def _unknown_type(declared: Mapping[str, Any]) -> str:
    """Name of the type of a column, if the schema does not say how its values are written; empty: it does."""
    name, value_schema = _source_type(declared), declared
    if declared["type"] == "array":
        value_schema = declared["items"]
    element_name = name.removeprefix("_")
    if not name or element_name in _KNOWN_TYPES or _PLAIN.fullmatch(element_name):
        return ""
    if value_schema is not declared or value_schema.get("name"):
        is_clear = value_schema["type"] != "bytes" or (value_schema.get("name") or _BITS) != _BITS
    else:
        is_clear = value_schema["type"] not in ("bytes", "boolean", "string")
    return "" if is_clear else name


def _source_type(declared: Mapping[str, Any]) -> str:
    """Name of a column's type, without its schema."""
    text: str = (declared.get("parameters") or {}).get(SOURCE_TYPE, "")
    return text.rpartition('"."')[2].strip('"') if '"' in text else text


def is_kept(field: Field) -> bool:
    """Whether the values of a column are as Debezium writes them."""
    return field.convert is _as_it_is


def read_row(fields: list[Field], values: Mapping[str, Any], *, snapshot: bool, partial: bool) -> Row:
    """A row.

    Args:
        fields: of the table.
        values: as Debezium writes them.
        snapshot: the row was read by JDBC.
        partial: long values that did not change are left out.

    Raises:
        Unreadable: a value is not what the column has.
    """
    row, unchanged = dict[str, Any](), list[str]()
    for name, convert, unchanged_value in fields:
        value = values[name]
        if value is None:
            if partial and unchanged_value is None:
                raise Unreadable(
                    f"the column {name} is null, as which Debezium writes an unchanged long value of its type, too: "
                    "set REPLICA IDENTITY FULL on the table, or leave the column out with column.exclude.list"
                )
            row[name] = None
        elif value == unchanged_value:
            unchanged.append(name)
        elif convert is _as_it_is:
            row[name] = value
        else:
            try:
                row[name] = convert(value, snapshot)
            except Unreadable as unreadable:
                raise Unreadable(f"the column {name} {unreadable}") from None
    return Row(row, unchanged)


def _field(declared: Mapping[str, Any], unchanged: str, types: Types) -> Field:
    name, source_type = declared["field"], _source_type(declared)
    known_type = source_type
    if unknown_type := _unknown_type(declared):
        known_type = types.get(unknown_type, "")
        if not known_type:
            refuse = _refuse(
                f"{unknown_type}, of which neither Debezium nor the database says how it is written"
            )
            is_text = declared["type"] == "string"
            return Field(name, _unless_number(refuse) if is_text else refuse, unchanged if is_text else None)
    if declared["type"] == "array":
        element = declared["items"]
        convert = _array(_converter(element, known_type.removeprefix("_")))
        in_array = _array_placeholder(element, unchanged) if source_type in _PLACEHOLDER_ARRAYS else None
        return Field(name, convert, in_array)
    unchanged_value: Any = unchanged
    kind = declared.get("name") or ""
    if declared["type"] == "bytes":
        unchanged_value = base64.b64encode(unchanged.encode()).decode()
        if kind == _BITS:
            length = int((declared.get("parameters") or {}).get("length", _LONG_BITS))
            unchanged_value = unchanged_value if length < _LONG_BITS else None
    elif source_type == "HSTORE":
        unchanged_value = exact_json.dumps({unchanged: unchanged}).decode()
    return Field(name, _converter(declared, known_type), unchanged_value)


def _array_placeholder(element: Mapping[str, Any], unchanged: str) -> list[Any]:
    text = unchanged.encode()
    if element["type"] in ("int32", "int64"):
        return list(text)
    if element["type"] == "bytes":
        return [base64.b64encode(text).decode()]
    if element.get("name") == "io.debezium.data.Uuid":
        return [str(uuid.UUID(bytes=hashlib.md5(text, usedforsecurity=False).digest(), version=3))]
    return [unchanged]


def _array(convert: Callable[[Any, bool], Any]) -> Callable[[Any, bool], Any]:
    def elements(values: Any, _: bool) -> list[Any]:
        if values and all(value is None for value in values):
            raise Unreadable(
                "is a list of nulls alone, as which Debezium writes an array of several dimensions, too: leave it out "
                "with column.exclude.list"
            )
        return [None if value is None else convert(value, True) for value in values]

    return elements


def _converter(declared: Mapping[str, Any], source_type: str) -> Callable[[Any, bool], Any]:
    kind: str = declared.get("name") or ""
    if kind.startswith(_DEBEZIUM):
        converter = _NAMED.get(kind.removeprefix(_DEBEZIUM))
        if kind == _BITS:
            return (
                _bits(declared)
                if source_type == "BIT"
                else _refuse("bit varying, whose length Debezium leaves out")
            )
        return converter or _as_it_is
    if declared["type"] == "bytes":
        return _as_it_is if source_type == "BYTEA" else _text
    if declared["type"] == "boolean" and source_type == "BIT":
        return _bit
    return _NUMBERS.get(source_type, _as_it_is)


def _as_it_is(value: Any, _: bool) -> Any:
    return value


def _bit(value: Any, _: bool) -> str:
    return "1" if value else "0"


def _bits(declared: Mapping[str, Any]) -> Callable[[Any, bool], Any]:
    length = int(declared["parameters"]["length"])

    def text(value: Any, _: bool) -> str:
        if length > _MOST_BITS:  # a length alone could ask for any amount of memory
            raise Unreadable(
                f"is of a type of {length:,} bits, of which PostgreSQL has at most {_MOST_BITS:,}"
            )
        return format(int.from_bytes(base64.b64decode(value), "little"), f"0{length}b")

    return text


def _number(value: Any, _: bool) -> Any:
    return _NOT_FINITE.get(value, value)


def _money(value: Any, by_jdbc: bool) -> str:
    amount = Decimal(value)
    if by_jdbc and abs(amount) >= _MOST_MONEY:
        raise Unreadable("is an amount of money that Debezium reads with 15 digits in a snapshot")
    return format(amount, "f")


_NUMBERS: Final[Mapping[str, Callable[[Any, bool], Any]]] = {"NUMERIC": _number, "MONEY": _money}


def _text(value: Any, _: bool) -> str:
    """The text of a type that Debezium does not know."""
    try:
        return base64.b64decode(value).decode()
    except UnicodeDecodeError:
        raise Unreadable("has a type that Debezium does not know, and is no UTF-8") from None


def _json(value: Any, _: bool) -> orjson.Fragment:
    """The text as it is: `json` keeps its digits, and names that are there twice."""
    text: bytes = value.encode()
    try:
        exact_json.loads(text)
    except ValueError:
        raise Unreadable("has JSON that JSON readers refuse") from None
    if not is_within_depth(text, _MOST_DEPTH):
        raise Unreadable(f"has JSON that is nested deeper than {_MOST_DEPTH} levels")
    return orjson.Fragment(text)


def _point(value: Any, _: bool) -> str:
    return f"({value['x']},{value['y']})"


def _refuse(type_name: str) -> Callable[[Any, bool], Any]:
    def refuse(_: Any, __: bool) -> Any:
        raise Unreadable(f"has the type {type_name}: leave it out with column.exclude.list")

    return refuse


def _unless_number(refuse: Callable[[Any, bool], Any]) -> Callable[[Any, bool], Any]:
    """Refuse what Debezium may have made of an amount of money or a number that is not finite."""

    def text(value: Any, by_jdbc: bool) -> Any:
        return refuse(value, by_jdbc) if value in _NOT_FINITE or _POWER_OF_TEN.match(value) else value

    return text


# Times


def _date(days: Any, by_jdbc: bool) -> str:
    if days in _INFINITE_DAYS:
        return _INFINITE_DAYS[days]
    if not _FIRST_DAY <= days <= _LAST_DAY:
        raise Unreadable("is a date that Debezium does not write as it is")
    _require_gregorian(days, by_jdbc)
    date, era = _calendar(days)
    return date + era


def _timestamp_us(moment_us: Any, by_jdbc: bool) -> str:
    return _INFINITE_US.get(moment_us) or _timestamp(moment_us, by_jdbc)


def _timestamp_ms(moment_ms: Any, by_jdbc: bool) -> str:
    return _INFINITE_MS.get(moment_ms) or _timestamp(moment_ms * 1000, by_jdbc)


def _timestamp(moment_us: int, by_jdbc: bool) -> str:
    days, time_us = divmod(moment_us, _DAY_US)
    if not moment_us >= _FIRST_US or days > _LAST_DAY:
        raise Unreadable("is a time that Debezium does not write as it is")
    _require_gregorian(days, by_jdbc)
    date, era = _calendar(days)
    return f"{date}{'T' if len(date) == len('2000-01-01') and not era else ' '}{_clock(time_us)}{era}"


def _time_us(time_us: Any, _: bool) -> str:
    return _clock(time_us)


def _time_ms(time_ms: Any, _: bool) -> str:
    return _clock(time_ms * 1000)


def _zoned(text: Any, by_jdbc: bool) -> Any:
    match = _ZONED.match(text)
    if match is None:
        return text  # infinity
    year, month, day, time = int(match[1]), match[2], match[3], match[4]
    if by_jdbc and (year, month, day) < (1582, "10", "15"):
        raise Unreadable(_OTHER_CALENDAR)
    if 1 <= year <= 9999:
        return text
    if year > 0:
        return f"{year}-{month}-{day} {time}+00"
    return f"{1 - year:04}-{month}-{day} {time}+00 BC"


_OTHER_CALENDAR: Final = (
    "is a date before 1582-10-15 in a snapshot or an array, which Debezium reads in another calendar"
)


def _require_gregorian(days: int, by_jdbc: bool) -> None:
    if by_jdbc and days < _GREGORIAN_DAY:
        raise Unreadable(_OTHER_CALENDAR)


def _clock(time_us: int) -> str:
    seconds, fraction = divmod(time_us, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _calendar(days: int) -> tuple[str, str]:
    """Date of a day since 1970, and ` BC` before the year 1 (Hinnant, "Low-level date algorithms")."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return (
        (f"{year:04}-{month:02}-{day:02}", "") if year > 0 else (f"{1 - year:04}-{month:02}-{day:02}", " BC")
    )


_NAMED: Final[Mapping[str, Callable[[Any, bool], Any]]] = {
    "time.Date": _date,
    "time.Time": _time_ms,
    "time.MicroTime": _time_us,
    "time.Timestamp": _timestamp_ms,
    "time.MicroTimestamp": _timestamp_us,
    "time.ZonedTimestamp": _zoned,
    "time.ZonedTime": _refuse("time with time zone, whose zone Debezium leaves out"),
    "data.Json": _json,
    "data.geometry.Point": _point,
}
