"""How many records the ranges of a step have, so that what one makes fits in memory. Pure."""

from typing import Final

from hifi.pipe.sources.step import StepSource

MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of the rows that a small range makes: they are in memory several times."""
MOST_LETTER_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of the dead letters of a range that are held in memory, likewise."""
_WANTED_BYTES: Final = MOST_BYTES // 2
_FIRST: Final = 50
_FACTOR: Final = 4
_MOST_WITH_DATA: Final = 5_000
"""Most records of a range of a step that keeps data of events, which are in memory together."""
_MOST_PLACES: Final = 500_000
"""Most windows that the events of a range are in, each event counted."""


class RangeBound:
    """Few records after a start and after a failure, then more with each range that passes.

    So a range that does not fit is read in smaller parts, also if it has ended the process.
    """

    def __init__(self, most: int) -> None:
        """Nothing has passed yet.

        Args:
            most: records of a range.
        """
        self._most: Final = most
        self.records = min(_FIRST, most)
        """Most records of the next range."""
        self._tried = 0

    def begin(self, records: int) -> None:
        """A range of this number of records is folded from now on."""
        self._tried = records

    def passed(self, size_bytes: int) -> None:
        """It passed, and has made rows of this size."""
        tried, self._tried = self._tried, 0
        if tried:
            grown = self.records * _FACTOR if tried >= self.records else self.records
            fitting = max(1, tried * _WANTED_BYTES // max(1, size_bytes))
            self.records = min(self._most, grown, fitting)

    def failed(self) -> None:
        """The last action failed; without an effect where no range was folded."""
        tried, self._tried = self._tried, 0
        if tried:
            self.records = max(1, min(self.records, tried) // _FACTOR)


def most_records(step: StepSource) -> int:
    """Most records of a range of a step, whatever they hold."""
    if step.first or step.join:
        return _MOST_WITH_DATA
    window = step.window
    windows = 1 if window is None or window.session is not None else window.size_ms // window.every_ms
    return max(1, _MOST_PLACES // windows)
