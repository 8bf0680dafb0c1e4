"""The text of a packed header: ASCII fields, separated by semicolons. Pure."""

from typing import Final

SEPARATOR: Final = b";"
MAX_DIGITS: Final = 18
"""A whole number has 1 to 18 digits, so that it fits into 64 bits, and no sign."""


def is_number(text: bytes) -> bool:
    """Whether the text of a field is a whole number."""
    return len(text) <= MAX_DIGITS and text.isdigit()


def is_number_up_to(text: bytes, last: bytes) -> bool:
    """Whether the text of a field is a whole number, with no more digits than the last one that it may be."""
    length = len(text)
    return text.isdigit() and (length < len(last) or (length == len(last) and text <= last))
