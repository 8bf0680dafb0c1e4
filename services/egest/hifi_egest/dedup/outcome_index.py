"""A compact set of the deliveries that have an outcome, by offset and destination. Pure."""

from typing import Final

_CHUNK_BITS: Final = 10


class OutcomeIndex:
    """Outcomes that are already written for records that are read again.

    Stored as bits in chunks of 1,024 offsets, so a day of outcomes needs little memory. The destination b"" stands for
    the whole record.
    """

    def __init__(self) -> None:
        self._chunks: dict[tuple[bytes, int], int] = {}
        self.last = -1
        """The highest offset with an outcome."""

    def add(self, offset: int, destination: bytes) -> None:
        """Add an outcome."""
        chunk = destination, offset >> _CHUNK_BITS
        self._chunks[chunk] = self._chunks.get(chunk, 0) | 1 << (offset & (1 << _CHUNK_BITS) - 1)
        self.last = max(self.last, offset)

    def has(self, offset: int, destination: bytes) -> bool:
        """Whether the delivery of that record has an outcome."""
        bits = self._chunks.get((destination, offset >> _CHUNK_BITS), 0)
        return bool(bits >> (offset & (1 << _CHUNK_BITS) - 1) & 1)
