"""Moments as people name them on a command line. Pure."""

from datetime import datetime
from typing import Final

from hifi.errors import Misconfigured
from hifi.units import seconds

_HOW: Final = "write for example 90m, 2h or 7d (ago), or 2026-01-31T23:59:59Z"


def milliseconds_since_1970(text: str | None, now_s: float) -> int | None:
    """A duration before now, or a time of RFC 3339 (of this machine's zone where it names none).

    Raises:
        Misconfigured: it is neither.
    """
    if text is None:
        return None
    try:
        return int((now_s - float(seconds(text))) * 1000)
    except ValueError:
        pass
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise Misconfigured(f"{text!r} is no moment; {_HOW}") from None
