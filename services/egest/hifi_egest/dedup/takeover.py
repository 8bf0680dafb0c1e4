"""What the last owner of a partition finished beyond its commit: read from what it wrote.

Everything that ends a delivery of a record says of which record (`hifi_source`). From the place that the commit's
metadata names these are few: those of the records in hand and of the last moments before.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi import log
from hifi.event import DESTINATION, PASS, REASON, REPLAY, SEQ, SOURCE
from hifi.topics import Topics
from hifi_egest.dedup.deduplicator import Done

REFRESH_S: Final = 2.0
"""Time between two looks at the ends of the topics of outcomes, seconds: the next owner reads that much more."""
BACK: Final = 500
"""Receipts before that place, read for the window of copies with a rank of their own."""
SKEW_MS: Final = 30_000
"""The clocks of two brokers differ by less than this, milliseconds. If they do not, some of what was delivered before a
takeover may be delivered again."""
_GATHER_S: Final = 0.02
_CONNECT_S: Final = 5.0

logger = log.get(__name__)


@dataclass(slots=True)
class Finished:
    """What was found for one source partition.

    Attributes:
        done: records at or above the committed offset, by destination.
        keys: work of records below it, oldest first.
        unreceipted: (offset, destination) to the outcome and reason of a record that has no receipt yet.
    """

    done: Done = field(default_factory=Done)
    keys: list[bytes] = field(default_factory=list)
    unreceipted: dict[tuple[int, bytes], tuple[bytes, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class _Request:
    source: bytes
    partition: int
    committed: int
    since_ms: int
    floors: Mapping[str, int] | None
    found: Finished
    answer: asyncio.Future[Finished]


def key_of(source: str, headers: Mapping[str, bytes]) -> bytes:
    """What tells copies of the same work: of an event on `enriched`, of a delivery's pass on `retry-out`."""
    replay = headers.get(REPLAY, b"0")
    if source == "enriched":
        return headers[SEQ] if replay == b"0" else b"%b~%b" % (headers[SEQ], replay)
    return b"~".join((headers[SEQ], replay, headers.get(DESTINATION, b""), headers.get(PASS, b"0")))


class Outcomes:
    """Reads the topics of outcomes: at takeovers their records, always their ends."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._bootstrap = bootstrap
        self._receipts = topics.receipts
        self._put_away = {topics.retry_in(tier): b"retry" for tier in topics.tiers}
        self._put_away[topics.dead_letter] = b"dead-letter"
        self._topics = [self._receipts, *self._put_away]
        self._requests: list[_Request] = []
        self._asked = asyncio.Event()
        self._floors: dict[int, dict[str, int]] = {}
        self._consumer: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Look no longer."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._close()

    def floors(self, partition: int) -> Mapping[str, int]:
        """Ends of the topics of outcomes a moment ago; known from the first takeover of the partition on."""
        return self._floors[partition]

    async def take_over(
        self, source: str, partition: int, committed: int, since_ms: int, floors: Mapping[str, int] | None
    ) -> Finished:
        """What was finished of a source partition.

        Args:
            source: `enriched` or `retry-out`.
            partition: number.
            committed: the offset that is read first.
            since_ms: when the first record was appended, milliseconds since 1970 UTC: its outcomes came later. For a
                partition that was quiet for days this is much nearer than the floors.
            floors: from where on to look; a topic that is missing: from its beginning. None: nowhere.
        """
        answer: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        request = _Request(source.encode(), partition, committed, since_ms, floors, Finished(), answer)
        self._requests.append(request)
        self._asked.set()
        return await request.answer

    async def _run(self) -> None:
        try:  # now, so that the first records need not wait for it
            await asyncio.wait_for(self._connect(), _CONNECT_S)
        except (KafkaError, OSError, TimeoutError):
            await self._close()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), REFRESH_S)
            self._asked.clear()
            if self._requests:
                await asyncio.sleep(_GATHER_S)  # a rebalance brings many partitions at once
            requests, self._requests = self._requests, []
            try:
                await self._serve(requests)
            except Exception as error:  # noqa: BLE001 - whatever it is, no partition begins without an answer
                logger.warning("outcomes-unreadable", error=repr(error))
                self._requests += requests
                await self._close()
                await asyncio.sleep(0.5)
                if self._requests:
                    self._asked.set()

    async def _serve(self, requests: list[_Request]) -> None:
        partitions = {request.partition for request in requests} | set(self._floors)
        if not partitions:
            return
        await self._connect()
        tps = [TopicPartition(topic, partition) for topic in self._topics for partition in partitions]
        ends = await self._consumer.end_offsets(tps)
        for request in requests:
            request.found = Finished()
        await self._read(requests, ends)
        for partition in partitions:
            self._floors[partition] = {
                topic: ends[TopicPartition(topic, partition)] for topic in self._topics
            }
        for request in requests:
            if not request.answer.done():
                request.answer.set_result(request.found)

    async def _connect(self) -> None:
        if self._consumer is not None:
            return
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
        )
        await self._consumer.start()
        # The answer does not matter: with it the client knows the leaders of all topics before they are needed.
        await self._consumer.end_offsets([TopicPartition(topic, 0) for topic in self._topics])

    async def _read(self, requests: list[_Request], ends: Mapping[TopicPartition, int]) -> None:
        starts = {tp: start for tp, start in (await self._starts(requests, ends)).items() if start < ends[tp]}
        if not starts:
            return
        consumer = self._consumer
        consumer.assign(list(starts))
        for tp, start in starts.items():
            consumer.seek(tp, start)
        unread = list(starts)
        count = 0
        while unread:
            fetched = await consumer.getmany(*unread, timeout_ms=500, max_records=2000)
            for records in fetched.values():
                count += len(records)
                for record in records:
                    self._note(requests, record)
            unread = [tp for tp in unread if await consumer.position(tp) < ends[tp]]
        consumer.unsubscribe()
        logger.info("outcomes-read", records=count, partitions=len({tp.partition for tp in starts}))

    async def _starts(
        self, requests: list[_Request], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """From where on to read each topic's partition; a receipt below the beginning would never come."""
        floors: dict[TopicPartition, int] = {}
        since_ms: dict[TopicPartition, int] = {}
        for request in requests:
            if request.floors is not None:
                for topic in self._topics:
                    tp, floor = TopicPartition(topic, request.partition), request.floors.get(topic, 0)
                    floors[tp] = min(floor, floors.get(tp, floor))
                    since_ms[tp] = min(request.since_ms - SKEW_MS, since_ms.get(tp, request.since_ms))
        if not floors:
            return {}
        beginnings = await self._consumer.beginning_offsets(list(floors))
        times = await self._consumer.offsets_for_times({tp: max(0, ms) for tp, ms in since_ms.items()})
        starts = {}
        for tp, floor in floors.items():
            start = max(floor, times[tp].offset if times.get(tp) is not None else ends[tp])
            starts[tp] = max(start - (BACK if tp.topic == self._receipts else 0), beginnings[tp])
        return starts

    def _note(self, requests: list[_Request], record: ConsumerRecord) -> None:
        headers = dict(record.headers)
        source, _, number = headers.get(SOURCE, b"").partition(b":")
        if not number.isdigit() or SEQ not in headers:
            return
        offset, destination = int(number), headers.get(DESTINATION, b"")
        for request in requests:
            if request.partition != record.partition or request.source != source or request.floors is None:
                continue
            found = request.found
            if offset < request.committed:
                if record.topic == self._receipts:
                    found.keys.append(key_of(source.decode(), headers))
            elif record.topic == self._receipts:
                found.done.add(offset, destination)
                found.unreceipted.pop((offset, destination), None)
            elif not found.done.has(offset, destination):
                found.done.add(offset, destination)
                found.unreceipted[offset, destination] = (
                    self._put_away[record.topic],
                    headers.get(REASON, b""),
                )

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(consumer.stop(), 5)
