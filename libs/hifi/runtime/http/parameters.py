"""Read numbers in the path or query of a request. Pure."""

from typing import Final

_HIGHEST: Final = 2**63 - 1


def whole_number(text: str, highest: int = _HIGHEST) -> int | None:
    """Read a number from 0 to `highest`, written with the digits 0 to 9; None: the text is none.

    `str.isdigit` alone also takes texts that `int` refuses, such as a superscript, or one with thousands of digits.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(highest)):
        return None
    number = int(text)
    return number if number <= highest else None
