"""Follow topics from their beginning: what the compacted topics and those of the control plane hold.

A record that cannot be read is skipped, with a log line and the metric `hifi_unreadable_records_total`: a single bad
record must not keep a service from everything that is written after it. `unreadable_records` returns those that count,
of which observe raises an alarm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import assigned_consumer, close, connect
from hifi.kafka.foreign_records import UnreadRecord
from hifi.kafka.topic_reader import note_unreadable, read_assigned
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s

TakeRecord: TypeAlias = Callable[[ConsumerRecord], None]
"""Gets a record; one for which it raises is skipped."""
Take: TypeAlias = Callable[[bytes | None, bytes | None, int], None]
"""Gets key, value and offset of a record; one for which it raises is skipped."""

_RecordKey: TypeAlias = tuple[TopicPartition, bytes | None]

_POLL_MS: Final = 1000
_BATCH_RECORDS: Final = 2000
"""Records that are read in one turn of the event loop."""
_RETRY_S: Final = 0.5
_LAG_S: Final = 10.0
"""For which a broker that was frozen, and leads no more, may tell an end that is too low."""
_KEPT_UNREADABLE: Final = 100

logger = log.get(__name__)


class UnreadableRecord(NamedTuple):
    """A record that a follower of this process skipped."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    error: str
    """Name of the error's class; its text may quote the record."""


class TopicRecreated(Exception):
    """A topic was deleted and created again, so that what was read before means nothing: end, and start anew.

    No HifiError: those who wait and try again would go on with what they read before.
    """


_unreadable: Final[dict[_RecordKey, UnreadableRecord]] = {}


def unreadable_records() -> Sequence[UnreadableRecord]:
    """Records that were skipped in this process and not replaced by a readable one of their key since; at most 100."""
    return list(_unreadable.values())


class PartitionFollower:
    """Reads partitions, committed records only, over one connection. Several tasks may catch up; or one follows.

    Args:
        bootstrap: their Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        handlers: partition to what gets its records; all new ones of a topic come before those of the next.
        wait_ms: for which Kafka holds a fetch back while there are fewer than `gather_bytes`.
        gather_bytes: 1: a new record ends the wait.
        rereads: True: a topic that was created again is read from its beginning; what it no longer has stays. False:
            TopicRecreated, for topics whose offsets are numbers, or that grant rights.
    """

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        handlers: Mapping[TopicPartition, TakeRecord],
        *,
        wait_ms: int = 50,
        gather_bytes: int = 1,
        rereads: bool = True,
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._handlers = dict(handlers)
        self._wait_ms = wait_ms
        self._gather_bytes = gather_bytes
        self._rereads = rereads
        self._next_offsets: dict[TopicPartition, int] = {}
        """Partition to the offset that is read next."""
        self._short_since_s: float | None = None
        """Since when a topic ends before what was read of it, monotonic clock; None: none does."""
        self._consumer: AIOKafkaConsumer | None = None
        self._has_failed = False
        """The last read did not end: a new client finds brokers that have other addresses now."""
        self._reading_lock = asyncio.Lock()

    async def start(self, on_failure: Callable[[Exception], None] = lambda _: None) -> None:
        """Connect and read everything; retries until Kafka answers and the topics exist.

        Args:
            on_failure: called with the error of each attempt.
        """
        await connect(self.catch_up, on_failure)

    async def stop(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await close(consumer)

    async def read_once(self) -> None:
        """Connect, read everything and disconnect.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka or a topic cannot be read.
        """
        try:
            await self.catch_up()
        finally:
            await self.stop()

    async def read_decided(self) -> None:
        """Connect, read all that is written now, and disconnect; retries until Kafka answers.

        Waits for transactions that are open now, which hide what others have committed behind them.
        """
        try:
            await connect(self._catch_up_decided)
        finally:
            await self.stop()

    async def catch_up(self) -> None:
        """Read up to the ends that the topics have now, or to their first open transactions; connects if needed.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
            TopicRecreated: one was, and `rereads` is False.
        """
        await self._read_to_ends()

    async def _catch_up_decided(self) -> None:
        uncommitted_consumer = assigned_consumer(self._bootstrap, self._client_id)
        try:
            await uncommitted_consumer.start()
            await self._read_to_ends(uncommitted_consumer)
        finally:
            await close(uncommitted_consumer)

    async def _read_to_ends(self, end_consumer: AIOKafkaConsumer | None = None) -> None:
        """Read up to the ends that the topics have now, for `end_consumer` if there is one."""
        async with self._reading_lock:
            if self._consumer is None or self._has_failed:
                await self._open()
            consumer = self._consumer
            assert consumer is not None
            self._has_failed = True  # until it has ended: it may also be cancelled
            await self._find_first(consumer)
            end_offsets = await (end_consumer or consumer).end_offsets(list(self._handlers))
            self._begin_again(end_offsets)
            for topic in dict.fromkeys(tp.topic for tp in self._handlers):
                unread = {
                    tp: range(self._next_offsets[tp], end_offsets[tp])
                    for tp in self._handlers
                    if tp.topic == topic and end_offsets[tp] > self._next_offsets[tp]
                }
                if unread:
                    await self._read(consumer, unread)
            self._has_failed = False

    def _begin_again(self, end_offsets: Mapping[TopicPartition, int]) -> None:
        """Begin again with partitions that end before what was read of them: their topics were created again.

        Raises:
            KafkaError: or a broker lags.
            TopicRecreated: `rereads` is False.
        """
        short_partitions = [tp for tp, offset in self._next_offsets.items() if end_offsets[tp] < offset]
        if not short_partitions:
            self._short_since_s = None
            return
        now_s = monotonic_s()
        self._short_since_s = now_s if self._short_since_s is None else self._short_since_s
        topic = short_partitions[0].topic
        if now_s - self._short_since_s < _LAG_S:
            raise KafkaError(f"{topic} ends before what was read of it")
        if not self._rereads:
            raise TopicRecreated(f"{topic} was deleted and created again")
        logger.warning("topic-recreated", topic=topic)
        self._next_offsets.update(dict.fromkeys(short_partitions, 0))

    async def poll(self, interval_s: float) -> None:
        """Catch up at an interval, until cancelled; while Kafka is away what was read last holds."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.catch_up()
            except (KafkaError, OSError) as error:
                self._log_failure(error)

    async def keep_up(self, interval_s: float, on_start: Callable[[], None] = lambda: None) -> None:
        """Connect, read everything, catch up at an interval until cancelled, and disconnect.

        Args:
            interval_s: seconds.
            on_start: called once everything was read for the first time.
        """
        try:
            await self.start()
            on_start()
            await self.poll(interval_s)
        finally:
            await self.stop()

    async def follow(self, on_records: Callable[[], Awaitable[None]]) -> None:
        """Read records as they are written, until cancelled; while Kafka is away what was read last holds.

        Args:
            on_records: called each time after records were read.
        """
        while True:
            try:
                async with self._reading_lock:
                    await self._read_on(on_records)
            except (KafkaError, OSError) as error:
                self._log_failure(error)
            await self.stop()  # a new client finds brokers that have other addresses now
            await asyncio.sleep(_RETRY_S)

    async def _open(self) -> None:
        await self.stop()
        consumer = assigned_consumer(
            self._bootstrap,
            self._client_id,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=self._wait_ms,
            fetch_min_bytes=self._gather_bytes,
        )
        try:
            await consumer.start()
        except BaseException:
            await close(consumer)
            raise
        # Assigned once, and paused while nothing is read: a change of the assignment asks Kafka for its metadata, and
        # a partition that is not paused is fetched all the time.
        consumer.assign(list(self._handlers))
        consumer.pause(*self._handlers)
        self._consumer = consumer

    async def _find_first(self, consumer: AIOKafkaConsumer) -> None:
        if not self._next_offsets:
            self._next_offsets = dict(await consumer.beginning_offsets(list(self._handlers)))

    async def _read(self, consumer: AIOKafkaConsumer, unread: Mapping[TopicPartition, range]) -> None:
        consumer.resume(*unread)
        try:
            async for records in read_assigned(consumer, unread):
                self._take(records)
                await asyncio.sleep(0)
        finally:
            consumer.pause(*unread)
        for tp, offsets in unread.items():
            self._next_offsets[tp] = offsets.stop

    async def _read_on(self, on_records: Callable[[], Awaitable[None]]) -> None:
        if self._consumer is None:
            await self._open()
        consumer = self._consumer
        assert consumer is not None
        await self._find_first(consumer)
        for tp, offset in self._next_offsets.items():
            consumer.seek(tp, offset)
        consumer.resume(*self._handlers)
        while True:
            records_by_partition = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS)
            for records in records_by_partition.values():
                self._take(records)
            if records_by_partition:
                await on_records()
                await asyncio.sleep(0)

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            self._next_offsets[tp] = record.offset + 1
            try:
                if isinstance(record, UnreadRecord) and record.key is None and record.value is None:
                    raise ValueError(record.detail)
                self._handlers[tp](record)
                if _unreadable:
                    _unreadable.pop((tp, record.key), None)
            except Exception as error:  # noqa: BLE001 - whatever the record is, those after it must be read
                note_unreadable(record, repr(error))
                if len(_unreadable) < _KEPT_UNREADABLE or (tp, record.key) in _unreadable:
                    _unreadable[tp, record.key] = UnreadableRecord(
                        record.topic, record.partition, record.offset, record.key, type(error).__name__
                    )

    def _log_failure(self, error: Exception) -> None:
        topics = sorted({tp.topic for tp in self._handlers})
        logger.warning("topics-unreadable", topics=topics, error=repr(error))


class TopicFollower(PartitionFollower):
    """A follower of topics with one partition each.

    Args:
        bootstrap: their Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        handlers: topic to what gets its records; all new ones of a topic come before those of the next.
        rereads: as of `PartitionFollower`.
    """

    def __init__(
        self, bootstrap: str, client_id: str, handlers: Mapping[str, Take], *, rereads: bool = True
    ) -> None:
        super().__init__(
            bootstrap,
            client_id,
            {TopicPartition(topic, 0): partial(_unpack, handler) for topic, handler in handlers.items()},
            rereads=rereads,
        )


def _unpack(handler: Take, record: ConsumerRecord) -> None:
    handler(record.key, record.value, record.offset)
