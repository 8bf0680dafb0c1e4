"""The items of a JSON array of any size, one by one, as they are written. Pure, apart from reading.

Only brackets, strings and commas are looked at, so an item may be no JSON, and its digits, names and their order stay.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

_CHUNK_BYTES: Final = 256 * 1024
_MOST_DEPTH: Final = 100_000
_SPACE: Final = b" \t\r\n"
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BETWEEN_ITEMS: Final = re.compile(rb'(?:[^\]\[{}",]++|%b)*+' % _STRING, re.DOTALL)
_WITHIN_ITEM: Final = re.compile(rb'(?:[^\]\[{}"]++|%b)*+' % _STRING, re.DOTALL)
_WITHIN_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_CLOSED_BY: Final = {ord("["): ord("]"), ord("{"): ord("}")}
_COMMA, _QUOTE, _END = b',"]'


class ArrayItem(NamedTuple):
    """One item."""

    start: int
    """Byte of the file where it begins, from 0."""
    text: bytes | None
    """Without white space around it; None: it is too long."""


class NotAnArray(Exception):
    """The array is damaged: from a byte on its items cannot be separated."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {offset}")


class ArrayItems:
    """Reads an array with memory for one item."""

    def __init__(self, reader: BinaryIO, start: int, most_bytes: int) -> None:
        """Read nothing yet.

        Args:
            reader: at the bracket that begins the array.
            start: byte of the file where that is.
            most_bytes: the largest item.
        """
        self._reader = reader
        self._most_bytes = most_bytes
        self._chunk = b""
        self._start = start
        """Byte of the file where the chunk begins."""
        self._index = 0
        """Index in the chunk of what is read next."""
        self._text = bytearray()
        """Of the item so far."""
        self._item_start = start
        self._is_too_long = False

    def __iter__(self) -> Iterator[ArrayItem]:
        """The items.

        Raises:
            NotAnArray: after the items before it.
        """
        if not self._read_chunk():
            return
        self._index = 1
        self._begin_item()
        count, is_last = 0, False
        while not is_last:
            is_last = self._read_item()
            item = self._item()
            if item.text != b"" or not is_last or count:
                count += 1
                yield item
            self._begin_item()
        self._require_end()

    def _read_item(self) -> bool:
        """Read up to the comma or bracket that ends an item, and over it. Returns whether it is the last one."""
        open_brackets = bytearray()
        while True:
            byte = self._next(_WITHIN_ITEM if open_brackets else _BETWEEN_ITEMS)
            if byte is None:
                raise NotAnArray(self._position(), "the array does not end")
            if byte in _CLOSED_BY:
                open_brackets.append(_CLOSED_BY[byte])
                if len(open_brackets) > _MOST_DEPTH:
                    raise NotAnArray(self._position(), "an item is nested too deeply")
            elif byte == _QUOTE:
                self._skip_string()
                continue
            elif open_brackets and byte == open_brackets[-1]:
                open_brackets.pop()
            elif not open_brackets and byte in (_COMMA, _END):
                self._index += 1
                return byte == _END
            else:
                raise NotAnArray(self._position(), f"a bracket {chr(byte)} does not match")
            self._keep(self._index + 1)

    def _next(self, skipped_pattern: re.Pattern[bytes]) -> int | None:
        """The next byte that a pattern does not skip; None: the file ends."""
        while True:
            match = skipped_pattern.match(self._chunk, self._index)
            assert match is not None  # it may be empty
            self._keep(match.end())
            if self._index < len(self._chunk):
                return self._chunk[self._index]
            if not self._read_chunk():
                return None

    def _skip_string(self) -> None:
        """Read over a string whose end is not in the chunk."""
        start = self._position()
        self._keep(self._index + 1)
        while True:
            match = _WITHIN_STRING.match(self._chunk, self._index)
            assert match is not None  # it may be empty
            self._keep(match.end())
            is_escape = self._index == len(self._chunk) - 1 and self._chunk[self._index] != _QUOTE
            if self._index < len(self._chunk) and not is_escape:
                self._keep(self._index + 1)
                return
            self._keep(len(self._chunk))
            if not self._read_chunk():
                raise NotAnArray(start, "a string does not end")
            if is_escape:
                self._keep(1)

    def _keep(self, end: int) -> None:
        """Add the bytes up to an index to the item."""
        if not self._is_too_long:
            self._text += self._chunk[self._index : end]
            if len(self._text) > self._most_bytes:
                self._is_too_long = True
                self._text.clear()
        self._index = end

    def _read_chunk(self) -> bool:
        """Read the next chunk; False: the file ends."""
        self._start += len(self._chunk)
        self._chunk, self._index = self._reader.read(_CHUNK_BYTES), 0
        return bool(self._chunk)

    def _begin_item(self) -> None:
        self._text, self._is_too_long, self._item_start = bytearray(), False, self._position()

    def _item(self) -> ArrayItem:
        return ArrayItem(self._item_start, None if self._is_too_long else bytes(self._text.strip(_SPACE)))

    def _position(self) -> int:
        return self._start + self._index

    def _require_end(self) -> None:
        """Raise NotAnArray if anything but white space follows the array."""
        while True:
            remainder = self._chunk[self._index :].lstrip(_SPACE)
            if remainder:
                raise NotAnArray(
                    self._start + len(self._chunk) - len(remainder), "the array has ended, but more follows"
                )
            if not self._read_chunk():
                return
