"""JSON with every digit of its numbers: `orjson` reads 64-bit numbers only and loses the digits that do not fit. Pure.

For values that a destination keeps, such as a database column. Code that does not look at numbers uses `orjson`.
"""

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

from hifi.runtime.float_text import FloatText
from hifi.runtime.floating_point import replace_floats

_INT_DIGITS: Final = 1_000
"""A whole number with more digits is read as a Decimal, whose conversion from text takes linear time."""
_PLAIN_DIGITS: Final = 1_000
"""Largest distance of a digit from the decimal point in the plain form of a number."""
_MAY_LOSE_DIGITS: Final = re.compile(rb"[:,\[\s](?:-?\d++(?:[.eE]|(?<=\d{16}))|-0)")
"""A number with a fraction, an exponent or 16 digits, or -0. Text may match, too: it only takes longer to read then."""
_SPACES: Final = " \t\n\r"
_NUMBER: Final = re.compile(rb"\s*-?\d")
"""The beginning of a document that is a number. Within the pattern above it would double the time of a search."""


def loads(text: bytes | str) -> Any:
    """Read a JSON document: whole numbers as int; other numbers, -0, and those of 1,000 digits and more as Decimal.

    Raises:
        ValueError: it is no JSON, is nested too deeply, is not UTF-8, or an exponent has more than 18 digits.
    """
    return _loads(text, _DECODER, Decimal)


def loads_floats(text: bytes | str) -> Any:
    """As `loads`, for code that calculates: numbers with a fraction or an exponent are `FloatText`.

    Raises:
        ValueError: as `loads`.
    """
    return _loads(text, _FLOAT_DECODER, _float_text)


def dumps(value: Any, option: int = 0) -> bytes:
    """Write a value as `loads` or `loads_floats` reads it: numbers keep their digits.

    Args:
        value: to write.
        option: of orjson.

    Raises:
        TypeError: JSON has no such value, such as a Decimal that is infinite or no number.
    """
    try:
        return orjson.dumps(value, default=_number, option=option)
    except TypeError:
        return orjson.dumps(_with_fragments(value), default=_number, option=option)


def is_same(first: Any, second: Any) -> bool:
    """Whether two JSON values are equal; a truth value is no number, at any depth."""
    if isinstance(first, dict):
        return (
            isinstance(second, dict)
            and first.keys() == second.keys()
            and all(is_same(member, second[name]) for name, member in first.items())
        )
    if isinstance(first, list):
        return isinstance(second, list) and len(first) == len(second) and all(map(is_same, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def has_non_finite(value: Any) -> bool:
    """Whether a float within a value is infinite or no number, which orjson writes as null."""
    if isinstance(value, float):
        return not math.isfinite(value) and not isinstance(value, FloatText)
    if isinstance(value, dict):
        return any(map(has_non_finite, value.values()))
    return isinstance(value, list | tuple) and any(map(has_non_finite, value))


def non_finite_as_text(value: Any) -> Any:
    """The value with the texts `NaN`, `Infinity` and `-Infinity` for the floats that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: non_finite_as_text(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [non_finite_as_text(element) for element in value]
    return value


def _loads(text: bytes | str, decoder: json.JSONDecoder, make: Callable[[str], Any]) -> Any:
    """See `loads`; `make` makes a number of the shortest text of a float."""
    data = text.encode() if isinstance(text, str) else text
    try:
        value = orjson.loads(data)
    except ValueError:
        pass  # the decoder says why, or takes numbers that orjson does not
    else:
        if _writes(value, data):  # so each number has its shortest text, with all its digits
            return replace_floats(value, make)
        if not (_MAY_LOSE_DIGITS.search(data) or _NUMBER.match(data)):
            return value
    try:
        document = data.decode().strip(_SPACES)
        value, end = decoder.raw_decode(document)  # `decode` takes half as long again
        if end < len(document):
            raise json.JSONDecodeError("Extra data", document, end)
        if b"\\" in data and rb"\u" in data:  # a search for one byte is ten times as fast
            json.dumps(value, ensure_ascii=False, default=str).encode()  # half of a pair is no character
    except RecursionError:
        raise ValueError("the JSON document is nested too deeply") from None
    return value


def _writes(value: Any, data: bytes) -> bool:
    """Whether orjson writes a value as these bytes."""
    try:
        return orjson.dumps(value) == data
    except TypeError:  # it is nested too deeply
        return False


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the exponent of the number {text[:40]} is too large") from None


def _whole_number(text: str) -> int | Decimal:
    return int(text) if len(text) < _INT_DIGITS and text != "-0" else Decimal(text)


def _float_text(text: str) -> FloatText:
    return FloatText(str(_decimal(text)))


def _whole_number_or_text(text: str) -> int | FloatText:
    value = _whole_number(text)
    return FloatText(str(value)) if isinstance(value, Decimal) else value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"JSON has no {text}")


def _number(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value).encode())
    if isinstance(value, FloatText):
        return orjson.Fragment(value.text.encode())
    raise TypeError(f"JSON has no value for {value!r:.80}")


def _with_fragments(value: Any) -> Any:
    """The value with the whole numbers that orjson refuses as they are written."""
    if isinstance(value, dict):
        return {name: _with_fragments(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_with_fragments(element) for element in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return orjson.Fragment(str(value).encode())
    return value


_DECODER: Final = json.JSONDecoder(
    parse_float=_decimal, parse_int=_whole_number, parse_constant=_refuse_constant
)
_FLOAT_DECODER: Final = json.JSONDecoder(
    parse_float=_float_text, parse_int=_whole_number_or_text, parse_constant=_refuse_constant
)


def canonical_number(number: int | Decimal) -> str:
    """A number in one form: `491234` for 491234, 491234.0 and 4.91234e5."""
    if isinstance(number, int):
        return str(number)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    text = "".join(map(str, digits)).lstrip("0")
    significant_digits = text.rstrip("0")
    if not significant_digits:
        return "0"
    exponent += len(text) - len(significant_digits)
    point = len(significant_digits) + exponent
    minus = "-" if sign else ""
    if not -_PLAIN_DIGITS < point <= _PLAIN_DIGITS or -exponent > _PLAIN_DIGITS:
        return f"{minus}{significant_digits}e{exponent}"
    if exponent >= 0:
        return minus + significant_digits + "0" * exponent
    if point > 0:
        return f"{minus}{significant_digits[:point]}.{significant_digits[point:]}"
    return f"{minus}0.{'0' * -point}{significant_digits}"
