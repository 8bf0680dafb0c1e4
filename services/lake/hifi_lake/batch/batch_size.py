"""How many records a batch has: fewer while temporary files do not fit on their disk. Pure.

The bytes of a batch are known only once it has been read, so that no number of records fits every stream.
"""

from typing import Final

NO_SPACE: Final = "No space left on device"
"""The text of the error of the operating system, which Spark's errors include."""
_LEAST: Final = 1000
_BATCHES_TO_DOUBLE: Final = 5
_FULL: Final = 0.9
"""Share of the most records that a batch with a backlog has at least: Spark rounds the share of each partition down."""


class BatchSize:
    """The most records of a batch, and the time between batches."""

    def __init__(self, records: int, interval_s: float) -> None:
        """Begin with the size that is set.

        Args:
            records: most in a batch, as set.
            interval_s: time between two batches of that size.
        """
        self._most = records
        self._interval_s = interval_s
        self.records: int = records
        self._finished_count = 0

    @property
    def interval_s(self) -> float:
        """The time between two batches, shorter for small ones, so that the rate is not limited."""
        return self._interval_s * self.records / self._most

    def reduce(self, error: str, records: int) -> bool:
        """Take half of a batch that failed, if its error says that a disk is full.

        Args:
            error: of the batch.
            records: in the batch.

        Returns:
            Whether batches are smaller now.
        """
        records_before = self.records
        if NO_SPACE in error:
            self._finished_count = 0
            self.records = min(records_before, max(_LEAST, records // 2))
        return self.records < records_before

    def finish(self, records: int, most: int) -> None:
        """Note a batch that was written: some of them double the size again, and one without a backlog restores it.

        Args:
            records: in the batch.
            most: that it could have; a query that began before the size changed says nothing about the new one.
        """
        if most != self.records:
            return
        if records < most * _FULL:
            self.records = self._most
        self._finished_count += 1
        if self._finished_count >= _BATCHES_TO_DOUBLE:
            self._finished_count = 0
            self.records = min(self._most, self.records * 2)


def naming_lack_of_space(summary: str, error: str) -> str:
    """The summary of an error, which says that a disk is full wherever the whole text of the error does."""
    return f"{summary} ({NO_SPACE})" if NO_SPACE in error and NO_SPACE not in summary else summary
