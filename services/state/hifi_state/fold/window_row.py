"""The parts of the results of one key in one window. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

PartValue: TypeAlias = int | float | str | None


class WindowRow(NamedTuple):
    """The parts of one key in one window.

    Attributes:
        end_ms: end of the window, milliseconds since 1970 UTC.
        key: JSON array of the values of the key.
        inputs: number of events.
        parts: in the order of the step's.
    """

    end_ms: int
    key: str
    inputs: int
    parts: Sequence[PartValue]
