"""The one consumer loop: batches of a partition go through a step, then their offsets are committed.

Each assigned partition has a task of its own, so a slow partition holds up no other. A step acknowledges its outputs
before it finishes offsets; only finished offsets without a gap are committed, explicitly, by the member that owns the
partition. On revoke a partition takes nothing new, finishes what runs, commits, and is let go.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from aiokafka_cooperative.coordinator import CooperativeConsumer
from hifi import log, metrics
from hifi.errors import Fenced
from hifi.kafka.offset_tracker import OffsetTracker
from hifi.service import Service
from hifi.settings import ServiceSettings

Batch = Sequence[ConsumerRecord]
_POLL_MS: Final = 1000
_PARTITIONS: Final = "partitions that the stream has"
_BACKOFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)

logger = log.get(__name__)


class AssignedPartition:
    """One partition during one assignment: fenced when it ends."""

    def __init__(self, tp: TopicPartition, committed: int | None = None, metadata: str = "") -> None:
        self.topic: str = tp.topic
        self.partition: int = tp.partition
        self.tp = tp
        self.offsets = OffsetTracker()
        self.metadata = metadata
        """What the last owner said in its last commit: small facts that must survive a takeover."""
        self.metadata_at: Callable[[int], str] = lambda _: self.metadata
        """What to say in a commit of that offset (at most 4096 bytes); it may hold true of no later offset."""
        self.active = True
        """Nothing new may begin once it is False."""
        self.revoked = asyncio.Event()
        """Set with the end of `active`: a step that waits for something stops waiting."""
        self.fenced = False
        """The partition may be another member's by now: nothing more may be written for it."""
        self.committed = committed
        self.position: int | None = None
        """The next offset to take from Kafka, once something was taken."""
        self.task: asyncio.Task[None] | None = None
        self.waiting = True
        """The task is asking Kafka for records rather than working on some."""
        self._finished = asyncio.Event()
        self._left = False

    def complete(self, offset: int) -> None:
        """The outputs of one record are acknowledged."""
        self.offsets.finish(offset)
        self._finished.set()

    def complete_through(self, offset: int) -> None:
        """The outputs of all records up to this one are acknowledged."""
        self.offsets.finish_through(offset)
        self._finished.set()

    def ensure_active(self) -> None:
        """Call before anything that others would see.

        Raises:
            Fenced: the partition is no longer ours.
        """
        if not self.active:
            raise Fenced(f"{self.topic}[{self.partition}] is no longer assigned to this instance")

    def abandon(self) -> None:
        """Leave what is unfinished to the next owner, who reads it again: draining does not wait for it."""
        self._left = True
        self._finished.set()

    def revoke(self, *, fenced: bool = False) -> None:
        """Begin nothing new; called when the partition is taken away."""
        self.active = False
        self.fenced = self.fenced or fenced
        self.revoked.set()

    async def wait_below(self, pending: int) -> None:
        """Wait until fewer than `pending` records are unfinished, or they are left."""
        while self.offsets.pending >= pending and not self._left:
            self._finished.clear()
            await self._finished.wait()


BatchHandler = Callable[[AssignedPartition, Batch], Awaitable[None]]
"""Works on a batch of one partition and finishes its offsets, at once or later."""
PoisonHandler = Callable[[AssignedPartition, ConsumerRecord, Exception], Awaitable[None]]
"""Puts away a record on which the batch handler failed repeatedly. Like a batch handler it completes the offset itself,
at once or later: when Kafka has acknowledged the dead letter, and every delivery of the record that has begun is over."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a service reads, and how much at a time."""

    topics: Sequence[str]
    group: str
    batch_records: int = 500
    pending_records: int = 2000
    """Unfinished records of a partition beyond which no more are taken."""
    partition_fetch_bytes: int = 1024 * 1024
    gather_s: float = 0
    """A fetch after one that brought something may take so long at least, seconds."""
    tries: int = 3
    """Times that a step may fail on one record before the record is poisoned."""
    stuck_s: float = 60
    """A consumer that gets nothing for so long although there is something is replaced, seconds; so often the topics'
    partitions are counted too."""


class Consumer:
    """Reads topics in a group and runs a step on each partition's batches until the service stops."""

    def __init__(
        self,
        service: Service,
        settings: ServiceSettings,
        reading: ConsumerOptions,
        step: BatchHandler,
        poisoned: PoisonHandler,
    ) -> None:
        self._service = service
        self._settings = settings
        self._reading = reading
        self._step = step
        self._poisoned = poisoned
        self._works: dict[TopicPartition, AssignedPartition] = {}
        self._consumer: Any = None
        self._failed: asyncio.Future[None] | None = None
        self._ending = False
        """The membership lets go of everything: what the group still gives it is not begun."""
        self._counts: dict[str, int] = {}
        """Topic to its partitions when it was first seen."""
        self._condition = f"assignment of {reading.group}"
        service.health.block(self._condition, "the group has not been joined yet")

    @property
    def assigned(self) -> dict[TopicPartition, AssignedPartition]:
        """The partitions that are assigned now."""
        return self._works

    @property
    def member(self) -> Any:
        """The member of the group now (a CooperativeConsumer), None between two."""
        return self._consumer

    async def run(self) -> None:
        """Read until the service stops, then drain, commit and leave. Kafka being away only makes it wait."""
        failures = 0
        while not self._service.stopping.is_set():
            try:
                await self._member()
                failures = 0
            except (KafkaError, OSError) as error:
                self._service.health.block(self._condition, f"Kafka does not answer: {error!r}")
                logger.warning("consumer-failed", group=self._reading.group, error=repr(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._service.stopping.wait(), _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
                    )
                failures += 1

    async def _member(self) -> None:
        """One membership of the group, from joining to leaving."""
        settings, reading = self._settings, self._reading
        self._failed = asyncio.get_running_loop().create_future()
        self._ending = False
        consumer = self._consumer = CooperativeConsumer(
            bootstrap_servers=settings.kafka,
            client_id=settings.instance,
            group_id=reading.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(settings.session_timeout_s * 1000),
            heartbeat_interval_ms=int(settings.session_timeout_s * 1000 / 5),
            rebalance_timeout_ms=int(settings.rebalance_timeout_s * 1000),
            max_poll_interval_ms=2**31 - 1,  # the watchdog below sees to that
            max_partition_fetch_bytes=reading.partition_fetch_bytes,
            fetch_max_wait_ms=round(reading.gather_s * 1000),
            request_timeout_ms=15_000,
            metadata_max_age_ms=int(reading.stuck_s * 1000),
        )
        consumer.subscribe(list(reading.topics), listener=_Listener(self))
        helpers: list[asyncio.Future[Any]] = []
        try:
            await consumer.start()
            helpers = [
                asyncio.create_task(self._commit_often()),
                asyncio.create_task(self._watch()),
                asyncio.create_task(self._service.stopping.wait()),
            ]
            ended, _ = await asyncio.wait({self._failed, *helpers}, return_when=asyncio.FIRST_COMPLETED)
            self._ending = True
            await self._release(set(self._works))
            for one in ended:
                one.result()
        finally:
            for task in helpers:
                task.cancel()
            for work in self._works.values():
                self._fence(work)
            self._works.clear()
            self._gauge()
            self._consumer = None
            with contextlib.suppress(TimeoutError, KafkaError, OSError):
                await asyncio.wait_for(consumer.stop(), timeout=5)

    async def _partition(self, work: AssignedPartition) -> None:
        """The life of one assigned partition."""
        read = metrics.READ.labels(work.topic)
        try:
            while work.active:
                work.waiting = True
                await work.wait_below(self._reading.pending_records)
                fetched = await self._consumer.getmany(
                    work.tp, timeout_ms=_POLL_MS, max_records=self._reading.batch_records
                )
                work.waiting = False
                records = fetched.get(work.tp)
                if not records or not work.active:
                    continue
                self._note_jump(work, records[0].offset)
                if work.position is not None and records[0].offset < work.position:
                    raise KafkaError(f"{work.topic} was made anew")  # what is known of its offsets is void
                work.position = records[-1].offset + 1
                read.inc(len(records))
                for record in records:
                    work.offsets.start(record.offset)
                await self._work_on(work, records)
        except Fenced:
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, the membership ends and begins anew
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(error)

    async def _work_on(self, work: AssignedPartition, records: Batch) -> None:
        try:
            await self._step(work, records)
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception as error:
            logger.exception(
                "step-failed", topic=work.topic, partition=work.partition, first=records[0].offset
            )
            if len(records) == 1:
                await self._retry(work, records[0], error)
                return
            for record in records:
                if work.offsets.committable is None or record.offset >= work.offsets.committable:
                    await self._work_on(work, [record])

    async def _retry(self, work: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        for turn in range(1, self._reading.tries):
            await asyncio.sleep(_BACKOFF_S[min(turn - 1, len(_BACKOFF_S) - 1)])
            try:
                await self._step(work, [record])
                return
            except (Fenced, asyncio.CancelledError):
                raise
            except Exception as again:  # noqa: BLE001 - as above
                error = again
        logger.error("record-poisoned", topic=work.topic, partition=work.partition, offset=record.offset)
        await self._poisoned(work, record, error)

    def _note_jump(self, work: AssignedPartition, first: int) -> None:
        """Say it loudly when Kafka no longer had what comes next."""
        expected = work.position if work.position is not None else work.committed
        if expected is None or first <= expected:
            return
        # Compaction and transactions leave gaps too, but no event topic has either.
        metrics.SKIPPED.labels(work.topic).inc(first - expected)
        logger.error(
            "offsets-lost", topic=work.topic, partition=work.partition, first=expected, last=first - 1
        )

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.commit_interval_s)
            try:
                await self._commit(list(self._works.values()))
            except (CommitFailedError, IllegalStateError) as error:
                logger.info("commit-refused", error=repr(error))
            except KafkaError as error:
                logger.warning("commit-failed", error=repr(error))

    async def _commit(self, works: Sequence[AssignedPartition]) -> None:
        offsets = {
            work.tp: OffsetAndMetadata(work.offsets.committable, work.metadata_at(work.offsets.committable))
            for work in works
            if work.offsets.committable is not None and work.offsets.committable != work.committed
        }
        if not offsets:
            return
        await self._consumer.commit(offsets)
        for work in works:
            if work.tp in offsets:
                work.committed = offsets[work.tp].offset

    async def _watch(self) -> None:
        """End a membership that gets nothing although there is something: aiokafka's issues 625, 703, 718, 847."""
        seen: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(self._reading.stuck_s / 2)
            self._count_partitions()
            idle = [work for work in self._works.values() if work.waiting and not work.offsets.pending]
            try:
                ends = await self._consumer.end_offsets([work.tp for work in idle]) if idle else {}
                positions = {
                    work.tp: await asyncio.wait_for(self._consumer.position(work.tp), 5) for work in idle
                }
            except (KafkaError, OSError, TimeoutError) as error:
                logger.warning("kafka-unreachable", group=self._reading.group, error=repr(error))
                continue
            stuck = [
                tp for tp, position in positions.items() if position < ends[tp] and seen.get(tp) == position
            ]
            seen = positions
            if stuck and self._failed is not None and not self._failed.done():
                metrics.CONSUMER_RESTARTS.inc()
                logger.error("consumer-stuck", partitions=[f"{tp.topic}[{tp.partition}]" for tp in stuck])
                self._failed.set_exception(KafkaError("the consumer made no progress"))

    def _count_partitions(self) -> None:
        """A stream never grows, and none of its topics goes away: not ready while it is otherwise."""
        counts = {
            topic: len(self._consumer.partitions_for_topic(topic) or ()) for topic in self._reading.topics
        }
        if not self._counts and all(counts.values()):
            self._counts = counts
        wrong = {topic: count for topic, count in counts.items() if count != self._counts.get(topic, count)}
        if wrong:
            logger.error("partitions-changed-outside", found=wrong, expected=self._counts)
            self._service.health.block(
                _PARTITIONS,
                f"partitions were changed from outside: {wrong}, it had {self._counts}; a stream never grows:"
                " start a new one, or make the topic again as it was",
            )
        else:
            self._service.health.unblock(_PARTITIONS)

    async def on_assigned(self, added: set[TopicPartition]) -> None:
        """Begin to work on partitions; called by the rebalance."""
        self._count_partitions()
        try:
            # Not `committed()`: that one drops the metadata.
            known = await self._consumer._coordinator.fetch_committed_offsets(sorted(added))  # noqa: SLF001
        except KafkaError as error:
            # Without their commits the partitions cannot be begun, and nobody else would: join anew.
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(error)
            return
        if self._ending:
            return
        for tp in sorted(added):
            work = (
                AssignedPartition(tp, known[tp].offset, known[tp].metadata)
                if tp in known
                else AssignedPartition(tp)
            )
            self._works[tp] = work
            work.task = asyncio.create_task(self._partition(work))
        self._count("assigned", added)
        self._service.health.unblock(self._condition)

    async def on_revoked(self, taken: set[TopicPartition]) -> None:
        """Drain and let go of partitions; called by the rebalance."""
        await self._release(taken)
        self._count("revoked", taken)

    async def on_lost(self, taken: set[TopicPartition]) -> None:
        """Drop partitions that belong to others already: nothing is committed."""
        for tp in taken:
            work = self._works.pop(tp, None)
            if work is not None:
                self._fence(work)
        self._count("lost", taken)

    async def _release(self, taken: set[TopicPartition]) -> None:
        works = [self._works[tp] for tp in taken if tp in self._works]
        for work in works:
            work.revoke()
        bound_s = self._settings.rebalance_timeout_s * 0.7
        tasks = [asyncio.create_task(self._drain(work)) for work in works]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=bound_s)
            for task in late:
                task.cancel()
            if late:
                logger.error("drain-too-long", bound_s=bound_s, partitions=len(late))
        try:
            await self._commit(works)
        except KafkaError as error:
            logger.warning("commit-failed", error=repr(error))
        for work in works:
            self._fence(work)
            self._works.pop(work.tp, None)

    async def _drain(self, work: AssignedPartition) -> None:
        if work.task is not None and not work.waiting:
            await asyncio.wait({work.task})
        await work.wait_below(1)

    def _fence(self, work: AssignedPartition) -> None:
        work.revoke(fenced=True)
        if work.task is not None:
            work.task.cancel()

    def _count(self, kind: str, changed: set[TopicPartition]) -> None:
        if changed:
            metrics.REBALANCES.labels(kind).inc()
            names = [f"{tp.topic}[{tp.partition}]" for tp in sorted(changed)]
            logger.info("partitions-changed", kind=kind, partitions=names)
        self._gauge()

    def _gauge(self) -> None:
        for topic in self._reading.topics:
            metrics.PARTITIONS.labels(topic).set(sum(tp.topic == topic for tp in self._works))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._consumer.on_assigned(assigned)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._consumer.on_revoked(revoked)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        await self._consumer.on_lost(lost)
