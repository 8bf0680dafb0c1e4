"""Fingerprints and source positions of all assigned partitions; they survive a takeover.

New fingerprints are written to the topic `ids`, and source positions to `source-positions`, before the offsets of their
events are committed, four times a second. The next owner of a partition reads the last window of the one topic and all
of the other, which is compacted, so it decides as the previous owner did.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import topic_consumer
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.producer import Producer
from hifi.kafka.topic_reader import note_unreadable, offset_ranges, read_ranges
from hifi.record.record import Record
from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s, wait_at_most
from hifi.runtime.errors import Fenced
from hifi.runtime.health import Health
from hifi_normalize.append_clock import AppendClock
from hifi_normalize.idempotency.fingerprint import Fingerprint, pack, unpack
from hifi_normalize.idempotency.fingerprint_window import FingerprintWindow, Repetition
from hifi_normalize.idempotency.source_positions import SourcePositions

WRITE_S: Final = 0.25
"""Time between two writes of fingerprints, seconds: offsets are completed that much later."""
WRITE_RECORDS: Final = 1000
"""Number of uncompleted records above which fingerprints are written at once."""
SKEW_MS: Final = 30_000
"""Upper bound of the difference between the clocks of two brokers, milliseconds."""
SWEEP_S: Final = 2.0
_CONCURRENT_READS: Final = 4
"""Partitions read at a time after an assignment."""
_RETRY_S: Final = 0.5
_FAILURES: Final = 3
"""Writes that failed one after the other, after which /readyz warns."""
_CONDITION: Final = "client retries"
_WRITE_CONDITION: Final = "fingerprints"

logger = log.get(__name__)


class PartitionFingerprints:
    """The fingerprints and source positions of one assigned partition, and those not written yet."""

    def __init__(self, window: FingerprintWindow, sources: SourcePositions, clock: AppendClock) -> None:
        self.window = window
        self.sources = sources
        self.clock = clock
        """Of the partition's records."""
        self.unwritten: list[Fingerprint] = []
        self.reused_id_offsets: set[int] = set()
        """Offsets of the events that had the id of another event and are not complete: they may be handled again."""
        self.acknowledged: int | None = None
        """Offset up to which all outputs are acknowledged, waiting for the fingerprints to be written."""
        self.write_now = asyncio.Event()
        self.writing: asyncio.Task[None] | None = None


class IdempotencyCache:
    """The fingerprints of all assigned partitions, limited in number."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topic: str,
        positions_topic: str,
        producer: Producer,
        health: Health,
        *,
        window_s: float,
        max_fingerprints: int,
    ) -> None:
        """An empty cache.

        Args:
            bootstrap: Kafka's bootstrap servers, `HOST:PORT,…`.
            client_id: name in the logs and quotas of the broker.
            topic: `ids` of the stream.
            positions_topic: `source-positions` of the stream.
            producer: for these topics.
            health: warned while the window is shortened.
            window_s: how long a fingerprint is kept, seconds; 0: never.
            max_fingerprints: of all partitions together.
        """
        self._bootstrap, self._client_id = bootstrap, client_id
        self._topic = topic
        self._positions_topic = positions_topic
        self._producer = producer
        self._health = health
        self._window_ms = int(window_s * 1000)
        self._max_fingerprints = max_fingerprints
        self._partitions: dict[AssignedPartition, PartitionFingerprints] = {}
        self._reads = asyncio.Semaphore(_CONCURRENT_READS)
        self._watchers: set[asyncio.Task[None]] = set()
        metrics.IDEMPOTENCY_WINDOW_SECONDS.set(window_s)

    @property
    def enabled(self) -> bool:
        """Whether fingerprints are kept at all."""
        return self._window_ms > 0

    def opened(self, assigned: AssignedPartition) -> PartitionFingerprints | None:
        """The fingerprints of a partition for which `open` was called; None: it was not called."""
        return self._partitions.get(assigned)

    async def open(self, assigned: AssignedPartition, first_record: ConsumerRecord) -> PartitionFingerprints:
        """The fingerprints of a partition. Reads them and its source positions on the first call after an assignment.

        Args:
            assigned: the partition.
            first_record: the first record to be checked.

        Raises:
            Fenced: the partition was revoked meanwhile.
        """
        partition = self._partitions.get(assigned)
        if partition is None:
            clock = AppendClock(first_record.timestamp, monotonic_s())
            partition = PartitionFingerprints(FingerprintWindow(self._window_ms), SourcePositions(), clock)
            # Also before the first record of `raw`: a restore writes source positions.
            await self._read(partition, assigned, first_record)
            self._partitions[assigned] = partition
            task = asyncio.create_task(self._write_when_revoked(assigned, partition))
            self._watchers.add(task)
            task.add_done_callback(self._watchers.discard)
        return partition

    def check(self, partition: PartitionFingerprints, event: Fingerprint) -> tuple[Repetition, int]:
        """Decide whether an event was sent before: see `FingerprintWindow.check`."""
        repetition, offset = partition.window.check(event)
        if repetition is Repetition.NEW or repetition is Repetition.REUSED_ID:
            partition.unwritten.append(event)
        if repetition is Repetition.REUSED_ID:
            partition.reused_id_offsets.add(event.offset)
        return repetition, offset

    def complete_through(
        self, assigned: AssignedPartition, partition: PartitionFingerprints, offset: int
    ) -> None:
        """Complete records once their fingerprints are written; call when their outputs are acknowledged.

        Args:
            assigned: the partition.
            partition: its fingerprints.
            offset: of the last record.
        """
        if partition.writing is None and not partition.unwritten and not partition.sources.unwritten:
            assigned.complete_through(offset)
            return
        partition.acknowledged = offset
        if partition.writing is None:
            partition.writing = asyncio.create_task(self._write(assigned, partition))
        if assigned.offsets.pending >= WRITE_RECORDS:
            partition.write_now.set()

    async def sweep(self) -> None:
        """Remove expired fingerprints and enforce the limit every 2 s, until cancelled."""
        while True:
            self.evict(monotonic_s())
            await asyncio.sleep(SWEEP_S)

    def evict(self, now_s: float) -> None:
        """Remove expired fingerprints of partitions that are read to their end, then the oldest ones above the limit.

        Args:
            now_s: monotonic time, seconds.
        """
        for assigned in [assigned for assigned in self._partitions if assigned.fenced]:
            del self._partitions[assigned]
        windows = [partition.window for partition in self._partitions.values()]
        for assigned, partition in self._partitions.items():
            # While earlier records are to be read, the window ends at their time, as of the newest one (`check`).
            if assigned.end() is not None:
                partition.window.expire(partition.clock.time_ms(now_s) - SKEW_MS)
        fingerprint_count = sum(map(len, windows))
        while fingerprint_count > self._max_fingerprints:
            fingerprint_count -= min(
                (window for window in windows if len(window)), key=lambda window: window.oldest_ms or 0
            ).shorten()
        covered_ms = min(
            (
                partition.window.covered_ms(partition.clock.time_ms(now_s))
                for partition in self._partitions.values()
            ),
            default=self._window_ms,
        )
        metrics.FINGERPRINTS.set(fingerprint_count)
        metrics.IDEMPOTENCY_WINDOW_SECONDS.set(covered_ms / 1000)
        self._warn(covered_ms, fingerprint_count)

    def _warn(self, covered_ms: int, fingerprint_count: int) -> None:
        is_shortened = covered_ms < self._window_ms
        if is_shortened and _CONDITION not in self._health.warnings:
            logger.error(
                "idempotency-window-shortened", covered_s=covered_ms / 1000, fingerprints=fingerprint_count
            )
        warning = (
            f"repeated events are recognized for {covered_ms / 1000:.0f} s instead of {self._window_ms / 1000:.0f} s:"
            f" more than {self._max_fingerprints} ids were sent; raise HIFI_NORMALIZE_MAX_FINGERPRINTS"
        )
        self._health.warn(_CONDITION, warning if is_shortened else None)

    async def _write_when_revoked(
        self, assigned: AssignedPartition, partition: PartitionFingerprints
    ) -> None:
        await assigned.revoked.wait()
        partition.write_now.set()

    async def _write(self, assigned: AssignedPartition, partition: PartitionFingerprints) -> None:
        """Write fingerprints and source positions, then complete the offsets, until all are complete."""
        condition, failures = f"{_WRITE_CONDITION} of {assigned.topic}[{assigned.partition}]", 0
        try:
            while partition.acknowledged is not None:
                await wait_at_most(partition.write_now, WRITE_S)
                if assigned.active:
                    partition.write_now.clear()
                if assigned.fenced:
                    break
                offset = partition.acknowledged
                try:
                    await self._write_once(assigned, partition)
                except Exception as error:  # noqa: BLE001 - after any error the offsets must not be completed
                    failures += 1
                    logger.warning(
                        "fingerprints-not-written", partition=assigned.partition, error=repr(error)
                    )
                    if failures >= _FAILURES:
                        self._health.warn(
                            condition,
                            f"cannot be written ({failures} attempts), so that no offset is committed: {error!r}",
                        )
                    await asyncio.sleep(_RETRY_S)
                    continue
                failures = 0
                self._health.warn(condition, None)
                if not assigned.fenced:
                    assigned.complete_through(offset)
                    partition.reused_id_offsets = {
                        reused_offset
                        for reused_offset in partition.reused_id_offsets
                        if reused_offset > offset
                    }
                if partition.acknowledged == offset:
                    partition.acknowledged = None
        finally:
            self._health.warn(condition, None)
            partition.writing = None

    async def _write_once(self, assigned: AssignedPartition, partition: PartitionFingerprints) -> None:
        """Write the fingerprints and source positions that are not written yet; after an error they are still so."""
        changed_keys, position_records = partition.sources.take_unwritten(assigned.committed or 0)
        fingerprints, partition.unwritten = partition.unwritten, []
        try:
            if fingerprints:
                await self._producer.send_and_wait(
                    self._topic, assigned.partition, [Record(None, pack(fingerprints), [])]
                )
            if position_records:
                await self._producer.send_and_wait(
                    self._positions_topic, assigned.partition, position_records
                )
        except BaseException:
            partition.unwritten = fingerprints + partition.unwritten
            partition.sources.unwritten |= changed_keys
            raise

    async def _read(
        self, partition: PartitionFingerprints, assigned: AssignedPartition, first_record: ConsumerRecord
    ) -> None:
        """Read the fingerprints below the committed offset and the source positions that previous owners wrote."""
        async with self._reads:
            while True:
                try:
                    async with topic_consumer(self._bootstrap, self._client_id) as consumer:
                        await self._read_positions(consumer, partition.sources, assigned)
                        if self._window_ms and assigned.committed is not None:
                            await self._read_fingerprints(
                                consumer, partition.window, assigned, first_record.timestamp
                            )
                    return
                except (KafkaError, OSError, TimeoutError) as error:
                    logger.warning("fingerprints-unreadable", partition=assigned.partition, error=repr(error))
                await wait_at_most(assigned.revoked, _RETRY_S)
                if not assigned.active:
                    assigned.abandon()
                    raise Fenced(
                        f"{assigned.topic}[{assigned.partition}] was revoked before its fingerprints were read"
                    )

    async def _read_positions(
        self, consumer: Any, sources: SourcePositions, assigned: AssignedPartition
    ) -> None:
        topic_partition = TopicPartition(self._positions_topic, assigned.partition)
        async for records in read_ranges(consumer, await offset_ranges(consumer, [topic_partition])):
            for record in records:
                with _skipped_if_unreadable(record):
                    sources.load(record.key, record.value)
        if len(sources):
            logger.info("source-positions-read", partition=assigned.partition, sources=len(sources))

    async def _read_fingerprints(
        self, consumer: Any, window: FingerprintWindow, assigned: AssignedPartition, first_ms: int
    ) -> None:
        topic_partition = TopicPartition(self._topic, assigned.partition)
        ranges = await offset_ranges(consumer, [topic_partition], first_ms - self._window_ms - SKEW_MS)
        async for records in read_ranges(consumer, ranges):
            for record in records:
                with _skipped_if_unreadable(record):
                    for event in unpack(record.value):
                        if event.offset < (assigned.committed or 0):
                            window.check(event)
        logger.info("fingerprints-read", partition=assigned.partition, fingerprints=len(window))


@contextlib.contextmanager
def _skipped_if_unreadable(record: ConsumerRecord) -> Iterator[None]:
    """Count and log a record that cannot be read, as followers do: those after it must be read."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever the record is
        note_unreadable(record, repr(error))
