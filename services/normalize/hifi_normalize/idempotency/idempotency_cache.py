"""What one instance remembers of the ids that clients gave, partition by partition, and how that survives a takeover.

What is remembered goes to the topic `ids` before the offsets are committed, a few times a second; the next owner of a
partition reads the last window of it. So its verdicts on what it reads are those that the last owner gave.
"""

import asyncio
import contextlib
import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi import log, metrics
from hifi.errors import Fenced
from hifi.event import Record
from hifi.health import Health
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.producer import Producer
from hifi_normalize.idempotency.fingerprint import packed, unpacked
from hifi_normalize.idempotency.window import Given, Verdict, Window

WRITE_S: Final = 0.25
"""Time for which what is to be written collects, seconds: offsets are finished so much later."""
WRITE_RECORDS: Final = 1000
"""Records whose offsets wait beyond which it is written at once."""
SKEW_MS: Final = 30_000
"""The clocks of two brokers differ by less than this, milliseconds."""
SWEEP_S: Final = 2.0
_READERS: Final = 4
"""Partitions that are read at the same time."""
_AGAIN_S: Final = 0.5
_CONDITION: Final = "client retries"

logger = log.get(__name__)


class Partition:
    """What is remembered for one assignment."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.unwritten: list[Given] = []
        self.acknowledged: int | None = None
        """Offset up to which all outputs are acknowledged, and that is not finished yet."""
        self.hurry = asyncio.Event()
        self.writing: asyncio.Task[None] | None = None


class Memory:
    """The partitions' windows, within one bound."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        producer: Producer,
        health: Health,
        *,
        window_s: float,
        most_ids: int,
    ) -> None:
        """Remember nothing yet.

        Args:
            bootstrap: `HOST:PORT,…`.
            topic: `ids` of the stream.
            producer: for that topic.
            health: told when the window gets shorter.
            window_s: how long an id is remembered, seconds; 0: not at all.
            most_ids: bound on all of them.
        """
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer = producer
        self._health = health
        self._window_ms = int(window_s * 1000)
        self._most_ids = most_ids
        self._partitions: dict[AssignedPartition, Partition] = {}
        self._reading = asyncio.Semaphore(_READERS)
        self._watching: set[asyncio.Task[None]] = set()
        metrics.ID_WINDOW_SECONDS.set(window_s)

    @property
    def on(self) -> bool:
        """Whether anything is to be remembered."""
        return self._window_ms > 0

    async def of(self, work: AssignedPartition, first: ConsumerRecord) -> Partition:
        """The memory of a partition; read from the topic when the assignment is new.

        Raises:
            Fenced: the partition was taken away meanwhile.
        """
        partition = self._partitions.get(work)
        if partition is None:
            window = Window(self._window_ms)
            if self._window_ms and work.committed is not None:
                await self._read(window, work, first.timestamp)
            partition = self._partitions[work] = Partition(window)
            task = asyncio.create_task(self._hurry(work, partition))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
        return partition

    def judge(self, partition: Partition, given: Given) -> tuple[Verdict, int]:
        """See `Window.judge`."""
        verdict, offset = partition.window.judge(given)
        if verdict is Verdict.NEW or verdict is Verdict.REUSED:
            partition.unwritten.append(given)
        return verdict, offset

    def finish(self, work: AssignedPartition, partition: Partition, offset: int) -> None:
        """All outputs up to this offset are acknowledged: finish them once it is written what to remember of them."""
        if partition.writing is None and not partition.unwritten:
            work.complete_through(offset)
            return
        partition.acknowledged = offset
        if partition.writing is None:
            partition.writing = asyncio.create_task(self._write(work, partition))
        if work.offsets.pending >= WRITE_RECORDS:
            partition.hurry.set()

    async def sweep(self) -> None:
        """Keep the bound, let go of what is over, and tell how it is; until cancelled."""
        while True:
            self.keep_bound(time.time_ns() // 1_000_000)
            await asyncio.sleep(SWEEP_S)

    def keep_bound(self, now_ms: int) -> None:
        """One look of `sweep`; milliseconds since 1970 UTC."""
        for work in [work for work in self._partitions if work.fenced]:
            del self._partitions[work]
        windows = [partition.window for partition in self._partitions.values()]
        for window in windows:
            window.forget(now_ms - SKEW_MS)
        known = sum(map(len, windows))
        while known > self._most_ids:
            known -= min(
                (window for window in windows if len(window)), key=lambda window: window.oldest_ms or 0
            ).shorten()
        covered_ms = min((window.covered_ms(now_ms) for window in windows), default=self._window_ms)
        metrics.KNOWN_IDS.set(known)
        metrics.ID_WINDOW_SECONDS.set(covered_ms / 1000)
        self._warn(covered_ms, known)

    def _warn(self, covered_ms: int, known: int) -> None:
        shortened = covered_ms < self._window_ms
        if shortened and _CONDITION not in self._health.warnings:
            logger.error("id-window-shortened", covered_s=covered_ms / 1000, ids=known)
        told = (
            f"events that clients send again are known for {covered_ms / 1000:.0f} s instead of"
            f" {self._window_ms / 1000:.0f} s: more than {self._most_ids} ids came (HIFI_NORMALIZE_IDS)"
        )
        self._health.warn(_CONDITION, told if shortened else None)

    async def _hurry(self, work: AssignedPartition, partition: Partition) -> None:
        await work.revoked.wait()
        partition.hurry.set()

    async def _write(self, work: AssignedPartition, partition: Partition) -> None:
        """Write what is to be remembered, then finish the offsets, until nothing waits."""
        while partition.acknowledged is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(partition.hurry.wait(), WRITE_S)
            if work.active:
                partition.hurry.clear()
            if work.fenced:
                break
            offset = partition.acknowledged
            some, partition.unwritten = partition.unwritten, []
            try:
                if some:
                    await self._producer.send_and_wait(
                        self._topic, work.partition, [Record(None, packed(some), [])]
                    )
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing is finished before it is written
                logger.warning("ids-not-written", partition=work.partition, error=repr(error))
                partition.unwritten = some + partition.unwritten
                await asyncio.sleep(_AGAIN_S)
                continue
            if not work.fenced:
                work.complete_through(offset)
            if partition.acknowledged == offset:
                partition.acknowledged = None
        partition.writing = None

    async def _read(self, window: Window, work: AssignedPartition, first_ms: int) -> None:
        """What the partition's owners remembered of records below the committed offset."""
        async with self._reading:
            while True:
                consumer = AIOKafkaConsumer(
                    bootstrap_servers=self._bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
                )
                try:
                    await consumer.start()
                    await self._read_from(consumer, window, work, first_ms)
                    return
                except (KafkaError, OSError, TimeoutError) as error:
                    logger.warning("ids-unreadable", partition=work.partition, error=repr(error))
                finally:
                    with contextlib.suppress(KafkaError, OSError, TimeoutError):
                        await asyncio.wait_for(consumer.stop(), 5)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(work.revoked.wait(), _AGAIN_S)
                if not work.active:
                    work.abandon()
                    raise Fenced(f"{work.topic}[{work.partition}] is handed over before its ids were read")

    async def _read_from(self, consumer: Any, window: Window, work: AssignedPartition, first_ms: int) -> None:
        tp = TopicPartition(self._topic, work.partition)
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        since_ms = max(0, first_ms - self._window_ms - SKEW_MS)
        start = (await consumer.offsets_for_times({tp: since_ms}))[tp]
        if start is None or start.offset >= end:
            return
        consumer.seek(tp, start.offset)
        while await consumer.position(tp) < end:
            for record in (await consumer.getmany(tp, timeout_ms=500)).get(tp, ()):
                for given in unpacked(record.value):
                    if given.offset < (work.committed or 0):
                        window.judge(given)
        logger.info("ids-read", partition=work.partition, ids=len(window))
