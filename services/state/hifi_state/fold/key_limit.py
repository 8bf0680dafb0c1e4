"""Bounds the events of a key that a step with `each`, `first` or `join` keeps. Pure."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from hifi_state.fold.window_row import FoldedEvent, WindowRow


class Stretch(NamedTuple):
    """The events of a key, pipe and partition in a stretch of time. They have one order, that of `raw`.

    Attributes:
        key: as in `WindowRow`.
        of_with: whether they are of the pipe `with` of a join.
        partition: of the events.
        start_ms: milliseconds since 1970 UTC.
    """

    key: str
    of_with: bool
    partition: int
    start_ms: int


class KeyLimit:
    """Lets the first events of each stretch count, by their order in `raw`, so that a repetition decides the same."""

    def __init__(self, most: int, length_ms: int, kept_count: Callable[[Stretch], int]) -> None:
        """Nothing is known of earlier events yet.

        Args:
            most: events of a stretch that count.
            length_ms: of a stretch, milliseconds.
            kept_count: number of events of a stretch that count and are not among the rows.
        """
        self._most: Final = most
        self._length_ms: Final = length_ms
        self._kept_count = kept_count
        self._counts: dict[Stretch, int] = {}

    def split(self, rows: Iterable[WindowRow]) -> tuple[list[WindowRow], list[WindowRow]]:
        """The events that count, and those beyond the limit; ranges come in the order of the log.

        Args:
            rows: of the events of a range, in any order.
        """
        counted: list[WindowRow] = []
        beyond: list[WindowRow] = []
        for row in sorted(rows, key=lambda row: event_of(row)[:2]):
            event = event_of(row)
            start_ms = row.start_ms - row.start_ms % self._length_ms
            stretch = Stretch(row.key, event.of_with, event.partition, start_ms)
            count = self._counts.get(stretch)
            if count is None:
                count = self._kept_count(stretch)
            if count < self._most:
                count += 1
                counted.append(row)
            else:
                beyond.append(row)
            self._counts[stretch] = count
        return counted, beyond


def event_of(row: WindowRow) -> FoldedEvent:
    """The event of a row of a step without windows."""
    assert row.event is not None
    return row.event
