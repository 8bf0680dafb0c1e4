"""Counts the poison records of each revision, and quarantines revisions with too many. Pure.

The counts are kept beside the committed offsets, since the search for a poison record may end the process.
"""

from collections.abc import Iterable
from typing import Final

MAX_POISON_RECORDS: Final = 3
"""Poison records of a revision after which it is quarantined."""
SEPARATOR: Final = ";"
_PREFIX: Final = "poisoned:"
_MAX_REVISIONS: Final = 16
"""Revisions whose counts are kept; Kafka limits the metadata of an offset to 4,096 bytes."""


class PoisonedPipes:
    """Counts by pipe and the offset of its revision; those of the last revisions with a poison record."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}

    def add(self, pipe: str, offset: int) -> int:
        """Count a poison record, and return the number of the revision's poison records.

        Args:
            pipe: name.
            offset: of the pipe's revision; a new one begins at 0.
        """
        count = self._counts.pop((pipe, offset), 0) + 1
        self._counts[pipe, offset] = count
        while len(self._counts) > _MAX_REVISIONS:
            del self._counts[next(iter(self._counts))]
        return count

    def is_quarantined(self, pipe: str, offset: int) -> bool:
        """Whether a revision of a pipe has had too many poison records. The pipe's other revisions do not count."""
        return self._counts.get((pipe, offset), 0) >= MAX_POISON_RECORDS

    def note(self) -> str:
        """The counts, to be kept beside every committed offset; empty: there are none."""
        counts = ",".join(f"{pipe}@{offset}={count}" for (pipe, offset), count in self._counts.items())
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
                key = pipe, int(offset)
                self._counts[key] = max(int(count), self._counts.get(key, 0))
