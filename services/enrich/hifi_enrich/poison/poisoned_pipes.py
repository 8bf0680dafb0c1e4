"""Counts the poison records of each pipe, and quarantines pipes with too many. Pure.

The counts are kept beside the committed offsets, since the search for a poison record may end the process.
"""

from collections.abc import Iterable
from typing import Final

MAX_POISON_RECORDS: Final = 3
"""Poison records of a revision after which its pipe is quarantined."""
SEPARATOR: Final = ";"
_PREFIX: Final = "poisoned:"
_MAX_PIPES: Final = 16
"""Pipes whose counts are kept; Kafka limits the metadata of an offset to 4,096 bytes."""


class PoisonedPipes:
    """Counts by pipe, of its newest revision with a poison record."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def add(self, pipe: str, offset: int) -> int:
        """Count a poison record, and return the number of the revision's poison records.

        Args:
            pipe: name.
            offset: of the pipe's revision; a new one begins at 0.
        """
        counted_offset, count = self._counts.pop(pipe, (offset, 0))
        self._counts[pipe] = (offset, count + 1 if counted_offset == offset else 1)
        while len(self._counts) > _MAX_PIPES:
            del self._counts[next(iter(self._counts))]
        return self._counts[pipe][1]

    def is_quarantined(self, pipe: str, offset: int) -> bool:
        """Whether a revision of a pipe has had too many poison records. A later revision has not."""
        counted_offset, count = self._counts.get(pipe, (-1, 0))
        return count >= MAX_POISON_RECORDS and offset <= counted_offset

    def note(self) -> str:
        """The counts, to be kept beside every committed offset; empty: there are none."""
        counts = ",".join(f"{pipe}@{offset}={count}" for pipe, (offset, count) in self._counts.items())
        return f"{SEPARATOR}{_PREFIX}{counts}" if counts else ""

    def read(self, offset_metadata: Iterable[str]) -> None:
        """Take over the counts of an earlier process."""
        for metadata in offset_metadata:
            _, separator, counts = metadata.partition(f"{SEPARATOR}{_PREFIX}")
            for entry in counts.split(",") if separator else ():
                pipe, _, numbers = entry.partition("@")
                offset, _, count = numbers.partition("=")
                if not (offset.isdecimal() and count.isdecimal()):
                    continue
                if (int(offset), int(count)) > self._counts.get(pipe, (-1, 0)):
                    self._counts[pipe] = (int(offset), int(count))
