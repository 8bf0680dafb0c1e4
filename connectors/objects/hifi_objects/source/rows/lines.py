"""The lines of a text, with their numbers. Lines can be put back, to be read again."""

from collections import deque
from collections.abc import Callable
from typing import BinaryIO, Final

from hifi.record.cloudevents.json_slices import without_bom

_CHUNK_BYTES: Final = 64 * 1024


class Lines:
    """Reads lines. Of one that is too long it reads the beginning."""

    def __init__(self, content: BinaryIO, max_bytes: int) -> None:
        """Read nothing yet.

        Args:
            content: UTF-8; a byte order mark at its beginning is left out.
            max_bytes: longest line that is read whole.
        """
        self._content = content
        self._max_bytes = max_bytes
        self._returned_lines: deque[bytes] = deque()
        self._first = True
        self.number = 0
        """Of the last line, from 1."""

    def next(self) -> bytes:
        """The next line with its end, or more than `max_bytes` bytes of it: call `skip_rest`; empty: there is none."""
        if self._returned_lines:
            line = self._returned_lines.popleft()
        else:
            line = self._content.readline(self._max_bytes + 1)
            if self._first:
                line = without_bom(line)
                self._first = False
        self.number += line != b""
        return line

    def skip_rest(self, line: bytes, use: Callable[[bytes], None] | None = None) -> int:
        """Read a line that is too long to its end.

        Args:
            line: its beginning, as `next` has returned it.
            use: is called with each further piece.

        Returns:
            The size of the whole line, bytes.
        """
        size, end = len(line), line
        while not end.endswith(b"\n") and (end := self._content.readline(_CHUNK_BYTES)):
            size += len(end)
            if use is not None:
                use(end)
        return size

    def put_back(self, lines: list[bytes]) -> None:
        """Have the last lines read again, from the first of these on."""
        self._returned_lines.extendleft(reversed(lines))
        self.number -= len(lines)
