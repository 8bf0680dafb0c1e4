"""Find poison records in a range by halving it, with functions that it is given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `first` up to, not including, `end`."""

    partition: int
    first: int
    end: int

    def halves(self) -> tuple["OffsetRange", "OffsetRange"]:
        """Its two halves, in order."""
        middle = (self.first + self.end) // 2
        return OffsetRange(self.partition, self.first, middle), OffsetRange(self.partition, middle, self.end)


async def write_around_poison(
    whole: OffsetRange,
    write: Callable[[OffsetRange], Awaitable[bool]],
    quarantine: Callable[[OffsetRange], Awaitable[None]],
    known_bad: int | None = None,
) -> int:
    """Write a range except for its poison records, which are quarantined.

    Records are written in order and none is skipped: a half is tried only when every record before it has been written
    or quarantined.

    Args:
        whole: the range.
        write: writes a range of records; returns False when Spark fails on it.
        quarantine: puts a single record away.
        known_bad: end of a range from `whole.first` on which Spark is known to fail.

    Returns:
        Number of records that were quarantined.
    """
    quarantined = 0
    waiting = [whole]
    if known_bad is not None and whole.first < known_bad < whole.end:
        waiting = [
            OffsetRange(whole.partition, known_bad, whole.end),
            OffsetRange(whole.partition, whole.first, known_bad),
        ]
    bad = waiting[-1] if known_bad is not None and waiting[-1].end == known_bad else None
    while waiting:
        part = waiting.pop()
        if part.first >= part.end or (part != bad and await write(part)):
            continue
        if part.end - part.first == 1:
            await quarantine(part)
            quarantined += 1
            continue
        left, right = part.halves()
        waiting += [right, left]
    return quarantined
