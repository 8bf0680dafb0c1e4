"""Count what decoding a JSON body would make, before it makes it: the elements of an array and the members in them.

One pass in pieces, whose time is linear in the size of the body. An invalid body may be counted wrongly behind the
first error, where decoding ends, too.
"""

import re
from collections.abc import Iterator
from typing import Final

from hifi.record.cloudevents.json_slices import without_escapes

PIECE_BYTES: Final = 64 * 1024
_STRING: Final = re.compile(rb'"[^"]*"')
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_MARKS: Final = bytes(set(range(256)) - set(b'[]{},"'))
_OPEN: Final = ord("[")
_COMMA: Final = ord(",")
_BACKSLASHES: Final = re.compile(rb"\\*")


class Shape:
    """Counts the commas of the two outermost levels, from the pieces that `pieces` returns."""

    def __init__(self) -> None:
        self.outer = 0
        """Commas between the elements of the outermost array or object."""
        self.inner = 0
        """Commas between the members of those."""
        self._depth = 0
        self._in_string = False

    def add(self, piece: bytes) -> None:
        """Count a piece."""
        marks = without_escapes(piece).translate(_BRACKETS, _NOT_MARKS)
        if self._in_string:
            end = marks.find(b'"')
            if end < 0:
                return
            marks = marks[end + 1 :]
        marks = _STRING.sub(b"", marks)
        begin = marks.find(b'"')
        self._in_string = begin >= 0
        if self._in_string:
            marks = marks[:begin]
        depth, outer, inner = self._depth, 0, 0
        for mark in marks:
            if mark == _COMMA:
                if depth == 1:
                    outer += 1
                elif depth == 2:
                    inner += 1
            elif mark == _OPEN:
                depth += 1
            else:
                depth -= 1
        self._depth = depth
        self.outer += outer
        self.inner += inner


def pieces(body: bytes) -> Iterator[bytes]:
    """Pieces of a body of about 64 KiB; none ends within an escape."""
    start = 0
    while start < len(body):
        end = start + PIECE_BYTES
        if body[end - 1 : end] == b"\\":
            escape = _BACKSLASHES.match(body, end)
            assert escape is not None
            end = escape.end() + 1
        yield body[start:end]
        start = end
