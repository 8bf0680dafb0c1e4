"""Messages between normalize and a worker: kind (one byte), number of the call and length (four bytes each), content.

Pure.
"""

import struct
from typing import Final

HEADER: Final = struct.Struct("!cII")

CALL: Final = b"c"
"""To a worker: the data of an event. The answers have the order and the numbers of the calls."""
READY: Final = b"r"
"""From a worker: the function was imported."""
UNUSABLE: Final = b"u"
"""From a worker: the function cannot be used; the content is the reason."""
RESULT: Final = b"o"
"""From a worker: the new data."""
REJECTED: Final = b"x"
"""From a worker: the reason, a zero byte, and the detail."""


def frame(kind: bytes, content: bytes, number: int = 0) -> bytes:
    """A message; `number`: of the call, modulo 2^32."""
    return HEADER.pack(kind, number % 2**32, len(content)) + content
