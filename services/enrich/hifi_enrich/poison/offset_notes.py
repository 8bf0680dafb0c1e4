"""Metadata of committed offsets with which a new process learns why the last one ended. Pure."""

from typing import Final

from hifi_enrich.poison.poisoned_pipes import SEPARATOR

_TRIAL: Final = "trial:"
_CRASHES: Final = "crashes:"


def trial_note(end: int) -> str:
    """Committed before the records up to `end` are tried, in case that ends the process."""
    return f"{_TRIAL}{end}"


def crash_note(count: int) -> str:
    """Committed when the process is about to exit because Spark's JVM exited, for the `count`-th time here."""
    return f"{_CRASHES}{count}"


def crashes(note: str) -> int:
    """How often Spark has ended the process at this offset; 0 for any other note."""
    note = note.partition(SEPARATOR)[0]
    count = note.removeprefix(_CRASHES) if note.startswith(_CRASHES) else ""
    return int(count) if count.isdigit() else 0


def unfinished_trial(note: str) -> int | None:
    """End of the range whose trial ended the process; None for any other note."""
    note = note.partition(SEPARATOR)[0]
    end = note.removeprefix(_TRIAL) if note.startswith(_TRIAL) else ""
    return int(end) if end.isdigit() else None
