"""Compressed files as what they contain. The first bytes tell how a file is compressed, whatever its name is."""

import bz2
import gzip
import io
from typing import Any, BinaryIO, Final, cast

from hifi_objects.source.rows.row import UnreadableObject

_HEAD: Final = 10
_CHUNK_BYTES: Final = 1024 * 1024
_BZ2_BLOCKS: Final = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
"""Beginnings of the first block, and of the end of a file without one."""
_SKIPPED: Final = [bytes([byte]) for byte in range(0x50, 0x60)]
"""First bytes of frames that readers of zstd leave out; pzstd begins a file with one."""
_UNKNOWN: Final = {
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    b"\x1f\x9d": "compress",
}


class _LeftOpen(io.RawIOBase):
    """A file that pyarrow reads, and does not close when it forgets it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes of the file."""
        return self._file.read(size)


class _Zstd(io.RawIOBase):
    """A stream of zstd that knows how far it is read, as readers of Avro ask. A damaged one is read to its damage.

    The library returns nothing of a piece that ends in damage: then the stream is read again, byte by byte.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._read_bytes = 0
        self._is_damaged = False
        self._stream = self._open()

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def tell(self) -> int:
        """Position in the stream, bytes."""
        return self._read_bytes

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer.

        Raises:
            OSError: the next byte cannot be read.
        """
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        self._read_bytes += len(content)
        return len(content)

    def _read(self, size: int) -> bytes:
        if not self._is_damaged:
            try:
                return cast("bytes", self._stream.read(size))
            except OSError as error:
                if error.errno is not None:  # of the file
                    raise
            self._is_damaged = True
            self._file.seek(0)
            self._stream = self._open()
            remaining_bytes = self._read_bytes
            while remaining_bytes:
                remaining_bytes -= len(self._stream.read(min(remaining_bytes, _CHUNK_BYTES)))
        return cast("bytes", self._stream.read(1))

    def _open(self) -> Any:
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(_LeftOpen(self._file), "r"), "zstd")


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
    if head.startswith(b"BZh") and head[4:] in _BZ2_BLOCKS:
        return cast("BinaryIO", bz2.open(file))
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[:1] in _SKIPPED and head[1:4] == b"\x2a\x4d\x18"):
        return cast("BinaryIO", io.BufferedReader(_Zstd(file), _CHUNK_BYTES))
    for magic, name in _UNKNOWN.items():
        if head.startswith(magic):
            raise UnreadableObject(
                "unknown-compression", f"the object is compressed with {name}; gzip, zstd and bz2 can be read"
            )
    return file
