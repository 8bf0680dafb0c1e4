"""JSON with every digit of its numbers: `orjson` reads 64-bit numbers only and loses the digits that do not fit. Pure.

For values that a destination keeps, such as a database column. Code that does not look at numbers uses `orjson`.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import orjson

_INT_DIGITS: Final = 1_000
"""A whole number with more digits is read as a Decimal, whose conversion from text takes linear time."""
_MAY_LOSE_DIGITS: Final = re.compile(rb"[:,\[\s]-?\d+(?:[.eE]|(?<=\d{16}))|^\s*-?\d")
"""A number with a fraction, an exponent or 16 digits. Text may match, too: it only takes longer to read then."""


def loads(text: bytes | str) -> Any:
    """Read a JSON document: whole numbers as int, of 1,000 digits and more as Decimal, other numbers as Decimal.

    Raises:
        ValueError: it is no JSON, is nested too deeply, is not UTF-8, or an exponent has more than 18 digits.
    """
    data = text.encode() if isinstance(text, str) else text
    if not _MAY_LOSE_DIGITS.search(data):
        return orjson.loads(data)
    try:
        value = _DECODER.decode(data.decode())
        if rb"\u" in data:
            json.dumps(value, ensure_ascii=False, default=str).encode()  # half of a pair is no character
    except RecursionError:
        raise ValueError("the JSON document is nested too deeply") from None
    return value


def dumps(value: Any) -> bytes:
    """Write a value as `loads` reads it; a Decimal keeps its digits.

    Raises:
        TypeError: JSON has no such value, such as a Decimal that is infinite or no number.
    """
    try:
        return orjson.dumps(value, default=_number)
    except TypeError:
        return orjson.dumps(_with_fragments(value), default=_number)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the exponent of the number {text[:40]} is too large") from None


def _whole_number(text: str) -> int | Decimal:
    return int(text) if len(text) < _INT_DIGITS else Decimal(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"JSON has no {text}")


def _number(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value).encode())
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
