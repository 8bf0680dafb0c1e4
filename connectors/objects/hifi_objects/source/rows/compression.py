"""Compressed files as what they contain. The first bytes tell how a file is compressed, whatever its name is."""

import bz2
import gzip
import io
from typing import Any, BinaryIO, Final, cast

from hifi_objects.source.rows.row import UnreadableObject

_HEAD: Final = 10
_UNKNOWN: Final = {
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x1f\x9d": "compress",
}


class _Counted(io.RawIOBase):
    """A stream that knows how far it is read: readers of Avro ask for it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._read_bytes = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def tell(self) -> int:
        """Position in the stream, bytes."""
        return self._read_bytes

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer."""
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._read_bytes += len(content)
        return len(content)


def decompressed(file: BinaryIO) -> BinaryIO:
    """The content of a file that may be compressed with gzip, zstd or bz2.

    Args:
        file: at its beginning.

    Raises:
        UnreadableObject: it is compressed in another way.
    """
    head = file.read(_HEAD)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.open(file))
    if head.startswith(b"BZh") and head[4:] == b"1AY&SY":
        return cast("BinaryIO", bz2.open(file))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa

        native = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        return cast("BinaryIO", io.BufferedReader(_Counted(native), 1024 * 1024))
    for magic, name in _UNKNOWN.items():
        if head.startswith(magic):
            raise UnreadableObject(
                "unknown-compression", f"the object is compressed with {name}; gzip, zstd and bz2 can be read"
            )
    return file
