"""Count the elements of a JSON array and their members before it is decoded.

One pass in chunks, whose time is linear in the size of the body. An invalid body may be counted wrongly behind the
first error, where decoding ends, too.
"""

import re
from collections.abc import Iterator
from typing import Final

from hifi.record.cloudevents.json_slices import without_escapes

CHUNK_BYTES: Final = 64 * 1024
_STRING: Final = re.compile(rb'"[^"]*"')
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_PUNCTUATION: Final = bytes(set(range(256)) - set(b'[]{},"'))
_OPEN: Final = ord("[")
_COMMA: Final = ord(",")
_BACKSLASHES: Final = re.compile(rb"\\*")


class Shape:
    """Counts the commas of the two outermost levels, from the chunks that `chunks` returns."""

    def __init__(self) -> None:
        self.outer = 0
        """Commas between the elements of the outermost array or object."""
        self.inner = 0
        """Commas between the members of those."""
        self._depth = 0
        self._in_string = False

    def add(self, chunk: bytes) -> None:
        """Count the commas of a chunk."""
        punctuation = without_escapes(chunk).translate(_BRACKETS, _NOT_PUNCTUATION)
        if self._in_string:
            closing_quote = punctuation.find(b'"')
            if closing_quote < 0:
                return
            punctuation = punctuation[closing_quote + 1 :]
        punctuation = _STRING.sub(b"", punctuation)
        opening_quote = punctuation.find(b'"')
        self._in_string = opening_quote >= 0
        if self._in_string:
            punctuation = punctuation[:opening_quote]
        depth, outer_commas, inner_commas = self._depth, 0, 0
        for character in punctuation:
            if character == _COMMA:
                if depth == 1:
                    outer_commas += 1
                elif depth == 2:
                    inner_commas += 1
            elif character == _OPEN:
                depth += 1
            else:
                depth -= 1
        self._depth = depth
        self.outer += outer_commas
        self.inner += inner_commas


def chunks(body: bytes) -> Iterator[bytes]:
    """Split a body into chunks of about 64 KiB; none ends within an escape."""
    start = 0
    while start < len(body):
        end = start + CHUNK_BYTES
        if body[end - 1 : end] == b"\\":
            escape = _BACKSLASHES.match(body, end)
            assert escape is not None
            end = escape.end() + 1
        yield body[start:end]
        start = end
