"""JSON values as texts that PostgreSQL reads as a column's type. Pure.

A text is what the column's input function reads, so no value passes through another type on its way: a number keeps
its digits, and a `json` column gets the JSON value itself.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from hifi.runtime import exact_json
from hifi.runtime.floating_point import EXACT_DIGITS, changes_whole, nearest
from hifi_postgres.destination.arrays import array_text, quoted
from hifi_postgres.destination.column_type import ColumnType, ScalarType

_JSON: Final = frozenset({"json", "jsonb"})
_WHOLE: Final = frozenset({"int2", "int4", "int8", "oid"})
_FLOATING: Final[Mapping[str, int]] = {"float4": 32, "float8": 64}
"""Types of floating-point numbers, and their bits."""
_CHECKED: Final = frozenset({*_FLOATING, "oid"})
"""Types that would make another number of some whole numbers."""
_CUT: Final = frozenset({"varchar", "name", "char"})
"""Types that would cut some texts without an error: spaces at the end, behind 63 bytes, behind one byte."""
_NAME_BYTES: Final = 63
_ONE_BYTE: Final = re.compile(r"[\0-\x7f]?|\\[0-7]{3}")
"""What the type `"char"` reads whole."""
NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[Ee][+-]?\d+)?", re.ASCII)
"""A decimal number, with or without an exponent."""
_MONEY: Final = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_DAY: Final = r"(\d{4,7}-\d\d-\d\d|\d{8})"
_TIME: Final = r"(\d\d:\d\d(:\d\d(\.\d+)?)?|\d{4}(\d\d(\.\d+)?)?)"
_MIDNIGHT: Final = r"(00:00(:00(\.0+)?)?|0000(00(\.0+)?)?)"
_ZONE: Final = r"([Zz]|[+-]\d\d(:?\d\d(:?\d\d)?)?)"
_UTC: Final = r"([Zz]|[+-]00(:?00(:?00)?)?)"
_INFINITY: Final = "-?[Ii]nfinity"
_MOMENT: Final = re.compile(rf"{_DAY}([Tt ]{_TIME}{_ZONE}?)?( BC)?|{_INFINITY}", re.ASCII)
_ISO_8601: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "date": (
        re.compile(rf"{_DAY}([Tt ]{_MIDNIGHT}{_UTC}?)?( BC)?|{_INFINITY}", re.ASCII),
        "the value is no date in ISO 8601, or has a time of day or a zone",
    ),
    "time": (
        re.compile(rf"[Tt]?{_TIME}{_UTC}?", re.ASCII),
        "the value is no time of day in ISO 8601, or has a date or a zone",
    ),
    "timetz": (
        re.compile(rf"[Tt]?{_TIME}{_ZONE}?", re.ASCII),
        "the value is no time of day in ISO 8601, or has a date",
    ),
    "timestamp": (_MOMENT, "the value is no date or time in ISO 8601"),
    "tsrange": (
        re.compile(rf"{_DAY}([Tt ]{_TIME}{_UTC}?)?( BC)?|{_INFINITY}", re.ASCII),
        "the value has a bound that is no date or time in ISO 8601, or has an offset from UTC",
    ),
    "timestamptz": (_MOMENT, "the value is no date or time in ISO 8601"),
}
"""Texts of dates and times whose meaning is in themselves, whatever the day and the session, and what others are."""
_RANGES: Final[Mapping[str, str]] = {
    "daterange": "date",
    "datemultirange": "date",
    "tsrange": "tsrange",  # nothing converts its bounds to UTC
    "tsmultirange": "tsrange",
    "tstzrange": "timestamptz",
    "tstzmultirange": "timestamptz",
}
"""Ranges, and the types of their bounds."""
_INTERVAL: Final = re.compile(
    r"P(-?\d+Y)?(-?\d+M)?(-?\d+W)?(-?\d+D)?(?:T(-?\d+H)?(-?\d+M)?(-?\d+(?:\.\d+)?S)?)?", re.ASCII
)
"""An interval in ISO 8601 with whole parts; its groups are years, months, weeks, days, hours, minutes, seconds."""
_KEPT_PARTS: Final = ((1 << 12, 7), (1 << 11, 6), (1 << 10, 5), (1 << 3, 4), (1 << 1, 2), (1 << 2, 1))
"""Fields of an `interval` (second, minute, hour, day, month, year), and how many parts of a value PostgreSQL keeps if
that is the finest field. It sets the others to 0 without an error."""
_DIMENSIONS: Final = re.compile(r"\s*+(?:\[[\d:+-]++\])++\s*+=")
"""What may precede the elements of an array. Possessive: hostile texts do not make it try again."""
_BETWEEN: Final = re.compile(r"[\[\](){},]")
"""Characters between the elements of an array, or the bounds of a range."""
_NUMBERS, _TEXTS, _BOOLEANS = "N", "S", "B"
"""Categories of types."""
_LONG: Final = range(-(2**63), 2**63)
_MOST_DIGITS: Final = 2_000
"""A number with more places is written with an exponent."""
_KINDS: Final[Mapping[type, str]] = {
    bool: "a truth value",
    int: "a number",
    Decimal: "a number",
    str: "a text",
    dict: "an object",
    list: "a list",
}


class Unfit(ValueError):
    """A value is none of its column's type. The message has no values."""


def kind_of(value: Any) -> str:
    """The kind of a JSON value, for messages."""
    return _KINDS.get(type(value), type(value).__name__)


def column_text(value: Any, column: ColumnType) -> str | None:
    """The text of a value for a column; None: null.

    Args:
        value: as `exact_json` reads it.
        column: type of the column.

    Raises:
        Unfit: the column has no such value, or would change it.
    """
    text = _usual_text(value, column)
    if text is not None:
        return text
    return _scalar_text(value, column) if column.element is None else _elements_text(value, column)


def _usual_text(value: Any, column: ColumnType) -> str | None:
    """The text of most values, without further calls; None: it is another one."""
    kind, category, name = type(value), column.category, column.name
    if kind is str:
        if category == _TEXTS and "\0" not in value and name not in _CUT:
            return str(value)
    elif category == _NUMBERS:
        if kind is int:
            if value in _LONG and name not in _CHECKED:
                return repr(value)
        elif kind is Decimal and name not in _WHOLE:
            text = str(value)
            if "E" not in text and (len(text) <= EXACT_DIGITS or name not in _FLOATING):
                return text
    return None


def _elements_text(value: Any, column: ColumnType) -> str | None:
    """The text of an array."""
    element_type = column.element
    assert element_type is not None
    if isinstance(value, list):
        return _array_text(value, element_type, column.delimiter)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unfit(f"the value is {kind_of(value)}")
    dimensions = _DIMENSIONS.match(value)
    elements_text = value[dimensions.end() :] if dimensions is not None else value
    _check_parts(elements_text, element_type.name)
    if column.interval_fields is not None:
        for element in _BETWEEN.split(elements_text):
            if element.strip().upper() not in {"", "NULL"}:
                _check_interval(element.strip().strip('"'), column.interval_fields)
    return _plain_text(value)


def _scalar_text(value: Any, scalar: ScalarType) -> str | None:
    if value is None:
        return None
    if scalar.name in _JSON:
        return _json_text(value)
    if isinstance(value, str):
        if scalar.name == "bytea":
            return _bytes_text(value)
        if scalar.name in _RANGES:
            _check_parts(value, _RANGES[scalar.name])
        else:
            _check_text(value, scalar.name)
            if scalar.name in _CUT:
                _check_length(value, scalar)
            if scalar.interval_fields is not None:
                _check_interval(value, scalar.interval_fields)
        return _plain_text(value)
    if scalar.name == "hstore" and isinstance(value, dict):
        return _hstore_text(value)
    return _text_of_other(value, scalar)


def _text_of_other(value: Any, scalar: ScalarType) -> str:
    """The text of a value that is neither null nor a text."""
    is_text = scalar.category == _TEXTS
    if isinstance(value, bool):
        if is_text or scalar.category == _BOOLEANS:
            return "true" if value else "false"
    elif isinstance(value, int | Decimal):
        if is_text or scalar.category == _NUMBERS:
            return _number_text(value, scalar.name)
    elif is_text:
        return _json_text(value)
    raise Unfit(f"the value is {kind_of(value)}")


def _check_length(value: str, scalar: ScalarType) -> None:
    """Check that PostgreSQL does not cut a text without an error."""
    if scalar.name == "varchar":
        is_cut = (
            scalar.length is not None and len(value) > scalar.length and not value[scalar.length :].strip(" ")
        )
    elif scalar.name == "name":
        is_cut = len(value.encode()) > _NAME_BYTES
    else:
        is_cut = _ONE_BYTE.fullmatch(value) is None
    if is_cut:
        raise Unfit("the value is a text that is too long for it")


def _check_interval(value: str, fields: int) -> None:
    """Check that a column with some fields of an interval only cuts no part of it."""
    kept_parts = next((parts for bit, parts in _KEPT_PARTS if fields & bit), 0)
    match = _INTERVAL.fullmatch(value.strip())
    if match is None:
        raise Unfit("the value is no interval in ISO 8601 with whole parts, such as P1Y2M")
    if any(part is not None and part.strip("-0.YMWDHS") for part in match.groups()[kept_parts:]):
        raise Unfit("the value has a part that is finer than the fields of the column")


def _number_text(value: int | Decimal, type_name: str) -> str:
    if type_name in _FLOATING:
        _check_whole(value, _FLOATING[type_name])
    elif type_name == "oid" and value < 0:
        raise Unfit("the value is a number below 0")
    if not isinstance(value, int) and type_name not in _WHOLE:
        text = str(value)
        if "E" not in text:
            return text
    if type_name in _WHOLE and not isinstance(value, int) and not _is_whole(value):
        raise Unfit("the value is a number with a fraction")
    if isinstance(value, int):
        # Python refuses to write large numbers with `str`, whose time is quadratic.
        return str(value) if value.bit_length() < 4 * _MOST_DIGITS else str(Decimal(value))
    if type_name in _WHOLE and value.adjusted() < _MOST_DIGITS:
        return str(int(value))
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if abs(exponent) > _MOST_DIGITS or abs(value.adjusted()) > _MOST_DIGITS:
        return str(value)
    return format(value, "f")


def _is_whole(value: Decimal) -> bool:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent >= 0 or not value:
        return True
    return value.adjusted() >= 0 and not any(value.as_tuple().digits[exponent:])


def _check_whole(value: int | Decimal, bits: int) -> None:
    """Check that a floating-point number has a value, if it is a whole number."""
    if changes_whole(value, nearest(value, bits)):
        raise Unfit("the value is a whole number with more digits than the type has")


def _check_text(value: str, type_name: str) -> None:
    """Check that the type reads nothing else than what the text says, whatever the session has set.

    Raises:
        Unfit: it does, or may.
    """
    if type_name in _ISO_8601:
        pattern, mismatch = _ISO_8601[type_name]
        if pattern.fullmatch(value.strip()) is None:
            raise Unfit(mismatch)
    elif type_name in _FLOATING:
        if NUMBER.fullmatch(value.strip()):
            try:
                number = Decimal(value.strip())
            except InvalidOperation:  # its exponent is too large for any type
                return
            _check_whole(number, _FLOATING[type_name])
    elif type_name == "money" and _MONEY.fullmatch(value.strip()) is None:
        raise Unfit("the value is no decimal number such as 1234.50")


def _check_parts(value: str, type_name: str) -> None:
    """Check the elements of an array or the bounds of a range that is written as text."""
    if type_name in _RANGES:
        type_name = _RANGES[type_name]
    if type_name not in _ISO_8601 and type_name not in _FLOATING and type_name != "money":
        return
    for element in _BETWEEN.split(value):
        text = element.strip().replace('\\"', "").strip('"').strip()
        if text and text.lower() not in {"null", "empty"}:
            _check_text(text, type_name)


def _plain_text(value: str | None) -> str | None:
    if value is not None and "\0" in value:
        raise Unfit("the value is a text with the character U+0000, which PostgreSQL does not have")
    return value


def _bytes_text(value: str) -> str:
    r"""Base64, as sources write bytes, or PostgreSQL's own `\x…`."""
    if value.startswith("\\x"):
        return _plain_text(value) or ""
    try:
        return "\\x" + base64.b64decode(value, validate=True).hex()
    except (binascii.Error, ValueError):
        raise Unfit("the value is a text that is neither base64 nor hexadecimal with `\\x`") from None


def _json_text(value: Any) -> str:
    try:
        return exact_json.dumps(value).decode()
    except TypeError as error:
        raise Unfit(f"the value is no JSON: {error}") from None


def _hstore_text(value: Mapping[str, Any]) -> str:
    pairs = list[str]()
    for name, member in value.items():
        if member is not None and not isinstance(member, str):
            raise Unfit("the value is an object with members that are no texts")
        text = "NULL" if member is None else quoted(_plain_text(member) or "")
        pairs.append(f"{quoted(_plain_text(name) or '')}=>{text}")
    return ",".join(pairs)


def _array_text(values: Sequence[Any], scalar: ScalarType, delimiter: str) -> str:
    is_nested = scalar.name not in _JSON and any(isinstance(value, list) for value in values)
    if not is_nested:
        return array_text([_scalar_text(value, scalar) for value in values], delimiter)
    if not all(isinstance(value, list) for value in values):
        raise Unfit("the value is a list of lists and other values")
    if not all(values):
        raise Unfit("the value is a list of empty lists, of which PostgreSQL would keep nothing")
    return "{" + delimiter.join([_array_text(value, scalar, delimiter) for value in values]) + "}"
