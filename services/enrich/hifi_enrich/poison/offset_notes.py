"""Metadata of committed offsets that records for the next process why this one ended. Pure."""

from typing import Final

from hifi_enrich.poison.poisoned_pipes import SEPARATOR

_TRIAL: Final = "trial:"
_SECOND: Final = "again"
_CRASHES: Final = "crashes:"


def trial_note(end: int, *, is_second: bool = False) -> str:
    """Metadata that is committed before the records up to `end` are tried, in case the trial ends the process.

    Args:
        end: of the range.
        is_second: whether a trial of it was interrupted before.
    """
    return f"{_TRIAL}{end}{_SECOND if is_second else ''}"


def crash_note(count: int) -> str:
    """Metadata that is committed when Spark's JVM has exited for the `count`-th time at an offset."""
    return f"{_CRASHES}{count}"


def crashes(metadata: str) -> int:
    """The number of times that Spark ended the process at this offset; 0 for any other metadata."""
    metadata = metadata.partition(SEPARATOR)[0]
    count = metadata.removeprefix(_CRASHES) if metadata.startswith(_CRASHES) else ""
    return int(count) if count.isdecimal() else 0


def unfinished_trial(metadata: str) -> int | None:
    """End of the range whose trial ended the process; None for any other metadata."""
    metadata = metadata.partition(SEPARATOR)[0]
    end = metadata.removeprefix(_TRIAL).removesuffix(_SECOND) if metadata.startswith(_TRIAL) else ""
    return int(end) if end.isdecimal() else None


def was_tried_twice(metadata: str) -> bool:
    """Whether the trial that ended the process was the second one of its range."""
    return unfinished_trial(metadata) is not None and metadata.partition(SEPARATOR)[0].endswith(_SECOND)
