"""The one producer: acks=all, idempotent, batches built for each partition, bounded memory.

Records for a partition collect while its last batch is on the way and until the next moment at which batches go out,
so requests grow with the load and a lone record waits for next to nothing. Between two such moments is the time of
`hifi.kafka.fetch_interval`: what is ready goes together, as one request a broker. aiokafka loses count of its sequences when
a batch expires (its issue 1017) and then refuses everything until it is made anew; so every failed batch makes the
producer anew, and what was not acknowledged is sent again by it, in order.
"""

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hifi import log, metrics
from hifi.errors import Overloaded, Rejected, Unacknowledged
from hifi.event import Record
from hifi.health import Health
from hifi.kafka.fetch_interval import FETCH_INTERVAL
from hifi.topics import MAX_RECORD_BYTES

MAX_BATCH_BYTES: Final = 512 * 1024
MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
_FRAMING_BYTES: Final = 32
"""About what a record costs beyond its content, here and in Kafka's format."""
_LARGEST_RECORD_BYTES: Final = MAX_RECORD_BYTES - 64 * 1024
_GATHER_S: Final = 0.001
"""A record waits so long for those of other partitions: a step mostly works on several at the same time."""
_CONDITION: Final = "producer"
_BACKOFF_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)

logger = log.get(__name__)


class Sending:
    """Records on their way to one partition, acknowledged together."""

    __slots__ = ("acknowledged", "handed_over", "records", "size_bytes")

    def __init__(self, records: Sequence[Record], size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handed_over = False
        """Kafka may have some of it: giving up now leaves the outcome unknown."""

    def abandon(self) -> bool:
        """Send it no more. True: Kafka never saw it. False: it may be there, acknowledged or not."""
        self.acknowledged.cancel()
        return not self.handed_over


class Producer:
    """Produces to named partitions. Start it before use, stop it to flush."""

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
            buffer_bytes: bound on what is not acknowledged yet, bytes.
            ack_timeout_s: a batch without acknowledgement for so long is sent again by a new producer, seconds.
            compression: `lz4`, `zstd` or None.
        """
        self._options: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
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
        self._room = asyncio.Event()
        self._room.set()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._next_s = 0.0
        self._next: asyncio.Future[None] | None = None
        self._client: AIOKafkaProducer | None = None
        self._broken: asyncio.Future[None] | None = None
        self._rebuilding = asyncio.Lock()
        self._stopped = False

    async def start(self) -> None:
        """Connect.

        Raises:
            aiokafka.errors.KafkaError: no broker answers.
        """
        self._client = await self._connect()

    async def connect(self, health: Health) -> None:
        """Connect, however long Kafka stays away; the service is not ready meanwhile."""
        for turn in itertools.count():
            try:
                await self.start()
                break
            except (KafkaError, OSError) as error:
                health.block(_CONDITION, f"no broker answers: {error!r}")
                await asyncio.sleep(_BACKOFF_S[min(turn, len(_BACKOFF_S) - 1)])
        health.unblock(_CONDITION)

    async def stop(self, timeout_s: float = 10) -> bool:
        """Flush and disconnect. False: after `timeout_s` seconds something was still unacknowledged."""
        running = [lane.task for lane in self._lanes.values() if lane.task is not None]
        late: set[asyncio.Task[None]] = set()
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
        self._stopped = True
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        if self._client is not None:
            await _close(self._client)
        return not late

    @property
    def buffered_bytes(self) -> int:
        """Bytes that Kafka has not acknowledged yet."""
        return self._buffered_bytes

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> Sending:
        """Queue records for a partition, in order; await `.acknowledged` of what is returned.

        Raises:
            Overloaded: the buffer is full; nothing was taken.
            Rejected: a record is larger than the topics take; nothing was taken.
        """
        if self._stopped:
            raise Overloaded("the producer is stopping")
        sizes = [record.size_bytes() + _FRAMING_BYTES for record in records]
        if max(sizes, default=0) > _LARGEST_RECORD_BYTES:
            raise Rejected(
                "too-large",
                f"a record of {max(sizes)} bytes; {_LARGEST_RECORD_BYTES} is the most a topic takes",
            )
        size = sum(sizes)
        if self._buffered_bytes and self._buffered_bytes + size > self._buffer_bytes:
            raise Overloaded("the buffer towards Kafka is full")
        self._count(size)
        sending = Sending(records, size)
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(self, topic, partition)
        lane.add(sending)
        return sending

    async def send_and_wait(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        """Send records and wait, as long as it takes, until Kafka has acknowledged all of them."""
        while True:
            try:
                sending = self.send(topic, partition, records)
                break
            except Overloaded:
                if self._stopped:
                    raise
                self._room.clear()  # there may be room for others, only not for this much
                await self._room.wait()
        await sending.acknowledged

    def stalled_s(self, now_s: float) -> float:
        """How long the oldest batch has been waiting for its acknowledgement, seconds; `now_s` of the loop's clock."""
        return max(
            (now_s - lane.since_s for lane in self._lanes.values() if lane.since_s is not None), default=0.0
        )

    async def _turn(self) -> None:
        """Wait for the next moment at which batches go out."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_at(max(self._next_s, loop.time() + _GATHER_S), self._go)
        await asyncio.shield(self._next)

    def _go(self) -> None:
        self._next_s = asyncio.get_running_loop().time() + FETCH_INTERVAL.seconds
        turn, self._next = self._next, None
        if turn is not None:
            turn.set_result(None)

    def _count(self, change_bytes: int) -> None:
        self._buffered_bytes += change_bytes
        metrics.BUFFERED_BYTES.set(self._buffered_bytes)
        if self._buffered_bytes * 2 <= self._buffer_bytes:
            self._room.set()
        else:
            self._room.clear()

    async def _connect(self) -> AIOKafkaProducer:
        client = AIOKafkaProducer(**self._options)
        try:
            await client.start()
        except BaseException:
            await _close(client)
            raise
        return client

    def _given_up(self) -> asyncio.Future[None]:
        """What is done as soon as the client of this moment is given up; one for all batches, and no task each."""
        if self._broken is None:
            self._broken = asyncio.get_running_loop().create_future()
        return self._broken

    async def _rebuild(self, failed: AIOKafkaProducer | None) -> None:
        async with self._rebuilding:
            if self._client is not failed:
                return
            if self._broken is not None:
                self._broken.set_result(None)
            self._broken = None
            self._client = None
            metrics.PRODUCER_REBUILDS.inc()
            if failed is not None:
                await _close(failed)
            for turn in range(1_000_000_000):
                try:
                    self._client = await self._connect()
                    break
                except (KafkaError, OSError) as error:
                    if turn == 0:
                        logger.warning("kafka-unreachable", error=repr(error))
                    await asyncio.sleep(_BACKOFF_S[min(turn, len(_BACKOFF_S) - 1)])
            logger.warning("producer-rebuilt")

    async def _send_batch(self, batch: list[Sending], topic: str, partition: int) -> None:
        """One batch until it is acknowledged, over as many producers as it takes."""
        for turn in itertools.count():
            batch[:] = [sending for sending in batch if not sending.acknowledged.cancelled()]
            if not batch:
                return
            client = self._client
            if client is None:
                await self._rebuild(None)
                continue
            for sending in batch:
                sending.handed_over = True
            acknowledged = asyncio.ensure_future(self._attempt(client, batch, topic, partition))
            try:
                await asyncio.wait({acknowledged, self._given_up()}, return_when=asyncio.FIRST_COMPLETED)
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
                if turn:
                    await asyncio.sleep(_BACKOFF_S[min(turn - 1, len(_BACKOFF_S) - 1)])
                await self._rebuild(client)

    async def _attempt(
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


class _Lane:
    """The queue of one partition: one batch on the way, the rest collecting behind it."""

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
                await self._producer._turn()  # noqa: SLF001 - the lane is a part of the producer
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
                            sending.acknowledged.exception()  # whoever waits sees it; nobody waiting is no error
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


async def _close(client: AIOKafkaProducer) -> None:
    """Close an aiokafka producer within a bound: its own stop hangs while Kafka is down (its issue 1101)."""
    with contextlib.suppress(KafkaError, OSError, asyncio.TimeoutError):
        await asyncio.wait_for(client.stop(), timeout=1)
