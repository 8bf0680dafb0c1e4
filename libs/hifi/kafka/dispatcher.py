"""Pass fetched records to the handler, partition by partition; retry, put poison records away."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.adaptive_fetcher import AdaptiveFetcher
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.foreign_records import CorruptBatch
from hifi.kafka.security import KafkaSecurity
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Fenced

Batch = Sequence[ConsumerRecord]
BatchHandler = Callable[[AssignedPartition, Batch], Awaitable[None] | None]
"""Processes a batch of one partition and completes its offsets, at once or later.

A handler that returns None has begun all work on the batch; the next batch of the partition may follow at once. This is
the fast way: no task is made, and the outputs of all partitions of a fetch leave in one request. A handler that has to
wait returns an awaitable, such as a coroutine. It runs in a task, and the partition's next batch waits for it. A
handler that raises is called again with each record that is not complete; it must not repeat what others can see."""
PoisonHandler = Callable[[AssignedPartition, ConsumerRecord, Exception], Awaitable[None]]
"""Puts away a record on which the batch handler failed repeatedly. Like a batch handler it completes the offset itself,
at once or later: when Kafka has acknowledged the dead letter, and every delivery of the record that has begun is
over."""

_RETRY_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_CORRUPT_S: Final = 5.0
"""Time between two fetches of a corrupt batch, seconds."""

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The topics that a service reads, and the sizes of its batches."""

    topics: Sequence[str]
    group: str
    batch_records: int = 500
    """Most records of a batch. A turn of the event loop that has handled as many begins no further batch."""
    pending_records: int = 2000
    """Incomplete records of a partition from which on no more are read."""
    partition_fetch_bytes: int = 1024 * 1024
    gather_s: float = 0
    """Least time between a fetch that returned records and the next one, seconds (or the fetch interval)."""
    in_step: bool = False
    """The topics' producers keep step (`Producer(in_step=True)`): fetch just after they have sent."""
    tries: int = 3
    """Failures of the handler on a single record after which the record is poison."""
    stuck_s: float = 60
    """A consumer without progress for so long, although there are records, is replaced, seconds. The partitions of the
    topics are counted as often."""
    foreign: bool = False
    """The topics are not hifi's: partitions may be added, compaction and transactions leave gaps, and what a
    transaction has not committed must not be read. What cannot be read is an UnreadRecord."""
    unpacked_bytes: int = 64 * 1024 * 1024
    """With `foreign`: what a compressed batch may unpack to."""
    security: KafkaSecurity | None = None
    """Security of the connections; None: that of the bootstrap servers."""
    pipe: str | None = None
    """That declares the security; see `client_options`."""
    on_assigned: Callable[[AssignedPartition], None] | None = None
    """Gets each partition when it is assigned, before its first records and commits."""


class Dispatcher:
    """Calls the handler for each partition that has fetched records and is free.

    It works in the turn of the event loop in which a fetch arrives, or in which a partition becomes free: after a
    handler's task, or after enough records have been completed. A slow or failing partition delays no other.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        handle: BatchHandler,
        handle_poison: PoisonHandler,
        assigned: Mapping[TopicPartition, AssignedPartition],
        fail: Callable[[Exception], None],
        warn: Callable[[str, str | None], None],
    ) -> None:
        """Start without a fetcher.

        Args:
            options: sizes and tries.
            handle: processes a batch of a partition.
            handle_poison: puts away a record on which `handle` fails repeatedly.
            assigned: the partitions that are assigned at the moment; it changes.
            fail: gets an error after which the member has to join the group again.
            warn: shows a warning about a partition; None removes it.
        """
        self._options = options
        self.handle = handle
        self.handle_poison = handle_poison
        self._assigned = assigned
        self._fail = fail
        self._warn = warn
        self._fetcher: AdaptiveFetcher | None = None
        self._scheduled = False
        self._read = {topic: metrics.READ.labels(topic) for topic in options.topics}

    def begin(self, fetcher: AdaptiveFetcher) -> None:
        """Read from the fetcher of a new member; called again for each assignment."""
        self._fetcher = fetcher
        self._schedule()

    def end(self) -> None:
        """Read nothing until `begin`."""
        self._fetcher = None

    def on_records(self, fetcher: AdaptiveFetcher) -> None:
        """Dispatch what has been fetched; called by the fetcher."""
        if fetcher is self._fetcher:
            self._dispatch()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch_scheduled)

    def _dispatch_scheduled(self) -> None:
        self._scheduled = False
        self._dispatch()

    def _dispatch(self) -> None:
        fetcher, remaining_records = self._fetcher, self._options.batch_records
        if fetcher is None:
            return
        try:
            for tp in fetcher.fetched:
                assigned = self._assigned.get(tp)
                if assigned is None or not assigned.active or not assigned.idle:
                    continue  # not begun, ending, or its handler runs
                if remaining_records <= 0:
                    self._schedule()
                    return
                remaining_records -= self._begin_batch(fetcher, assigned)
        except Exception as error:  # noqa: BLE001 - on any error the membership ends and the member joins again
            self._fail(error)

    def _begin_batch(self, fetcher: AdaptiveFetcher, assigned: AssignedPartition) -> int:
        """Pass the next batch of a free partition to the handler; returns its number of records."""
        if assigned.offsets.pending >= self._options.pending_records:
            assigned.when_below(self._options.pending_records, self._schedule)
            return 0
        assigned.begin_take(fetcher.position(assigned.tp))
        try:
            records = fetcher.take(assigned.tp, self._options.batch_records)
        except CorruptBatch as error:
            assigned.end_take(fetcher.position(assigned.tp))
            self._stop_at(fetcher, assigned, error)
            return 0
        if not records:
            assigned.end_take(fetcher.position(assigned.tp))
            return 0
        self.forget(assigned)
        if not self._options.foreign:
            _report_gap(assigned, records[0].offset)
        if assigned.position is not None and records[0].offset < assigned.position:
            raise self._recreated(assigned.topic)
        assigned.position = records[-1].offset + 1
        self._read[assigned.topic].inc(len(records))
        start = assigned.offsets.start
        for record in records:
            start(record.offset)
        assigned.end_take(fetcher.position(assigned.tp))
        try:
            waiting = self.handle(assigned, records)
        except Exception as error:  # noqa: BLE001 - handled in the task, as an error of the awaitable is
            waiting = _raise(error)
        if waiting is not None:
            assigned.task = asyncio.create_task(self._run(assigned, records, waiting))
        elif len(records) == self._options.batch_records:
            self._schedule()  # there may be more
        return len(records)

    def _recreated(self, topic: str) -> KafkaError:
        """Make the partitions of a topic void, and return the error."""
        error = KafkaError(f"{topic} was deleted and created again")
        for assigned in self._assigned.values():
            if assigned.topic == topic:
                assigned.make_void(error)
        return error

    def _stop_at(self, fetcher: AdaptiveFetcher, assigned: AssignedPartition, error: CorruptBatch) -> None:
        """Leave a partition at a corrupt batch: to skip it would lose its records. It is fetched again in a while."""
        logger.error(
            "batch-corrupt",
            topic=assigned.topic,
            partition=assigned.partition,
            offset=error.offset,
            why=error.reason,
        )
        assigned.corrupt = True
        self._warn(
            _subject(assigned),
            f"the batch at offset {error.offset} {error.reason}, so nothing is read from there on: mend it, such as"
            " with another replica, or set the offset of the consumer group behind it, which loses its records",
        )
        asyncio.get_running_loop().call_later(_CORRUPT_S, fetcher.fetch_again, assigned.tp)

    def forget(self, assigned: AssignedPartition) -> None:
        """Remove the warning about a partition that is read again, or is no longer assigned."""
        if assigned.corrupt:
            assigned.corrupt = False
            self._warn(_subject(assigned), None)

    async def _run(self, assigned: AssignedPartition, records: Batch, waiting: Awaitable[None]) -> None:
        """Wait for a handler, with retries if it fails; the partition is not free meanwhile."""
        try:
            await self._process(assigned, records, waiting)
        except Fenced as error:
            if assigned.active:  # otherwise the records would stay incomplete until the next rebalance
                assigned.revoke()  # nothing behind them is begun
                assigned.abandon()
                self._fail(KafkaError(repr(error)))
        except Exception as error:  # noqa: BLE001 - on any error the membership ends and the member joins again
            assigned.revoke()  # nothing behind the record is begun
            assigned.abandon()
            self._fail(error)
        finally:
            assigned.task = None
            self._schedule()

    async def _process(
        self, assigned: AssignedPartition, records: Batch, waiting: Awaitable[None] | None = None
    ) -> None:
        """Wait for the handler of a batch; if it fails, call it with each incomplete record alone."""
        try:
            await (waiting or self._handle(assigned, records))
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

    async def _handle(self, assigned: AssignedPartition, records: Batch) -> None:
        waiting = self.handle(assigned, records)
        if waiting is not None:
            await waiting

    async def _retry(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        for failures in range(self._options.tries - 1):
            await asyncio.sleep(backoff_s(failures, _RETRY_S))
            try:
                await self._handle(assigned, [record])
                return
            except (Fenced, asyncio.CancelledError):
                raise
            except Exception as retry_error:  # noqa: BLE001 - whatever a handler raises on a poison record
                error = retry_error
        logger.error(
            "record-poisoned", topic=assigned.topic, partition=assigned.partition, offset=record.offset
        )
        await self.handle_poison(assigned, record, error)


def _subject(assigned: AssignedPartition) -> str:
    return f"corrupt batch of {assigned.topic}[{assigned.partition}]"


async def _raise(error: Exception) -> None:
    raise error


def _report_gap(assigned: AssignedPartition, first_offset: int) -> None:
    """Log and count offsets that Kafka no longer had when they were to be read."""
    expected_offset = assigned.position if assigned.position is not None else assigned.committed
    if expected_offset is None or first_offset <= expected_offset:
        return
    # Compaction and transactions leave gaps too, but no event topic has either.
    metrics.SKIPPED.labels(assigned.topic).inc(first_offset - expected_offset)
    logger.error(
        "offsets-lost",
        topic=assigned.topic,
        partition=assigned.partition,
        first=expected_offset,
        last=first_offset - 1,
    )
