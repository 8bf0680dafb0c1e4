"""The header `hifi_refused` of events of a source that cannot be read: why normalize makes dead letters of them. Pure.

<reason>;<detail>
"""

from typing import NamedTuple

from hifi.record.headers import REFUSED
from hifi.record.packed_text import SEPARATOR


class SourceRefusal(NamedTuple):
    """Why an event cannot be read."""

    reason: str
    """A short stable code."""
    detail: str
    """One sentence, without data of the event."""


def refusal_header(reason: str, detail: str) -> tuple[str, bytes]:
    """The header; the arguments are the fields of `SourceRefusal`."""
    return REFUSED, b"%b%b%b" % (reason.encode(), SEPARATOR, detail.encode())


def parse_refusal(header: bytes) -> SourceRefusal:
    """Read the value of the header."""
    reason, _, detail = header.partition(SEPARATOR)
    return SourceRefusal(reason.decode("utf-8", "replace"), detail.decode("utf-8", "replace"))
