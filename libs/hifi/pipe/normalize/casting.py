"""Cast a value to a declared type without loss. Pure.

Digits are kept when a number becomes text or text a number. No value is rounded: one that does not fit is an error.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from msgspec import Raw

from hifi.pipe.model import Cast
from hifi.pipe.normalize.lazy_json import json_text, to_python

_INTEGER: Final = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}
_MAX_DIGITS: Final = 400

Converter = Callable[[Any], Any]
"""From a slice or value to the converted value.

Raises:
    ValueError: the value does not fit.
"""


def to_string(value: Any) -> Any:
    """Keep text; turn numbers and booleans into their text."""
    text = json_text(value)
    if text[:1] == b'"':
        return value
    if text[:1] in b"{[":
        raise ValueError("an object or an array is not text")
    return text.decode()


def to_integer(value: Any) -> Any:
    """Accept integers, also as text (`"42"`) or with an empty fraction (`5.0`)."""
    text = _number_text(value)
    if _INTEGER.fullmatch(text):
        return Raw(b"%d" % int(text))
    number = _exact(text.encode())
    if number != number.to_integral_value():
        raise ValueError("the number has a fraction")
    return Raw(b"%d" % int(number))


def to_number(value: Any) -> Any:
    """Accept numbers, also as text, and keep their digits."""
    text = _number_text(value).encode()
    _exact(text)
    return Raw(text)


def to_boolean(value: Any) -> Any:
    """Accept booleans, also as text, and 1 and 0."""
    python_value = to_python(value)
    if isinstance(python_value, bool):
        return python_value
    if (
        isinstance(python_value, int | str)
        and (boolean := _BOOLEANS.get(str(python_value).strip().lower())) is not None
    ):
        return boolean
    raise ValueError("not a boolean")


CASTS: Final[Mapping[Cast, Converter]] = {
    Cast.STRING: to_string,
    Cast.INTEGER: to_integer,
    Cast.NUMBER: to_number,
    Cast.BOOLEAN: to_boolean,
}


def _number_text(value: Any) -> str:
    """The text of a number, or of a string that should be one."""
    text = json_text(value)
    if text[:1] == b'"':
        return str(to_python(value)).strip()
    if text[:1] in b"{[tf":
        raise ValueError("not a number")
    return text.decode()


def _exact(text: bytes) -> Decimal:
    """Read a number in JSON's syntax.

    Raises:
        ValueError: not a number, or with more than 400 digits.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    number = Decimal(text.decode())
    if abs(number.adjusted()) > _MAX_DIGITS:
        raise ValueError("out of range")
    return number
