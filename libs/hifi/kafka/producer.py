"""The producer of every service: acks=all, idempotent, batches built for each partition, bounded memory.

Records of a partition are queued while its last batch is in flight and until the next send round. All partitions send
in the same rounds, one request a broker, so that requests grow in size with the load and a single record hardly waits.
The time between two rounds is the fetch interval (hifi.kafka.fetch_interval).

After a batch has expired, aiokafka's sequence numbers are wrong and it refuses every later batch (its issue 1017). So a
failed batch replaces the aiokafka producer, and the new one sends again, in order, what was not acknowledged.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hifi import log, metrics
from hifi.backoff import backoff_s
from hifi.errors import Overloaded, Rejected, Unacknowledged
from hifi.event import Record
from hifi.health import Health
from hifi.kafka.clients import close, connect
from hifi.kafka.fetch_interval import FETCH_INTERVAL
from hifi.kafka.security import client_options
from hifi.topics import MAX_RECORD_BYTES

MAX_BATCH_BYTES: Final = 512 * 1024
MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
_FRAMING_BYTES: Final = 32
"""Approximate overhead of a record, in memory and in Kafka's format."""
_LARGEST_RECORD_BYTES: Final = MAX_RECORD_BYTES - 64 * 1024
_GATHER_S: Final = 0.001
"""Least wait before a send round: handlers mostly produce to several partitions at the same time."""
_CONDITION: Final = "producer"
_CLOSE_S: Final = 1

logger = log.get(__name__)


class Sending:
    """Records for one partition, queued or in flight, acknowledged together."""

    __slots__ = ("acknowledged", "handed_over", "records", "size_bytes")

    def __init__(self, records: Sequence[Record], size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handed_over = False
        """Kafka may have received some of it: abandoning it now leaves its outcome unknown."""

    def abandon(self) -> bool:
        """Do not send it (again). True: Kafka never received it. False: Kafka may have stored it."""
        self.acknowledged.cancel()
        return not self.handed_over


class Producer:
    """Produces to given partitions. Start it before use; stop it to flush."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        *,
        buffer_bytes: int = 32 * 1024 * 1024,
        ack_timeout_s: float = 10,
        compression: str | None = None,
    ) -> None:
        """Nothing is connected before `start`.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the broker's logs.
            buffer_bytes: bound on unacknowledged records, bytes.
            ack_timeout_s: a batch that is not acknowledged in this time is sent again by a new producer, seconds.
            compression: `lz4`, `zstd` or None.
        """
        self._bootstrap = bootstrap
        self._options: dict[str, Any] = {
            "client_id": client_id,
            "acks": "all",
            "enable_idempotence": True,
            "max_batch_size": MAX_BATCH_BYTES,
            "max_request_size": MAX_REQUEST_BYTES,
            "request_timeout_ms": int(ack_timeout_s * 1000),
            "retry_backoff_ms": 50,
            "compression_type": compression,
            "metadata_max_age_ms": 60_000,
        }
        self._ack_timeout_s = ack_timeout_s
        self._buffer_bytes = buffer_bytes
        self._buffered_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._next_round_s = 0.0
        self._round: asyncio.Future[None] | None = None
        self._client: AIOKafkaProducer | None = None
        self._replaced: asyncio.Future[None] | None = None
        self._rebuilding = asyncio.Lock()
        self._stopped = False

    async def start(self) -> None:
        """Connect.

        Raises:
            aiokafka.errors.KafkaError: no broker answers.
        """
        self._client = await self._new_client()

    async def connect(self, health: Health) -> None:
        """Connect, however long Kafka is away; the service is not ready until then."""
        await connect(self.start, lambda error: health.block(_CONDITION, f"no broker answers: {error!r}"))
        health.unblock(_CONDITION)

    async def stop(self, timeout_s: float = 10) -> bool:
        """Flush and disconnect; False: after `timeout_s` seconds some records were still unacknowledged."""
        running = [queue.task for queue in self._queues.values() if queue.task is not None]
        late: set[asyncio.Task[None]] = set()
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
        self._stopped = True
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        if self._client is not None:
            await close(self._client, _CLOSE_S)
        return not late

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> Sending:
        """Queue records for a partition, in order; await `.acknowledged` of the result.

        Raises:
            Overloaded: the buffer is full; nothing was queued.
            Rejected: a record is larger than the topics allow; nothing was queued.
        """
        if self._stopped:
            raise Overloaded("the producer is stopping")
        sizes = [record.size_bytes() + _FRAMING_BYTES for record in records]
        if max(sizes, default=0) > _LARGEST_RECORD_BYTES:
            raise Rejected(
                "too-large",
                f"a record of {max(sizes)} bytes; the limit of a topic is {_LARGEST_RECORD_BYTES}",
            )
        size = sum(sizes)
        if self._buffered_bytes and self._buffered_bytes + size > self._buffer_bytes:
            raise Overloaded("the producer's buffer is full")
        self._count(size)
        sending = Sending(records, size)
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = _PartitionQueue(self, topic, partition)
        queue.add(sending)
        return sending

    async def send_and_wait(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """Send records and wait, without a time limit, until Kafka has acknowledged all of them.

        Raises:
            Overloaded: the producer was stopped.
            Rejected: a record is larger than the topics allow.
            Unacknowledged: the producer was stopped before the acknowledgement.
        """
        while True:
            try:
                sending = self.send(topic, partition, records)
                break
            except Overloaded:
                if self._stopped:
                    raise
                self._has_room.clear()  # there may be room, but not enough for these records
                await self._has_room.wait()
        await sending.acknowledged

    def stalled_s(self, now_s: float) -> float:
        """How long the oldest batch in flight has waited for its acknowledgement, at `now_s` of the loop's clock."""
        return max(
            (now_s - queue.since_s for queue in self._queues.values() if queue.since_s is not None),
            default=0.0,
        )

    async def _next_round(self) -> None:
        """Wait for the next send round."""
        if self._round is None:
            loop = asyncio.get_running_loop()
            self._round = loop.create_future()
            loop.call_at(max(self._next_round_s, loop.time() + _GATHER_S), self._begin_round)
        await asyncio.shield(self._round)

    def _begin_round(self) -> None:
        self._next_round_s = asyncio.get_running_loop().time() + FETCH_INTERVAL.seconds
        begun, self._round = self._round, None
        if begun is not None:
            begun.set_result(None)

    def _count(self, change_bytes: int) -> None:
        self._buffered_bytes += change_bytes
        metrics.BUFFERED_BYTES.set(self._buffered_bytes)
        if self._buffered_bytes * 2 <= self._buffer_bytes:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def _new_client(self) -> AIOKafkaProducer:
        client = AIOKafkaProducer(**client_options(self._bootstrap), **self._options)
        try:
            await client.start()
        except BaseException:
            await close(client, _CLOSE_S)
            raise
        return client

    def _client_replaced(self) -> asyncio.Future[None]:
        """Done when the current client is replaced; one future for all batches, so that they need no task each."""
        if self._replaced is None:
            self._replaced = asyncio.get_running_loop().create_future()
        return self._replaced

    async def _rebuild(self, failed: AIOKafkaProducer | None) -> None:
        async with self._rebuilding:
            if self._client is not failed:
                return
            if self._replaced is not None:
                self._replaced.set_result(None)
            self._replaced = None
            self._client = None
            metrics.PRODUCER_REBUILDS.inc()
            if failed is not None:
                await close(failed, _CLOSE_S)
            failures: list[Exception] = []

            def report_first(error: Exception) -> None:
                if not failures:
                    logger.warning("kafka-unreachable", error=repr(error))
                failures[:] = [error]

            await connect(self.start, report_first)
            logger.warning("producer-rebuilt")

    async def _send_batch(self, batch: list[Sending], topic: str, partition: int) -> None:
        """Send one batch until it is acknowledged, with as many clients as it takes."""
        for failures in itertools.count():
            batch[:] = [sending for sending in batch if not sending.acknowledged.cancelled()]
            if not batch:
                return
            client = self._client
            if client is None:
                await self._rebuild(None)
                continue
            for sending in batch:
                sending.handed_over = True
            acknowledged = asyncio.ensure_future(self._send_once(client, batch, topic, partition))
            try:
                await asyncio.wait(
                    {acknowledged, self._client_replaced()}, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                if not acknowledged.done():
                    acknowledged.cancel()
            if acknowledged.done() and not acknowledged.cancelled():
                error = acknowledged.exception()
                if error is None:
                    return
                if not isinstance(error, KafkaError | OSError | asyncio.TimeoutError | AssertionError):
                    raise error
                logger.warning("batch-failed", topic=topic, partition=partition, error=repr(error))
                if failures:
                    await asyncio.sleep(backoff_s(failures - 1))
                await self._rebuild(client)

    async def _send_once(
        self, client: AIOKafkaProducer, batch: list[Sending], topic: str, partition: int
    ) -> None:
        builders = [client.create_batch()]
        append = builders[-1].append
        for sending in batch:
            for key, value, headers in sending.records:
                if append(timestamp=None, key=key, value=value, headers=headers) is None:
                    builders.append(client.create_batch())
                    append = builders[-1].append
                    append(timestamp=None, key=key, value=value, headers=headers)
        async with asyncio.timeout(self._ack_timeout_s * 1.5):
            futures = [await client.send_batch(builder, topic, partition=partition) for builder in builders]
            for future in futures:
                await future


class _PartitionQueue:
    """The records of one partition: one batch in flight, the others queued behind it."""

    __slots__ = ("_partition", "_producer", "_queue", "_topic", "since_s", "task")

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._queue: deque[Sending] = deque()
        self.task: asyncio.Task[None] | None = None
        self.since_s: float | None = None

    def add(self, sending: Sending) -> None:
        self._queue.append(sending)
        if self.task is None:
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                await self._producer._next_round()  # noqa: SLF001 - the queue is a part of the producer
                taken = self._take()
                batch = list(taken)
                self.since_s = loop.time()
                try:
                    await self._producer._send_batch(batch, self._topic, self._partition)  # noqa: SLF001
                    metrics.WRITTEN.labels(self._topic).inc(sum(len(sending.records) for sending in batch))
                    for sending in batch:
                        if not sending.acknowledged.done():
                            sending.acknowledged.set_result(None)
                except BaseException as error:
                    for sending in taken:
                        if not sending.acknowledged.done():
                            sending.acknowledged.set_exception(Unacknowledged(repr(error)))
                            sending.acknowledged.exception()  # it is no error if nobody waits for it
                    raise
                finally:
                    self._producer._count(-sum(sending.size_bytes for sending in taken))  # noqa: SLF001
        finally:
            self.since_s = None
            self.task = None
            if self._queue and not self._producer._stopped:  # noqa: SLF001
                self.task = asyncio.create_task(self._run())

    def _take(self) -> list[Sending]:
        taken = [self._queue.popleft()]
        size = taken[0].size_bytes
        while self._queue and size + self._queue[0].size_bytes <= MAX_BATCH_BYTES:
            taken.append(self._queue.popleft())
            size += taken[-1].size_bytes
        return taken
