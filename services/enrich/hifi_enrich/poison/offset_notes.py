"""Metadata of committed offsets that records for the next process why this one ended. Pure."""

from typing import Final

from hifi_enrich.poison.poisoned_pipes import SEPARATOR

_TRIAL: Final = "trial:"
_CRASHES: Final = "crashes:"


def trial_note(end: int) -> str:
    """Metadata that is committed before the records up to `end` are tried, in case the trial ends the process."""
    return f"{_TRIAL}{end}"


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
    end = metadata.removeprefix(_TRIAL) if metadata.startswith(_TRIAL) else ""
    return int(end) if end.isdecimal() else None
