"""Uncompress Kafka batches of other producers with a bound on what they unpack to. No I/O."""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam
from aiokafka.codec import _detect_xerial_stream

_GZIP: Final = 31
"""zlib's `wbits` of the gzip format."""
_XERIAL_HEADER_BYTES: Final = 16
_FIRST_RATIO: Final = 8
"""The first guess of the ratio of compression, and its factor after each guess that was too low."""
_LEAST_BYTES: Final = 64 * 1024


class NotUnpacked(Exception):
    """Compressed bytes cannot be unpacked, or only to more than is allowed; the message says which."""


class UnpacksTooFar(NotUnpacked):
    """They unpack to more than is allowed."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"unpacks to more than {max_bytes} bytes")


def unpack(codec: int, packed: bytes, max_bytes: int) -> bytes | memoryview:
    """Unpacked bytes; never more memory than `max_bytes` is used for them.

    Args:
        codec: 1 to 4, as in the attributes of a batch: gzip, snappy, lz4, zstd.
        packed: the compressed bytes.
        max_bytes: largest result.

    Raises:
        NotUnpacked: they cannot be unpacked; UnpacksTooFar: to more than that.
    """
    unpack_with = _CODECS.get(codec)
    if unpack_with is None:
        raise NotUnpacked(f"has the unknown compression {codec}")
    try:
        return unpack_with(packed, max_bytes)
    except NotUnpacked:
        raise
    except (zlib.error, struct.error, cramjam.DecompressionError, ValueError, OSError) as error:
        raise NotUnpacked(f"cannot be unpacked ({error})") from error


def _gzip(packed: bytes, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    remaining_bytes = max_bytes
    while packed:
        member = zlib.decompressobj(_GZIP)
        chunk = member.decompress(packed, remaining_bytes + 1)
        remaining_bytes -= len(chunk)
        if remaining_bytes < 0:
            raise UnpacksTooFar(max_bytes)
        if not member.eof:
            raise NotUnpacked("cannot be unpacked (it ends too early)")
        chunks.append(chunk)
        packed = member.unused_data
    return b"".join(chunks)


def _snappy(packed: bytes, max_bytes: int) -> bytes:
    if not _detect_xerial_stream(packed):
        return _snappy_block(packed, max_bytes, max_bytes)
    chunks: list[bytes] = []
    position, remaining_bytes = _XERIAL_HEADER_BYTES, max_bytes
    while position < len(packed):
        [size] = struct.unpack_from("!I", packed, position)
        chunk = _snappy_block(packed[position + 4 : position + 4 + size], remaining_bytes, max_bytes)
        remaining_bytes -= len(chunk)
        chunks.append(chunk)
        position += 4 + size
    return b"".join(chunks)


def _snappy_block(packed: bytes, remaining_bytes: int, max_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(packed) > remaining_bytes:
        raise UnpacksTooFar(max_bytes)
    return bytes(cramjam.snappy.decompress_raw(packed))


def _into_buffer(decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], memoryview]:
    """A function that unpacks into buffers of rising sizes: the formats need not tell the size of their content."""

    def unpack_with(packed: bytes, max_bytes: int) -> memoryview:
        size = max(_FIRST_RATIO * len(packed), _LEAST_BYTES)
        while True:
            size = min(size, max_bytes)
            buffer = bytearray(size)
            try:
                return memoryview(buffer)[: decompress_into(packed, buffer)]
            except cramjam.DecompressionError as error:
                if size < max_bytes:
                    size *= _FIRST_RATIO
                elif "whole buffer" in str(error):
                    raise UnpacksTooFar(max_bytes) from error
                else:
                    raise

    return unpack_with


_CODECS: Final[dict[int, Callable[[bytes, int], bytes | memoryview]]] = {
    1: _gzip,
    2: _snappy,
    3: _into_buffer(cramjam.lz4.decompress_into),
    4: _into_buffer(cramjam.zstd.decompress_into),
}
