"""The offsets of a partition that were written to a destination, as bitmaps. Pure.

A bitmap covers 4,096 offsets in `raw`. At a Kafka destination it is one record of the positions topic, whose compaction
keeps the last one of each.
"""

from collections.abc import Iterable
from typing import Final

CHUNK_OFFSETS: Final = 4096
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8
"""Size of a bitmap."""


class WrittenOffsets:
    """A set of offsets; a million of them take about 128 KiB."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def __contains__(self, offset: int) -> bool:
        bitmap = self._chunks.get(offset // CHUNK_OFFSETS)
        bit = offset % CHUNK_OFFSETS
        return bitmap is not None and bool(bitmap[bit >> 3] & (1 << (bit & 7)))

    def merge(self, chunk: int, bitmap: bytes) -> None:
        """Add the offsets of a bitmap."""
        own_bitmap = self._chunks.setdefault(chunk, bytearray(CHUNK_BYTES))
        union = int.from_bytes(own_bitmap) | int.from_bytes(bitmap)
        own_bitmap[:] = union.to_bytes(CHUNK_BYTES)

    def forget(self, chunk: int) -> None:
        """Remove the offsets of a bitmap."""
        self._chunks.pop(chunk, None)

    def add(self, offsets: Iterable[int]) -> None:
        """Add offsets."""
        for offset in offsets:
            chunk, bit = offset // CHUNK_OFFSETS, offset % CHUNK_OFFSETS
            bitmap = self._chunks.get(chunk)
            if bitmap is None:
                bitmap = self._chunks[chunk] = bytearray(CHUNK_BYTES)
            bitmap[bit >> 3] |= 1 << (bit & 7)

    def with_offsets(self, offsets: Iterable[int]) -> dict[int, bytes]:
        """The bitmaps that change when offsets are added, by chunk; this set stays as it is."""
        changed_bitmaps: dict[int, bytearray] = {}
        for offset in offsets:
            chunk, bit = divmod(offset, CHUNK_OFFSETS)
            if chunk not in changed_bitmaps:
                changed_bitmaps[chunk] = bytearray(self._chunks.get(chunk) or bytes(CHUNK_BYTES))
            changed_bitmaps[chunk][bit >> 3] |= 1 << (bit & 7)
        return {chunk: bytes(bitmap) for chunk, bitmap in changed_bitmaps.items()}
