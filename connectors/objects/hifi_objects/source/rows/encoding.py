"""The text of an object as UTF-8, by its declared encoding. Other text in UTF-16 or UTF-32 is refused by name."""

import codecs
import io
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, cast

from hifi_objects.source.rows.compression import decompressed
from hifi_objects.source.rows.row import UnreadableObject

UTF8: Final = "utf-8"
_HEAD_BYTES: Final = 4096
_CHUNK_BYTES: Final = 64 * 1024
_MARKS: Final = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: UTF8,
}
"""Byte order marks; that of UTF-32-LE begins with that of UTF-16-LE, so it is looked for first."""
_ORDERS: Final = (
    ("utf-32", (0, 1, 2, 3)),
    ("utf-32", (3, 2, 1, 0)),
    ("utf-16-le", (0, 1)),
    ("utf-16-be", (1, 0)),
)
"""Encodings and the significance of the bytes of a character. Line feeds of UTF-32 look like those of UTF-16."""
_NO_CONTROLS: Final = bytes([*b"\0\t\n\r", *range(0x20, 0x100)])
"""Bytes of text in UTF-8, NUL included; others are bytes of wide characters."""
_NUL_SHARE: Final = 0.3
"""Share of NUL bytes at even or at odd places from which on text without line feeds is taken for UTF-16."""


def utf8_text(file: BinaryIO, encoding: str) -> BinaryIO:
    """The content of a file that may be compressed, as UTF-8.

    Args:
        file: at its beginning.
        encoding: of the content, as the pipe declares it.

    Raises:
        UnreadableObject: it is compressed in an unknown way, or is in another encoding.
    """
    content = decompressed(file)
    head = cast("io.BufferedIOBase", content).read1(_HEAD_BYTES)
    if head:
        _check(head, encoding)
    reader = io.BufferedReader(_Joined(head, content), _CHUNK_BYTES)
    if encoding == UTF8:
        return cast("BinaryIO", reader)
    return cast("BinaryIO", io.BufferedReader(_Transcoded(cast("BinaryIO", reader), encoding), _CHUNK_BYTES))


def _check(head: bytes, encoding: str) -> None:
    """Refuse text that is obviously in another encoding than the declared one, which would be read as nonsense."""
    actual_encoding = recognized(head)
    if actual_encoding is None:
        if encoding.startswith("utf-16") and (encoding == "utf-16" or b"\0" not in head):
            raise UnreadableObject(
                "unknown-encoding", f"the object is not in {encoding.upper()}, as it is declared"
            )
        return
    byte_order_marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    if actual_encoding == encoding or (
        actual_encoding == "utf-16"
        and encoding in byte_order_marks
        and head.startswith(byte_order_marks[encoding])
    ):
        return
    remedy = "" if actual_encoding == "utf-32" else f"; declare `encoding: {actual_encoding}`"
    raise UnreadableObject(
        "unknown-encoding", f"the object is in {actual_encoding.upper()}, not in {encoding.upper()}{remedy}"
    )


def recognized(head: bytes) -> str | None:
    """The encoding that text of another encoding than UTF-8 obviously has; None: it may be UTF-8."""
    for byte_order_mark, name in _MARKS.items():
        if head.startswith(byte_order_mark):
            return name
    feeds = head.count(b"\n")
    for name, order in _ORDERS:
        if feeds and _has_line_feeds(head, feeds, order):
            return name
    return None if feeds else _by_nul_bytes(head[: len(head) // 2 * 2])


def _has_line_feeds(head: bytes, feeds: int, order: Sequence[int]) -> bool:
    """Whether line feeds are characters of two or four bytes, and not the ends of values that have NUL bytes.

    Args:
        head: beginning of the text.
        feeds: bytes in it that are line feeds in UTF-8.
        order: significance of the bytes of a character, in their order; 0: the lowest.
    """
    size = len(order)
    low_bytes = head[order.index(0) :: size]
    high_parts = [head[index::size] for index in range(size) if order[index]]
    latin_bytes = bytes(
        byte for byte, *high_bytes in zip(low_bytes, *high_parts, strict=False) if not any(high_bytes)
    )
    wide_line_feeds = latin_bytes.count(b"\n")
    if not wide_line_feeds or b"\r\n" in head:
        return False
    if head.translate(None, _NO_CONTROLS):  # low bytes of other characters may look like line feeds
        return wide_line_feeds * 4 > low_bytes.count(b"\n")
    return wide_line_feeds == feeds and sum(0x20 <= byte < 0x7F for byte in latin_bytes) >= wide_line_feeds


def _by_nul_bytes(head: bytes) -> str | None:
    """The encoding of a text without line feeds."""
    even_nuls, odd_nuls = head[::2].count(0), head[1::2].count(0)
    if (
        max(even_nuls, odd_nuls) <= len(head) / 2 * _NUL_SHARE
        or min(even_nuls, odd_nuls) >= max(even_nuls, odd_nuls) / 10
    ):
        return None
    return "utf-16-be" if even_nuls > odd_nuls else "utf-16-le"


class _Joined(io.RawIOBase):
    """A stream whose beginning was read already."""

    def __init__(self, head: bytes, remainder: BinaryIO) -> None:
        self._head = head
        self._remainder = remainder

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer."""
        content = self._head or cast("io.BufferedIOBase", self._remainder).read1(len(buffer))
        self._head = content[len(buffer) :]
        content = content[: len(buffer)]
        buffer[: len(content)] = content
        return len(content)


class _Transcoded(io.RawIOBase):
    """Text of another encoding as UTF-8. What cannot be decoded becomes bytes that are no UTF-8: its row is refused."""

    def __init__(self, content: BinaryIO, encoding: str) -> None:
        self._content = content
        errors = "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._errors = errors
        self._pending = b""
        self._at_end = False

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer."""
        while not self._pending and not self._at_end:
            chunk = self._content.read(_CHUNK_BYTES)
            self._at_end = not chunk
            self._pending = self._decoder.decode(chunk, self._at_end).encode(UTF8, self._errors)
        count = min(len(buffer), len(self._pending))
        buffer[:count], self._pending = self._pending[:count], self._pending[count:]
        return count
