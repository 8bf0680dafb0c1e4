"""Report records that Kafka deleted, by retention or by command, before collect read them.

The consumer reports them: the records between the offset up to which it has fetched all records and the offset to which
its position was reset. Records that were compacted, records of aborted transactions and the markers of transactions are
fetched like others, so they are no loss.
"""

import asyncio
from typing import Final

from aiokafka import TopicPartition

from hifi.delivery.ack_report import AckReporter
from hifi.runtime import log, metrics
from hifi.runtime.health import Health

logger = log.get(__name__)


class DeletedRecords:
    """Reports the deleted records of one pipe: a log line, a metric, a warning, and an alarm of observe."""

    def __init__(self, pipe: str, health: Health, reporter: AckReporter) -> None:
        """Nothing was deleted yet.

        Args:
            pipe: name.
            health: shows the warning.
            reporter: reports them to observe.
        """
        self._pipe: Final = pipe
        self._health = health
        self._reporter = reporter

    def report(
        self, topic_partition: TopicPartition, deleted_ranges: list[range]
    ) -> list[asyncio.Future[None]]:
        """Report offsets that were deleted since the last call.

        Args:
            topic_partition: the partition.
            deleted_ranges: of offsets; empty afterwards.

        Returns:
            Done when Kafka has acknowledged the reports: until then no offset behind the ranges may be committed.
        """
        reported: list[asyncio.Future[None]] = []
        name = f"{topic_partition.topic}[{topic_partition.partition}]"
        while deleted_ranges:
            deleted_range = deleted_ranges.pop(0)
            logger.error(
                "source-records-deleted",
                pipe=self._pipe,
                partition=name,
                first=deleted_range.start,
                last=deleted_range.stop - 1,
            )
            metrics.SOURCE_DELETED.labels(self._pipe).inc(len(deleted_range))
            self._health.warn(
                f"deleted records of {name}",
                f"Kafka deleted the offsets {deleted_range.start} to {deleted_range.stop - 1} before they were read",
            )
            reported.append(self._reporter.add_deleted(self._pipe, name, deleted_range))
        return reported
