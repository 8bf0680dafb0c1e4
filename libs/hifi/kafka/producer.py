"""The producer of every service: acks=all, idempotent, batches built for each partition, bounded memory.

Records of a partition are queued while its last batch is in flight and until the next send round. All partitions send
in the same rounds, one request a broker, so that requests grow in size with the load and a single record hardly waits.
The time between two rounds is the fetch interval (hifi.kafka.fetch_interval); a full batch, as of a backlog, waits for
no other records. A round is one call of the event loop: it builds the batches of all partitions and leaves them to
aiokafka; no partition has a task of its own.

After a batch has expired, aiokafka's sequence numbers are wrong and it refuses every later batch (its issue 1017). So a
failed batch replaces the aiokafka producer, and the new one sends again, in order, what was not acknowledged. The old
one sends no later batch, so a partition never has a gap.

The new one has another producer id, so Kafka does not recognize a batch that is sent again: if a broker was frozen and
stores what the old one had sent, too, the batch is there twice. Records that must not be there twice are not sent
again: they fail, and so does what is queued behind them (`repeats`).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from aiokafka_cooperative import IncompatibleAiokafkaError
from hifi.kafka.batches import abort, append_batch, build_batches, check_accumulator
from hifi.kafka.clients import MAX_REQUEST_BYTES, close, connect, plain_producer
from hifi.kafka.fetch_interval import FETCH_INTERVAL
from hifi.kafka.partition_queue import MAX_BATCH_BYTES, PartitionQueue, Sending
from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.record.record import Record, sizes_bytes
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Misconfigured, Overloaded, Rejected, Unacknowledged
from hifi.runtime.health import Health

__all__ = ["MAX_BATCH_BYTES", "Producer", "Sending", "is_sendable"]

_FRAMING_BYTES: Final = 32
"""Approximate overhead of a record, in memory and in Kafka's format, without that of its headers."""
_LARGEST_RECORD_BYTES: Final = MAX_RECORD_BYTES - 64 * 1024
_GATHER_S: Final = 0.001
"""Least wait before a send round: handlers mostly produce to several partitions at the same time."""
_ATTEMPT: Final = 1.5
"""Acknowledgement time-outs after which a client that has not acknowledged a batch is replaced."""
_CONDITION: Final = "producer"
_CLOSE_S: Final = 1

logger = log.get(__name__)


def is_sendable(record: Record) -> bool:
    """Whether `Producer.send` takes a record: it is not larger than the topics allow."""
    return sizes_bytes([record])[0] + _FRAMING_BYTES <= _LARGEST_RECORD_BYTES


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
        in_step: bool = False,
        health: Health | None = None,
    ) -> None:
        """Nothing is connected before `start`.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the broker's logs.
            buffer_bytes: bound on unacknowledged records, bytes.
            ack_timeout_s: a batch that is not acknowledged in this time is sent again by a new producer, seconds.
            compression: `lz4`, `zstd` or None.
            in_step: in a flow, begin the rounds at ticks of the wall clock (hifi.kafka.fetch_interval).
            health: of the service, which is not ready until the producer has connected; None: there is no service.

        Raises:
            Misconfigured: the installed aiokafka is not supported.
        """
        try:
            check_accumulator()
        except IncompatibleAiokafkaError as error:
            raise Misconfigured(str(error)) from None
        self.bootstrap: Final = bootstrap
        """`HOST:PORT,…`."""
        self._client_id = client_id
        self._options: dict[str, Any] = {
            "max_batch_size": MAX_BATCH_BYTES,
            "max_request_size": MAX_REQUEST_BYTES,
            "request_timeout_ms": int(ack_timeout_s * 1000),
            "retry_backoff_ms": 50,
            "compression_type": compression,
            "metadata_max_age_ms": 60_000,
        }
        self._health = health
        if health is not None:
            health.block(_CONDITION, "it has not connected yet")
            # A service may have other producers for what is rarely written; the metric is of this one.
            metrics.BUFFERED_BYTES.set_function(lambda: self._buffered_bytes)
        self._ack_timeout_s = ack_timeout_s
        self._buffer_bytes = buffer_bytes
        self._in_step = in_step
        self._buffered_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._ready: dict[PartitionQueue, None] = {}
        """Queues with records and none in flight, in the order in which they send in the next round."""
        self._in_flight: dict[PartitionQueue, None] = {}
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._round: asyncio.TimerHandle | None = None
        self._round_at_s = 0.0
        self._next_round_s = 0.0
        self._ack_check: asyncio.TimerHandle | None = None
        self._client: AIOKafkaProducer | None = None
        self._looked_up: set[str] = set()
        """Topics whose metadata the client is reading."""
        self._rebuilding: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def start(self) -> None:
        """Connect; in a service, however long Kafka is away.

        Raises:
            aiokafka.errors.KafkaError: no broker answers, and there is no service.
        """
        if (health := self._health) is None:
            await self._connect()
            return
        await connect(self._connect, lambda error: health.block(_CONDITION, f"no broker answers: {error!r}"))
        health.unblock(_CONDITION)

    async def _connect(self) -> None:
        self._client = await self._new_client()
        self._rebuilding = None
        self._send_again(self._client)

    async def stop(self, timeout_s: float = 10) -> bool:
        """Flush and disconnect; False: after `timeout_s` seconds some records were still unacknowledged.

        Stopping a producer that has stopped does nothing.
        """
        if self._stopped:
            return self._flushed.is_set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._flushed.wait()
        except TimeoutError:
            flushed = False
        else:
            flushed = True
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for queue in {**self._in_flight, **self._ready}:
            self._give_up(queue, Unacknowledged("the producer was stopped"))
        for timer in (self._round, self._ack_check):
            if timer is not None:
                timer.cancel()
        if self._client is not None:
            await close(self._client, _CLOSE_S)
        return flushed

    def _give_up(self, queue: PartitionQueue, error: Exception) -> None:
        """Fail the batch in flight and all that is queued behind it."""
        queue.take_all()
        self._ready.pop(queue, None)
        self._complete(queue, error)

    def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        at_once: bool = False,
        repeats: bool = True,
    ) -> Sending:
        """Queue records for a partition, in order; await `.acknowledged` of the result.

        With `at_once` they do not wait for the next round. Without `repeats` nothing is written twice to the partition,
        from now on: where Kafka may have stored a batch of a client that was replaced, it fails with `Unacknowledged`.
        What was queued behind a batch that fails then fails with it.

        Raises:
            Overloaded: the buffer is full; nothing was queued.
            Rejected: a record is larger than the topics allow; nothing was queued.
        """
        if self._stopped:
            raise Overloaded("the producer is stopping")
        sizes = sizes_bytes(records)
        largest = max(sizes, default=0) + _FRAMING_BYTES
        if largest > _LARGEST_RECORD_BYTES:
            raise Rejected(
                "too-large", f"a record of {largest} bytes; the limit of a topic is {_LARGEST_RECORD_BYTES}"
            )
        size = sum(sizes) + len(sizes) * _FRAMING_BYTES
        if self._buffered_bytes and self._buffered_bytes + size > self._buffer_bytes:
            raise Overloaded("the producer's buffer is full")
        self._count(size)
        sending = Sending(records, size)
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = PartitionQueue(topic, partition)
        queue.repeats &= repeats
        queue.add(sending, at_once=at_once)
        if not queue.in_flight:
            self._make_ready(queue)
        return sending

    async def send_when_room(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        at_once: bool = False,
        repeats: bool = True,
    ) -> Sending:
        """As `send`, as soon as there is room for the records. No other task runs after they were queued.

        Raises:
            Overloaded: the producer was stopped.
            Rejected: a record is larger than the topics allow.
        """
        while True:
            try:
                return self.send(topic, partition, records, at_once=at_once, repeats=repeats)
            except Overloaded:
                if self._stopped:
                    raise
                self._has_room.clear()  # there may be room, but not enough for these records
                await self._has_room.wait()

    async def send_and_wait(
        self, topic: str, partition: int, records: Sequence[Record], *, at_once: bool = False
    ) -> None:
        """Send records and wait, without a time limit, until Kafka has acknowledged all of them.

        Raises:
            Overloaded: the producer was stopped.
            Rejected: a record is larger than the topics allow.
            Unacknowledged: the producer was stopped before the acknowledgement.
        """
        sending = await self.send_when_room(topic, partition, records, at_once=at_once)
        await sending.acknowledged

    def stalled_s(self, now_s: float) -> float:
        """How long the oldest batch in flight has waited for its acknowledgement, at `now_s` of the loop's clock."""
        return max((now_s - queue.since_s for queue in self._in_flight), default=0.0)

    def _count(self, change_bytes: int) -> None:
        self._buffered_bytes += change_bytes
        if self._buffered_bytes * 2 <= self._buffer_bytes:
            self._has_room.set()
        else:
            self._has_room.clear()

    # Rounds

    def _make_ready(self, queue: PartitionQueue) -> None:
        self._ready[queue] = None
        self._flushed.clear()
        loop = asyncio.get_running_loop()
        at_s = loop.time() + _GATHER_S
        if not queue.full:
            at_s = max(self._next_round_s, at_s)
        if self._round is not None:
            if self._round_at_s <= at_s:
                return
            self._round.cancel()
        self._round, self._round_at_s = loop.call_at(at_s, self._begin_round), at_s

    def _begin_round(self) -> None:
        self._round = None
        if self._client is None:
            return  # the next client begins one
        now_s = asyncio.get_running_loop().time()
        self._next_round_s = now_s + (
            FETCH_INTERVAL.until_tick_s() if self._in_step else FETCH_INTERVAL.seconds
        )
        ready_queues, self._ready = self._ready, {}
        for queue in ready_queues:
            queue.take(now_s)
            self._in_flight[queue] = None
        for queue in ready_queues:
            self._transmit(self._client, queue, now_s)
        if self._ack_check is None:
            self._ack_check = asyncio.get_running_loop().call_later(self._ack_timeout_s / 4, self._check_acks)

    def _transmit(self, client: AIOKafkaProducer, queue: PartitionQueue, now_s: float) -> None:
        """Give the batch in flight to a client; its acknowledgement or failure comes as a callback."""
        unsent_sendings = queue.unsent()
        if not unsent_sendings:
            self._complete(queue)
            return
        queue.client, queue.sent_s, queue.unacknowledged = client, now_s, 0
        queue.batches.clear()
        if client.client.cluster.partitions_for_topic(queue.tp.topic) is None:
            self._look_up(client, queue)
            return
        try:
            size_bytes = sum([sending.size_bytes for sending in unsent_sendings])
            records = chain.from_iterable(sending.records for sending in unsent_sendings)
            builders = build_batches(client, records, size_bytes)
            queue.batches.extend(builders)
            queue.unacknowledged = len(builders)
            self._append_next(client, queue)
            for sending in unsent_sendings:
                sending.handed_over = True
        except (KafkaError, OSError) as error:  # the client has failed already
            self._fail(client, queue, error)
        except Exception as error:
            logger.exception("records-not-encodable", topic=queue.tp.topic, partition=queue.tp.partition)
            if queue.repeats:
                self._complete(queue, error)
            else:
                self._give_up(queue, error)

    def _append_next(self, client: AIOKafkaProducer, queue: PartitionQueue) -> None:
        """Give the client the next Kafka batch: none that it could send after one that failed."""
        future = append_batch(client, queue.batches.popleft(), queue.tp)
        future.add_done_callback(partial(self._acknowledge, client, queue))

    def _acknowledge(
        self, client: AIOKafkaProducer, queue: PartitionQueue, future: asyncio.Future[Any]
    ) -> None:
        error = KafkaError("cancelled") if future.cancelled() else future.exception()
        if queue.client is not client:
            return  # another client has sent it again
        if error is not None:
            self._fail(client, queue, error)
            return
        queue.unacknowledged -= 1
        if not queue.unacknowledged:
            self._complete(queue)
            return
        queue.sent_s = asyncio.get_running_loop().time()
        try:
            self._append_next(client, queue)
        except (KafkaError, OSError) as append_error:  # the client has failed already
            self._fail(client, queue, append_error)

    def _complete(self, queue: PartitionQueue, error: BaseException | None = None) -> None:
        self._in_flight.pop(queue, None)
        self._count(-queue.complete(error))
        if queue.queued:
            self._make_ready(queue)
        elif not self._in_flight and not self._ready:
            self._flushed.set()

    # Failures

    def _check_acks(self) -> None:
        self._ack_check = None
        if not self._in_flight:
            return
        loop = asyncio.get_running_loop()
        bound_s = loop.time() - self._ack_timeout_s * _ATTEMPT
        late = next((queue for queue in self._in_flight if queue.client and queue.sent_s < bound_s), None)
        if late is not None:
            self._fail(late.client, late, TimeoutError("no acknowledgement"))
        self._ack_check = loop.call_later(self._ack_timeout_s / 4, self._check_acks)

    def _fail(self, client: AIOKafkaProducer, queue: PartitionQueue, error: BaseException) -> None:
        """Replace a client that failed on a batch; the next one sends all batches in flight again."""
        if client is not self._client or self._stopped:
            return
        logger.warning("batch-failed", topic=queue.tp.topic, partition=queue.tp.partition, error=repr(error))
        abort(client)
        queue.failures += 1
        if self._rebuilding is None:
            self._rebuilding = self._begin(self._rebuild(client, queue.failures))

    async def _rebuild(self, failed: AIOKafkaProducer, failures: int) -> None:
        if failures > 1:
            await asyncio.sleep(backoff_s(failures - 2))
        self._client = None
        metrics.PRODUCER_REBUILDS.inc()
        try:
            await close(failed, _CLOSE_S)
        except Exception:
            logger.exception("producer-not-closed")
        errors: list[Exception] = []

        def report_first(error: Exception) -> None:
            if not errors:
                logger.warning("kafka-unreachable", error=repr(error))
            errors[:] = [error]

        await connect(self.start, report_first)
        logger.warning("producer-rebuilt")

    def _send_again(self, client: AIOKafkaProducer) -> None:
        """Give a new client the batches that are in flight and may be sent again, and begin a round."""
        now_s = asyncio.get_running_loop().time()
        for queue in list(self._in_flight):
            if queue.repeats or not queue.may_be_written:
                self._transmit(client, queue, now_s)
            else:
                self._give_up(queue, KafkaError("its client was replaced, and Kafka may have stored it"))
        if self._ready:
            self._begin_round()

    def _look_up(self, client: AIOKafkaProducer, queue: PartitionQueue) -> None:
        """Read the metadata of a topic that the client does not know yet, then send to it."""
        topic = queue.tp.topic
        if topic not in self._looked_up:
            self._looked_up.add(topic)
            self._begin(self._send_when_known(client, topic))

    async def _send_when_known(self, client: AIOKafkaProducer, topic: str) -> None:
        try:
            await client.client._wait_on_metadata(topic)  # noqa: SLF001 - as AIOKafkaProducer.send_batch does
            error = None
        except (KafkaError, OSError) as failure:
            error = failure
        if client is not self._client or self._stopped:
            return
        self._looked_up.discard(topic)
        now_s = asyncio.get_running_loop().time()
        for queue in [
            queue for queue in self._in_flight if queue.tp.topic == topic and not queue.unacknowledged
        ]:
            if error is None:
                self._transmit(client, queue, now_s)
            else:
                self._fail(client, queue, error)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _new_client(self) -> AIOKafkaProducer:
        client = plain_producer(self.bootstrap, self._client_id, **self._options)
        try:
            await client.start()
        except BaseException:
            await close(client, _CLOSE_S)
            raise
        self._looked_up = set()
        return client
