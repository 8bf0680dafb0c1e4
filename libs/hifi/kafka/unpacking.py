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

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"unpacks to more than {most_bytes} bytes")


def unpack(codec: int, packed: bytes, most_bytes: int) -> bytes | memoryview:
    """Unpacked bytes; never more memory than `most_bytes` is used for them.

    Args:
        codec: 1 to 4, as in the attributes of a batch: gzip, snappy, lz4, zstd.
        packed: the compressed bytes.
        most_bytes: largest result.

    Raises:
        NotUnpacked: they cannot be unpacked; UnpacksTooFar: to more than that.
    """
    unpack_with = _CODECS.get(codec)
    if unpack_with is None:
        raise NotUnpacked(f"has the unknown compression {codec}")
    try:
        return unpack_with(packed, most_bytes)
    except NotUnpacked:
        raise
    except (zlib.error, struct.error, cramjam.DecompressionError, ValueError, OSError) as error:
        raise NotUnpacked(f"cannot be unpacked ({error})") from error


def _gzip(packed: bytes, most_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = most_bytes
    while packed:
        member = zlib.decompressobj(_GZIP)
        part = member.decompress(packed, left + 1)
        left -= len(part)
        if left < 0:
            raise UnpacksTooFar(most_bytes)
        if not member.eof:
            raise NotUnpacked("cannot be unpacked (it ends too early)")
        parts.append(part)
        packed = member.unused_data
    return b"".join(parts)


def _snappy(packed: bytes, most_bytes: int) -> bytes:
    if not _detect_xerial_stream(packed):
        return _snappy_block(packed, most_bytes, most_bytes)
    parts: list[bytes] = []
    at, left = _XERIAL_HEADER_BYTES, most_bytes
    while at < len(packed):
        [size] = struct.unpack_from("!I", packed, at)
        part = _snappy_block(packed[at + 4 : at + 4 + size], left, most_bytes)
        left -= len(part)
        parts.append(part)
        at += 4 + size
    return b"".join(parts)


def _snappy_block(packed: bytes, left: int, most_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(packed) > left:
        raise UnpacksTooFar(most_bytes)
    return bytes(cramjam.snappy.decompress_raw(packed))


def _into_buffer(decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], memoryview]:
    """A function that unpacks into buffers of rising sizes: the formats need not tell the size of their content."""

    def unpack_with(packed: bytes, most_bytes: int) -> memoryview:
        size = max(_FIRST_RATIO * len(packed), _LEAST_BYTES)
        while True:
            size = min(size, most_bytes)
            buffer = bytearray(size)
            try:
                return memoryview(buffer)[: decompress_into(packed, buffer)]
            except cramjam.DecompressionError as error:
                if size < most_bytes:
                    size *= _FIRST_RATIO
                elif "whole buffer" in str(error):
                    raise UnpacksTooFar(most_bytes) from error
                else:
                    raise

    return unpack_with


_CODECS: Final[dict[int, Callable[[bytes, int], bytes | memoryview]]] = {
    1: _gzip,
    2: _snappy,
    3: _into_buffer(cramjam.lz4.decompress_into),
    4: _into_buffer(cramjam.zstd.decompress_into),
}
