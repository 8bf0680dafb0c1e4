"""Read one assigned partition: fetch a batch, call the handler, retry, put poison records away."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from hifi import log, metrics
from hifi.backoff import backoff_s
from hifi.errors import Fenced
from hifi.kafka.assigned_partition import AssignedPartition

Batch = Sequence[ConsumerRecord]
BatchHandler = Callable[[AssignedPartition, Batch], Awaitable[None]]
"""Processes a batch of one partition and completes its offsets, at once or later."""
PoisonHandler = Callable[[AssignedPartition, ConsumerRecord, Exception], Awaitable[None]]
"""Puts away a record on which the batch handler failed repeatedly. Like a batch handler it completes the offset itself,
at once or later: when Kafka has acknowledged the dead letter, and every delivery of the record that has begun is
over."""

_POLL_MS: Final = 1000
_RETRY_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a service reads, and how much at a time."""

    topics: Sequence[str]
    group: str
    batch_records: int = 500
    pending_records: int = 2000
    """Incomplete records of a partition above which no more are fetched."""
    partition_fetch_bytes: int = 1024 * 1024
    gather_s: float = 0
    """Least time between a fetch that returned records and the next one, seconds (or the fetch interval)."""
    tries: int = 3
    """Failures of the handler on a single record after which the record is poison."""
    stuck_s: float = 60
    """A consumer without progress for so long, although there are records, is replaced, seconds. The partitions of the
    topics are counted as often."""


class PartitionReader:
    """The loop of each assigned partition, in a task of its own, so that a slow partition delays no other."""

    def __init__(self, options: ConsumerOptions, handle: BatchHandler, handle_poison: PoisonHandler) -> None:
        self._options = options
        self.handle = handle
        self.handle_poison = handle_poison

    async def run(self, member: Any, assigned: AssignedPartition) -> None:
        """Read until the partition is revoked.

        Args:
            member: the CooperativeConsumer that the partition is assigned to.
            assigned: the partition.

        Raises:
            Fenced: the partition was taken away.
            Exception: of Kafka or of the poison handler; the member has to join the group again.
        """
        read = metrics.READ.labels(assigned.topic)
        while assigned.active:
            assigned.waiting = True
            await assigned.wait_below(self._options.pending_records)
            fetched = await member.getmany(
                assigned.tp, timeout_ms=_POLL_MS, max_records=self._options.batch_records
            )
            assigned.waiting = False
            records = fetched.get(assigned.tp)
            if not records or not assigned.active:
                continue
            _report_gap(assigned, records[0].offset)
            if assigned.position is not None and records[0].offset < assigned.position:
                raise KafkaError(
                    f"{assigned.topic} was deleted and created again"
                )  # its offsets mean nothing now
            assigned.position = records[-1].offset + 1
            read.inc(len(records))
            for record in records:
                assigned.offsets.start(record.offset)
            await self._process(assigned, records)

    async def _process(self, assigned: AssignedPartition, records: Batch) -> None:
        """Call the handler; if it fails, with each incomplete record alone."""
        try:
            await self.handle(assigned, records)
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception(
                "handler-failed", topic=assigned.topic, partition=assigned.partition, first=records[0].offset
            )
            if len(records) == 1:
                await self._retry(assigned, records[0], error)
                return
            for record in records:
                if assigned.offsets.committable is None or record.offset >= assigned.offsets.committable:
                    await self._process(assigned, [record])

    async def _retry(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        for failures in range(self._options.tries - 1):
            await asyncio.sleep(backoff_s(failures, _RETRY_S))
            try:
                await self.handle(assigned, [record])
                return
            except (Fenced, asyncio.CancelledError):
                raise
            except Exception as again:  # noqa: BLE001 - whatever a handler raises on a poison record
                error = again
        logger.error(
            "record-poisoned", topic=assigned.topic, partition=assigned.partition, offset=record.offset
        )
        await self.handle_poison(assigned, record, error)


def _report_gap(assigned: AssignedPartition, first: int) -> None:
    """Log and count offsets that Kafka no longer had when they were to be read."""
    expected = assigned.position if assigned.position is not None else assigned.committed
    if expected is None or first <= expected:
        return
    # Compaction and transactions leave gaps too, but no event topic has either.
    metrics.SKIPPED.labels(assigned.topic).inc(first - expected)
    logger.error(
        "offsets-lost", topic=assigned.topic, partition=assigned.partition, first=expected, last=first - 1
    )
