"""Durations in options after which something expires. Pure."""

from typing import Final

from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import seconds

LONGEST_S: Final = 100 * 366 * 86_400.0
"""100 years, seconds: no calendar lacks the time then."""


def duration_s(option: str, text: str, *, may_be_zero: bool = False) -> float:
    """A duration such as `12h` or `30d`, seconds.

    Args:
        option: that has the text, for the error.
        text: as it was given.
        may_be_zero: whether it may be nothing.

    Raises:
        Misconfigured: it is none, is nothing, or is longer than 100 years.
    """
    try:
        given_s = float(seconds(text))
    except (ValueError, OverflowError):
        raise Misconfigured(f"{option} {text}: write a duration such as 12h or 30d") from None
    if not (0 < given_s <= LONGEST_S or (may_be_zero and given_s == 0)):
        raise Misconfigured(f"{option} {text}: write a duration of at most 100 years, such as 12h or 30d")
    return given_s
