"""Read every topic of the partition numbers that this instance observes into their ledgers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka.errors import IllegalStateError

from hifi.kafka.clients import adaptive_consumer, close
from hifi.kafka.late_answers import LateAnswers
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import Topics
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.trusted_clock import TrustedClock, read_clocks
from hifi_observe.kafka.ledger_recovery import load_ledger
from hifi_observe.kafka.membership import PartitionMembership
from hifi_observe.kafka.offset_snapshot import OffsetSnapshotReader, read_topics
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.ledger import stage
from hifi_observe.ledger.closing import ClosingRules, LakeRead
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.settings import ObserveSettings
from hifi_observe.traces.event_tracer import EventTracer

_BATCH: Final = 250
"""Records a turn of the event loop. Larger batches exceed a core's cache and cost a fifth more per record."""
_RAW_ENDS_S: Final = 0.25
"""Time between requests for the ends of `raw`; the watermark is as coarse."""
_FETCH_BYTES: Final = 1024 * 1024
_WAIT_MS: Final = 500
_LAG_S: Final = 10.0
"""A broker may not know the newest records of a topic for this long, seconds; see `hifi.kafka.topic_follower`."""

logger = log.get(__name__)


def bare_consumer(settings: ServiceSettings) -> Any:
    """A consumer without a group. It fetches large batches: a record may wait half a second, which saves CPU time."""
    return adaptive_consumer(
        settings,
        fetch_max_wait_ms=_WAIT_MS,
        fetch_max_bytes=4 * 1024 * 1024,
        max_partition_fetch_bytes=_FETCH_BYTES,
        metadata_max_age_ms=60_000,
        bare_records=True,
    )


class TopicReader:
    """Holds the ledgers, keeps them up to date with Kafka, and publishes the minutes that close."""

    def __init__(
        self,
        settings: ObserveSettings,
        topics: Topics,
        publisher: Publisher,
        clock: TrustedClock,
        traces: EventTracer | None = None,
        lake: Callable[[], frozenset[tuple[str, str]]] = frozenset,
        known_term: Callable[[], int] = lambda: 0,
    ) -> None:
        """Read nothing yet.

        Args:
            settings: of the service.
            topics: of the stream.
            publisher: of minutes that close.
            clock: of watermarks.
            traces: gets the records, too.
            lake: returns pipe and name of the destinations that the service lake delivers to.
            known_term: returns the highest term (`hifi_observe.minutes.terms`) that this process has seen.
        """
        self.ledgers: dict[int, PartitionLedger] = {}
        self.answered_s = monotonic_s()
        """When Kafka last answered, monotonic clock."""
        self.joined = asyncio.Event()
        self._settings = settings
        self._topics = topics
        self._rules: ClosingRules = settings.rules
        self._publisher = publisher
        self._clock = clock
        self._traces = traces
        self._lake = lake
        self._known_term = known_term
        self._snapshots = OffsetSnapshotReader(settings.kafka, settings.instance, topics)
        self._membership = PartitionMembership(settings, topics, self._changed)
        self._consumer = bare_consumer(settings)
        self._assigned = asyncio.Event()
        self._lock = asyncio.Lock()
        """Held while minutes are closed and published, and while partitions are added or removed."""
        self._amended_s = 0.0
        self._short_since_s: dict[int, float] = {}
        """Partition number to since when a topic ends before what was read of it, monotonic clock."""
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The error because of which this reader must stop."""

    @property
    def lookup_problems(self) -> Mapping[str, str]:
        """Lookup (`pipe/name`) to the reason why its table is not as it should be."""
        return self._snapshots.lookup_problems

    @property
    def held(self) -> bool:
        """Whether Kafka certainly has not given these partition numbers to another instance."""
        return self._membership.held()

    async def run(self) -> None:
        """Join the group and read until cancelled.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka is unreachable; run a new reader.
        """
        try:
            await self._consumer.start()
            await self._snapshots.start()
            await self._membership.start()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read_records())
                tasks.create_task(self._read_snapshots())
                tasks.create_task(self._read_raw_ends())
                tasks.create_task(self._raise_failure())
        finally:
            self._failure.cancel()
            for client in (self._membership, self._snapshots, self._consumer):
                await close(client)

    async def _raise_failure(self) -> None:
        await self._failure

    async def _changed(self, added: set[int], removed: set[int]) -> None:
        try:
            await self._change(added, removed)
        except Exception as error:  # noqa: BLE001 - raised by `run`
            # Otherwise the group would keep assigning partitions to an instance that does not read them.
            if not self._failure.done():
                self._failure.set_exception(error)

    async def _change(self, added: set[int], removed: set[int]) -> None:
        async with self._lock:
            for partition in removed:
                self.ledgers.pop(partition, None)
                self._short_since_s.pop(partition, None)
            for partition in sorted(added):
                self.ledgers[partition] = await load_ledger(
                    self._settings,
                    self._topics,
                    self._publisher.partitions,
                    self._rules,
                    partition,
                    self._membership.generation,
                    self._known_term(),
                )
                if tables := self._lake():
                    self.ledgers[partition].lake = LakeRead(0, tables)
            await self._assign(added)
            if self._traces is not None:
                self._traces.keep(self.ledgers)
        logger.info("partitions-assigned", partitions=sorted(self.ledgers))
        self.joined.set()

    async def _assign(self, added: set[int]) -> None:
        """Read all topics of the partition numbers, each from the position of its ledger."""
        topic_names = read_topics(self._topics)
        tps = {
            self._snapshots.tp(name, partition): name for partition in self.ledgers for name in topic_names
        }
        added_tps = [tp for tp in tps if tp.partition in added]
        first_offsets = await self._consumer.beginning_offsets(added_tps) if added_tps else {}
        self._consumer.assign(list(tps))
        for tp, name in tps.items():
            positions = self.ledgers[tp.partition].positions
            start = max(positions.get(name, 0), first_offsets.get(tp, 0))
            if tp in first_offsets and positions.get(name) is not None:
                self._note_jump(self.ledgers[tp.partition], name, positions[name], start)
            positions[name] = start
            self._consumer.seek(tp, start)
        if tps:
            self._assigned.set()
        else:
            self._assigned.clear()

    async def _read_records(self) -> None:
        while True:
            await self._assigned.wait()
            try:
                fetched = await self._consumer.getmany(timeout_ms=500, max_records=_BATCH)
            except IllegalStateError:
                continue  # the assignment changed in the meantime
            for tp, records in fetched.items():
                ledger = self.ledgers.get(tp.partition)
                if ledger is None:
                    continue
                name = tp.topic.removeprefix(self._topics.stream + ".")
                position = ledger.positions.get(name, 0)
                if records[0].offset < position:
                    continue  # fetched for a previous assignment
                self._note_jump(ledger, name, position, records[0].offset)
                ledger.take(name, records)
                if self._traces is not None:
                    self._traces.take(name, tp.partition, records)
            await asyncio.sleep(0)

    async def _read_raw_ends(self) -> None:
        """Pass the end offsets of `raw` to the ledgers, for the watermarks."""
        late_answers = LateAnswers()
        while True:
            asked_clocks = read_clocks()
            asked_us = self._clock.time_us(asked_clocks)
            tps = [self._snapshots.tp(stage.RAW, partition) for partition in self.ledgers]
            if tps and asked_us is not None:
                end_offsets = await self._consumer.end_offsets(tps)
                if late_answers.counts(asked_clocks.monotonic_us, read_clocks().monotonic_us):
                    for tp, end_offset in end_offsets.items():
                        ledger = self.ledgers.get(tp.partition)
                        if ledger is not None:
                            ledger.open_events.note_end(
                                asked_us, end_offset, ledger.positions.get(stage.RAW, 0)
                            )
            await asyncio.sleep(_RAW_ENDS_S)

    def _note_jump(self, ledger: PartitionLedger, name: str, expected_offset: int, first_offset: int) -> None:
        if first_offset > expected_offset:
            if name == stage.RAW:
                ledger.open_events.holds.deleted_unread(first_offset - expected_offset, self._rules.follow_s)
            ledger.live.skip(name, first_offset - expected_offset, now_us())
            logger.error("offsets-lost", topic=name, first=expected_offset, last=first_offset - 1)

    async def _read_snapshots(self) -> None:
        """Read snapshots at an interval; close minutes at each one that was reached."""
        while True:
            started_s = monotonic_s()
            async with self._lock:
                await self._begin_snapshots()
                await self._close_minutes()
            await asyncio.sleep(
                max(0.02, self._settings.observe_snapshot_interval_s - (monotonic_s() - started_s))
            )

    async def _begin_snapshots(self) -> None:
        """Give a snapshot to each ledger that has none, unless a topic ends before what was read of it."""
        taken_us = self._time_us()
        if not self.ledgers or taken_us is None:
            return
        # What is read while Kafka answers may be above the ends that it answers.
        positions = {partition: dict(ledger.positions) for partition, ledger in self.ledgers.items()}
        snapshots = await self._snapshots.snapshots(self._consumer, positions, taken_us, self._lake())
        self.answered_s = monotonic_s()
        for partition, snapshot in snapshots.items():
            ledger = self.ledgers[partition]
            short_names = snapshot.short_topics(positions[partition])
            if short_names:
                await self._begin_again(ledger, short_names)
            else:
                self._short_since_s.pop(partition, None)
                if not ledger.busy:
                    ledger.begin(snapshot)

    async def _begin_again(self, ledger: PartitionLedger, shorter_topics: list[str]) -> None:
        """Read topics from their beginning that stay shorter than what was read of them.

        They were created again, or a broker lost their newest records. Until then minutes wait: what is in the topics
        now was not read.
        """
        now_s = monotonic_s()
        if now_s - self._short_since_s.setdefault(ledger.partition, now_s) < _LAG_S:
            return
        tps = {self._snapshots.tp(name, ledger.partition): name for name in shorter_topics}
        for tp, first_offset in (await self._consumer.beginning_offsets(list(tps))).items():
            name = tps[tp]
            logger.warning(
                "topic-recreated",
                topic=name,
                partition=ledger.partition,
                position=ledger.positions[name],
                first=first_offset,
            )
            ledger.begin_again(name, first_offset)
            self._consumer.seek(tp, first_offset)
        del self._short_since_s[ledger.partition]

    def _time_us(self) -> int | None:
        """The time by which minutes are closed; None: Kafka has not confirmed it yet.

        A clock that is set ahead must not close minutes that follow.
        """
        return self._clock.time_us(read_clocks())

    async def _close_minutes(self) -> None:
        now_s, time_us = monotonic_s(), self._time_us()
        if time_us is None or not self._membership.held():
            return
        amends = now_s - self._amended_s >= self._settings.observe_amend_interval_s
        if amends:
            self._amended_s = now_s
        newest_minute = self._rules.newest_closable(time_us)
        for partition, ledger in self.ledgers.items():
            if not self.held:
                return  # another instance may have published more by now; else it is tried again
            if not ledger.reached:
                continue
            if newest_minute <= ledger.told_minute and not amends:
                ledger.drop_snapshot()
                continue
            told_before = ledger.told_minute
            minute_results = ledger.settle()
            marker = ledger.marker()
            if minute_results or ledger.told_minute != told_before:
                await self._publisher.closed(partition, minute_results, marker, now_us(), ledger.term)
