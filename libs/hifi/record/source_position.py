"""The header `hifi_position`, which events have third that were read from a source. Pure.

<run>;<position>;<source>
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hifi.record.headers import POSITION
from hifi.record.packed_text import SEPARATOR, is_number_up_to
from hifi.runtime.errors import NotAnEvent

LAST_POSITION: Final = b"18446744073709551615"
"""The highest position: it is not negative and has up to 64 bits."""


class SourcePosition(NamedTuple):
    """The position of an event in a source. It is the same, but for the run, each time the event is read."""

    run: bytes
    """16 hex digits, random for each stretch in which one reader read the source partition without going back."""
    position: int
    """Of the event within the source partition, such as an offset. Within a run positions rise."""
    source: bytes
    """Name of the source partition, such as `kafka/<cluster id>/<topic>/<topic id>/<partition>`."""


def position_header(run: bytes, position: int, source: bytes) -> tuple[str, bytes]:
    """The header; the arguments are the fields of `SourcePosition`."""
    return POSITION, b"%b;%d;%b" % (run, position, source)


def source_position(headers: Sequence[tuple[str, bytes | None]]) -> SourcePosition | None:
    """Read the header; None: the event was not read from a source.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is malformed.
    """
    if len(headers) < 3 or headers[2][0] != POSITION:
        return None
    texts = (headers[2][1] or b"").split(SEPARATOR, 2)  # the name of the source may have semicolons
    if len(texts) < 3 or not is_number_up_to(texts[1], LAST_POSITION):
        raise NotAnEvent(f"the header {POSITION} is malformed")
    return SourcePosition(texts[0], int(texts[1]), texts[2])
