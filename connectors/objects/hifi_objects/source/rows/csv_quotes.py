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

    def read(self, piece: bytes) -> None:
        """Read the next piece. Behind a quoted field with something after its quote the rest is not quoted."""
        state, at, delimiter = self._state, 0, self._delimiter
        if state == _AFTER_QUOTE and piece.startswith(b'"'):  # the second one of a pair
            state, piece = _QUOTED, piece[1:]
        piece = piece.replace(b'""', b"")  # a pair changes no state, wherever it is
        while at < len(piece):
            if state == _QUOTED:
                at = piece.find(b'"', at) + 1
                if not at:
                    break
                state = _AFTER_QUOTE
            elif state == _UNQUOTED:
                at = piece.find(delimiter, at) + 1
                if not at:
                    break
                state = _FIELD_START
            elif piece[at] == _QUOTE:
                state, at = _QUOTED, at + 1
            elif piece[at : at + 1] == delimiter:
                state, at = _FIELD_START, at + 1
            else:
                state = _UNQUOTED
        self._state = state
