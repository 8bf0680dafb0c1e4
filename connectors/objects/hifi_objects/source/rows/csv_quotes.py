"""Follow the quotes of a CSV record that is too large to be parsed, to find its end. Pure."""

from typing import Final

_FIELD_START: Final = 0
_UNQUOTED: Final = 1
_QUOTED: Final = 2
_AFTER_QUOTE: Final = 3
"""After a quote within a quoted field, which ends the field unless another quote follows."""

_QUOTE: Final = ord('"')


class QuoteScanner:
    """Reads a record piece by piece, as the parser does in strict mode.

    Attributes:
        open: whether the record goes on behind the pieces read so far: they end within a quoted field.
    """

    def __init__(self, delimiter: str) -> None:
        """Begin a record."""
        self._delimiter = delimiter.encode()
        self._state = _FIELD_START

    @property
    def open(self) -> bool:
        """See the class."""
        return self._state == _QUOTED

    def read(self, chunk: bytes) -> None:
        """Read the next chunk. Behind a quoted field with something after its quote the rest is not quoted."""
        state, index, delimiter = self._state, 0, self._delimiter
        if state == _AFTER_QUOTE and chunk.startswith(b'"'):  # the second one of a pair
            state, chunk = _QUOTED, chunk[1:]
        chunk = chunk.replace(b'""', b"")  # a pair changes no state, wherever it is
        while index < len(chunk):
            if state == _QUOTED:
                index = chunk.find(b'"', index) + 1
                if not index:
                    break
                state = _AFTER_QUOTE
            elif state == _UNQUOTED:
                index = chunk.find(delimiter, index) + 1
                if not index:
                    break
                state = _FIELD_START
            elif chunk[index] == _QUOTE:
                state, index = _QUOTED, index + 1
            elif chunk[index : index + 1] == delimiter:
                state, index = _FIELD_START, index + 1
            else:
                state = _UNQUOTED
        self._state = state
