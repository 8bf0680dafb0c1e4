"""Find records that Kafka deleted, by retention or by command, before collect read them.

A gap between two records says little: compaction and transactions leave gaps, too. Only offsets below the start of the
partition's log were deleted.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka import TopicPartition

from hifi.delivery.ack_report import AckReporter
from hifi.runtime import log, metrics
from hifi.runtime.health import Health

LogStart = Callable[[], Awaitable[int]]
"""Asks for the first offset of a partition's log."""

logger = log.get(__name__)


def deleted(expected: int | None, first: int, log_start: int) -> range:
    """The offsets that were deleted before they were read.

    Args:
        expected: offset that was to be read next; None: the partition was not read before.
        first: offset of the record that came instead.
        log_start: first offset of the log.
    """
    return range(0) if expected is None else range(expected, min(first, log_start))


class DeletedRecords:
    """Reports the deleted records of one pipe: a log line, a metric, a warning, and an alarm of observe."""

    def __init__(self, pipe: str, health: Health, reporter: AckReporter) -> None:
        """Nothing was deleted yet.

        Args:
            pipe: name.
            health: shows the warning.
            reporter: tells observe.
        """
        self._pipe: Final = pipe
        self._health = health
        self._reporter = reporter

    async def look(self, tp: TopicPartition, expected: int | None, first: int, log_start: LogStart) -> None:
        """Report what was deleted between the records read before and those read now.

        Args:
            tp: the partition.
            expected: as in `deleted`.
            first: as in `deleted`.
            log_start: is asked if there is a gap.
        """
        if expected is None or first <= expected:
            return
        gone = deleted(expected, first, await log_start())
        if not gone:
            return
        name = f"{tp.topic}[{tp.partition}]"
        logger.error(
            "source-records-deleted", pipe=self._pipe, partition=name, first=gone.start, last=gone.stop - 1
        )
        metrics.SOURCE_DELETED.labels(self._pipe).inc(len(gone))
        self._health.warn(
            f"deleted records of {name}",
            f"Kafka deleted the offsets {gone.start} to {gone.stop - 1} before they were read",
        )
        self._reporter.add_deleted(self._pipe, name, gone)
