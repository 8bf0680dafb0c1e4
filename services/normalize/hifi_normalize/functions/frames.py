"""Messages between normalize and a worker: a kind of one byte, the length in four bytes, the content. Pure."""

import struct
from typing import Final

HEADER: Final = struct.Struct("!cI")

CALL: Final = b"c"
"""To a worker: the data of an event. The answers have the order of the calls."""
READY: Final = b"r"
"""From a worker: the function was imported."""
UNUSABLE: Final = b"u"
"""From a worker: the function cannot be used; the content tells why."""
RESULT: Final = b"o"
"""From a worker: the new data."""
REJECTED: Final = b"x"
"""From a worker: the reason, a zero byte, and the detail."""


def frame(kind: bytes, content: bytes) -> bytes:
    """A message."""
    return HEADER.pack(kind, len(content)) + content
