"""Find poison records in a range by halving it. Reads and writes are functions of the caller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `first` up to, not including, `end`."""

    partition: int
    first: int
    end: int

    def halves(self) -> tuple["OffsetRange", "OffsetRange"]:
        """The two halves of the range, in order."""
        middle = (self.first + self.end) // 2
        return OffsetRange(self.partition, self.first, middle), OffsetRange(self.partition, middle, self.end)


async def write_around_poison(
    full_range: OffsetRange,
    write: Callable[[OffsetRange], Awaitable[bool]],
    quarantine: Callable[[OffsetRange], Awaitable[None]],
    failed_end: int | None = None,
    *,
    again: bool = False,
) -> None:
    """Write a range except for its poison records, which are quarantined.

    Records are written in order and none is skipped: a half is tried only when every record before it has been written
    or quarantined.

    Args:
        full_range: the range.
        write: writes a range of records; returns False when Spark fails on it.
        quarantine: makes a dead letter of a single record.
        failed_end: end of a range from `full_range.first` on which Spark is known to fail.
        again: whether that range is tried once more all the same.
    """
    pending_ranges = [full_range]
    if failed_end is not None and full_range.first < failed_end < full_range.end:
        pending_ranges = [
            OffsetRange(full_range.partition, failed_end, full_range.end),
            OffsetRange(full_range.partition, full_range.first, failed_end),
        ]
    is_known_to_fail = failed_end is not None and pending_ranges[-1].end == failed_end and not again
    failed_range = pending_ranges[-1] if is_known_to_fail else None
    while pending_ranges:
        offset_range = pending_ranges.pop()
        if offset_range.first >= offset_range.end or (
            offset_range != failed_range and await write(offset_range)
        ):
            continue
        if offset_range.end - offset_range.first == 1:
            await quarantine(offset_range)
            continue
        first_half, second_half = offset_range.halves()
        pending_ranges += [second_half, first_half]
