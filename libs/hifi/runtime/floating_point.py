"""Floating-point numbers: those that keep a whole number, and those within a JSON value. Pure."""

import math
from collections.abc import Callable
from decimal import Decimal
from struct import pack, unpack
from typing import Any, Final

_SINGLE: Final = 32
EXACT_DIGITS: Final = 7
"""Number of digits up to which each whole number is a floating-point number, of 32 bits, too."""

_HOLD_FLOATS: Final = frozenset({float, dict, list})
"""Types of values of JSON that are a float or may have one."""


def nearest(value: float | Decimal, bits: int) -> float:
    """The nearest floating-point number; infinite: the value is too large.

    Args:
        value: a number.
        bits: 32 or 64.
    """
    try:
        number = float(value)
        return float(unpack("f", pack("f", number))[0]) if bits == _SINGLE else number
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def changes_whole(value: int | Decimal, number: float) -> bool:
    """Whether a value is a whole number, and its nearest floating-point number another one.

    A value with an exponent says no more than its digits: 1e23 is the number 99999999999999991611392, which is written
    so.

    Args:
        value: a number.
        number: the nearest floating-point number.
    """
    if isinstance(value, Decimal) and value.adjusted() < EXACT_DIGITS:  # without a slow comparison
        return False
    if number == value:
        return False
    if isinstance(value, int):
        return True
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # it is not finite
        return False
    if exponent > 0:
        # The shortest text of a number is not always one that is rounded.
        shortest_texts = [f"{number:.{len(digits) - 1}e}", repr(number)]
        return math.isinf(number) or all(Decimal(text) != value for text in shortest_texts)
    return value.adjusted() >= 0 and not (exponent and any(digits[exponent:]))


def replace_floats(value: Any, make: Callable[[str], Any]) -> Any:
    """A JSON value in which each float is replaced, in place, by what is made of its shortest text.

    Args:
        value: as `orjson.loads` reads it.
        make: of the text of a float.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    kind = type(value)
    if kind is float:
        return make(repr(value))
    if kind is dict:
        for name, member in value.items():
            if type(member) in _HOLD_FLOATS:
                value[name] = replace_floats(member, make)
    elif kind is list:
        for index, element in enumerate(value):
            if type(element) in _HOLD_FLOATS:
                value[index] = replace_floats(element, make)
    return value
