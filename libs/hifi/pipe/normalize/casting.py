"""Turning one value into another type, exactly. Pure.

A number that was sent as text, and the other way round, keeps its digits. Nothing is rounded and nothing is guessed:
what does not fit is refused.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec import Raw

from hifi.pipe.model import Cast
from hifi.pipe.normalize.lazy_json import plain, text_of

_INTEGER: Final = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_MOST_DIGITS: Final = 400

Converter = Callable[[Any], Any]
"""From a slice or value to a new one.

Raises:
    ValueError: it does not fit.
"""


def to_string(value: Any) -> Any:
    """Text stays, numbers and booleans become their text."""
    text = text_of(value)
    if text[:1] == b'"':
        return value
    if text[:1] in b"{[":
        raise ValueError("an object or an array has no text")
    return text.decode()


def to_integer(value: Any) -> Any:
    """Whole numbers, also as text or with an empty fraction."""
    text = _number_text(value)
    if _INTEGER.fullmatch(text):
        return Raw(b"%d" % int(text))
    number = _exact(text.encode())
    if number != number.to_integral_value():
        raise ValueError("the number has a fraction")
    return Raw(b"%d" % int(number))


def to_number(value: Any) -> Any:
    """Numbers, also as text, with the digits that were sent."""
    text = _number_text(value).encode()
    _exact(text)
    return Raw(text)


def to_boolean(value: Any) -> Any:
    """Booleans, also as text, and 1 and 0."""
    known = plain(value)
    if isinstance(known, bool):
        return known
    if isinstance(known, int | str) and (found := _BOOLEANS.get(str(known).strip().lower())) is not None:
        return found
    raise ValueError("neither true nor false")


CASTS: Final[Mapping[Cast, Converter]] = {
    Cast.STRING: to_string,
    Cast.INTEGER: to_integer,
    Cast.NUMBER: to_number,
    Cast.BOOLEAN: to_boolean,
}


def _number_text(value: Any) -> str:
    """The text of a number, or of a string that should hold one."""
    text = text_of(value)
    if text[:1] == b'"':
        return str(plain(value)).strip()
    if text[:1] in b"{[tf":
        raise ValueError("not a number")
    return text.decode()


def _exact(text: bytes) -> Decimal:
    """The number that a text of JSON's number syntax says.

    Raises:
        ValueError: it says none, or one of absurd size.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    number = Decimal(text.decode())
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError("out of range")
    return number
