"""Finding the record on which the query dies, by halving. Pure, apart from what it is given to call."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

DEATHS: Final = 2
"""Deaths at the same offsets after which the search begins."""
_TRIAL: Final = "trial:"
_DIED: Final = "died:"


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition from `first` up to, not including, `end`."""

    partition: int
    first: int
    end: int

    def halves(self) -> tuple["Range", "Range"]:
        """Two parts, in order."""
        middle = (self.first + self.end) // 2
        return Range(self.partition, self.first, middle), Range(self.partition, middle, self.end)


def trial_note(end: int) -> str:
    """Left beside a committed offset before the records up to `end` are tried, in case that ends the process."""
    return f"{_TRIAL}{end}"


def died_note(times: int) -> str:
    """Left beside a committed offset when the process is about to end because Spark did."""
    return f"{_DIED}{times}"


def deaths(note: str) -> int:
    """How often Spark ended the process at this offset, as its note says."""
    count = note.removeprefix(_DIED) if note.startswith(_DIED) else ""
    return int(count) if count.isdigit() else 0


def unfinished_trial(note: str) -> int | None:
    """The end of the range whose trial ended the process, None when there was none."""
    end = note.removeprefix(_TRIAL) if note.startswith(_TRIAL) else ""
    return int(end) if end.isdigit() else None


async def search(
    whole: Range,
    attempt: Callable[[Range], Awaitable[bool]],
    bury: Callable[[Range], Awaitable[None]],
    known_bad: int | None = None,
) -> int:
    """Pass a range on, except for the records that cannot pass.

    Records go out in order and nothing is skipped: a half is begun when all before it is written or buried.

    Args:
        whole: where it died.
        attempt: write a range of records; False when Spark dies of it.
        bury: put away a single record.
        known_bad: end of a range from `whole.first` of which Spark is known to die.

    Returns:
        How many records were buried.
    """
    buried = 0
    waiting = [whole]
    if known_bad is not None and whole.first < known_bad < whole.end:
        waiting = [
            Range(whole.partition, known_bad, whole.end),
            Range(whole.partition, whole.first, known_bad),
        ]
    bad = waiting[-1] if known_bad is not None and waiting[-1].end == known_bad else None
    while waiting:
        part = waiting.pop()
        if part.first >= part.end or (part != bad and await attempt(part)):
            continue
        if part.end - part.first == 1:
            await bury(part)
            buried += 1
            continue
        left, right = part.halves()
        waiting += [right, left]
    return buried
