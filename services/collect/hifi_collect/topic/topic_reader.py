"""Read a source topic in a consumer group on its own cluster, and write its records to `raw`.

Before a batch is written, its accepted time is committed with the position up to which all records are written;
afterwards the position after its last record is committed. So the next reader of the batch gives it the same time, and
a reader that has lost the partition does not write, because its commit is refused. While a batch is written the next
one is read. Earlier records of the topic are backfill and have a pace (`hifi_collect.pace`). A topic that was created
again is read from its beginning: commits have its id, with the cluster. Where another cluster has the topic, it is read
from the offsets that the group has there.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from hifi.delivery.raw_writer import RawWriter
from hifi.delivery.reader_run import new_run
from hifi.kafka.consumer import AssignedPartition, Batch, Consumer, ConsumerOptions
from hifi.kafka.foreign_records import UnreadRecord
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.kind import TopicEvents
from hifi.pipe.sources.loop_slices import loop_slices
from hifi.pipe.sources.topic import TopicSource
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, now_us, wait_at_most
from hifi.runtime.errors import Fenced, Misconfigured, Retryable
from hifi.runtime.lifetime import Lifetime
from hifi_collect.accepted_times import AcceptedTimes
from hifi_collect.pace.catch_up import CatchUp
from hifi_collect.pace.source_pace import SourcePace
from hifi_collect.settings import CollectSettings
from hifi_collect.topic.deleted_records import DeletedRecords
from hifi_collect.topic.partition_offsets import partition_name, watch_offsets

_RETRY_S: Final = 0.5
BATCH_RECORDS: Final = 4000
"""Largest number of records that are written at once: each batch waits for two answers of Kafka."""
_FETCH_BYTES: Final = 4 * 1024 * 1024
WRITING_BATCHES: Final = 2
"""Batches of a partition that are being written while the next one is made: reading and writing overlap."""
_LOOK_S: Final = 15.0
"""Time between two looks at the id of the topic, seconds."""
_REGISTRY: Final = "schema registry"

logger = log.get(__name__)


class _PartitionState:
    """The state of one source partition during one assignment."""

    def __init__(self, assigned: AssignedPartition, source: bytes, after_s: float) -> None:
        self.source = source
        self.reader_run = new_run()
        self.times = AcceptedTimes(assigned.metadata)
        self.first_offset: int | None = None
        """Offset that was read first."""
        self.writing: deque[asyncio.Future[Any]] = deque()
        """Acknowledgements of the last batches."""
        self.catch_up = CatchUp(after_s)


class KafkaTopicReader:
    """Reads the source of one pipe until the service stops."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: CollectSettings,
        pipe: str,
        source: TopicSource,
        cluster: str,
        events: TopicEvents,
        registry: PipeRegistry,
        writer: RawWriter,
        pace: SourcePace,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            lifetime: ends the reader, and shows its conditions.
            settings: of the service.
            pipe: name.
            source: as the pipe declares it.
            cluster: id of the source's cluster.
            events: of the topic's records.
            registry: has the pipe.
            writer: to `raw`.
            pace: of the source.
        """
        self._lifetime = lifetime
        self._pipe = pipe
        self._source = source
        self._cluster = cluster
        self._registry = registry
        self._writer = writer
        self._pace = pace
        self._max_bytes = settings.collect_max_event_bytes
        self._topic_events = events
        self._event = events.event_reader(cluster)
        self._deleted = DeletedRecords(pipe, lifetime.health, writer.reporter)
        self._work_lock = asyncio.Lock()
        """Held while the records of a partition are processed."""
        self._waiting_for_schemas: set[AssignedPartition] = set()
        """Partitions that wait for the schema registry."""
        self._states: WeakKeyDictionary[AssignedPartition, _PartitionState] = WeakKeyDictionary()
        self._consumer = Consumer(
            lifetime,
            settings.model_copy(update={"kafka": source.bootstrap}),
            ConsumerOptions(
                [source.topic],
                settings.topics.group(f"collect.{pipe}"),
                batch_records=BATCH_RECORDS,
                pending_records=2 * BATCH_RECORDS,
                partition_fetch_bytes=_FETCH_BYTES,
                foreign=True,
                security=source.security,
                pipe=pipe,
            ),
            self._handle,
            self._handle_poison,
        )
        self._lease = PartitionLease(lambda: self._consumer.member, settings.session_timeout_s)

    async def run(self) -> None:
        """Read until the service stops."""
        watch_tasks = [
            asyncio.create_task(watch_offsets(self._consumer, self._source.topic, self._pace)),
            asyncio.create_task(self._watch_topic_id()),
        ]
        try:
            await self._consumer.run()
        finally:
            for watch_task in watch_tasks:
                watch_task.cancel()

    async def _handle(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Write the records of a batch, and complete them when Kafka has acknowledged them."""
        await self._prepare(assigned, batch)
        state = await self._partition_state(assigned)
        state.catch_up.begin(batch[-1].offset, self._end_offset(assigned))
        events = await self._events(assigned, batch)
        start = 0
        for index, event in enumerate(events):
            if event.followed:
                await self._write_at_pace(assigned, state, batch[start:index], events[start:index])
                await self._write_following(assigned, state, batch[index], event)
                start = index
        await self._write_at_pace(assigned, state, batch[start:], events[start:])

    async def _write_at_pace(
        self, assigned: AssignedPartition, state: _PartitionState, batch: Batch, events: list[SourceEvent]
    ) -> None:
        if not batch:
            return
        if not self._any_backfill(state, batch, events):
            await self._write(assigned, batch, events, is_catching_up=False)
            return
        for indexes in self._pace.chunks(range(len(batch))):
            if not assigned.active:
                raise _abandoned(assigned, "it was revoked during its backfill")
            await self._write(
                assigned, batch[indexes[0] : indexes[-1] + 1], events[indexes[0] : indexes[-1] + 1]
            )

    async def _write_following(
        self,
        assigned: AssignedPartition,
        state: _PartitionState,
        record: ConsumerRecord,
        event: SourceEvent,
    ) -> None:
        """Write the events that replace an event until there are no more, and wait until Kafka has acknowledged them.

        The position of the event is complete after that, and no later record is read before.
        """
        await assigned.outputs_acknowledged()
        in_us = now_us()
        await self._keep_times(assigned, state, [record], in_us)
        await asyncio.gather(*self._deleted.report(assigned.tp, assigned.deleted))
        pipe = self._registry.get(self._pipe)
        if pipe is None or pipe.pipe.source != self._source:
            raise _abandoned(assigned, "the pipe has another source now")
        [accepted_us] = state.times.of([record.offset], in_us)
        try:
            while await self._write_some_following(assigned, state, record, event, pipe, accepted_us, in_us):
                pass
        except BaseException:
            state.reader_run = new_run()
            raise

    async def _write_some_following(
        self,
        assigned: AssignedPartition,
        state: _PartitionState,
        record: ConsumerRecord,
        event: SourceEvent,
        pipe: PipeRevision,
        accepted_us: int,
        in_us: int,
    ) -> bool:
        """Write the events that the source has at a time of those that replace an event; False: there are no more."""
        following_events = await self._topic_events.following(record, event)
        for name, events in following_events:
            source = b"%b/%b" % (state.source, name.encode())
            for events_slice in loop_slices(events):
                if assigned.fenced:
                    raise _abandoned(assigned, "it belongs to another member")
                accepted_times_us = [accepted_us] * len(events_slice)
                await (
                    await self._writer.begin(
                        pipe, events_slice, accepted_times_us, source, state.reader_run, in_us, at_once=True
                    )
                )
        if following_events:
            self._require_lease(assigned)
            await self._topic_events.following_written()
        return bool(following_events)

    @staticmethod
    def _any_backfill(state: _PartitionState, batch: Batch, events: list[SourceEvent]) -> bool:
        """Whether any event has to keep the pace of a backfill."""
        if any(event.backfill for event in events):
            return True
        if batch[0].offset >= state.catch_up.target:
            return False
        oldest_ms = min(record.timestamp for record in batch)
        return state.catch_up.is_backfill(batch[0].offset, oldest_ms * 1000, now_us())

    async def _events(self, assigned: AssignedPartition, batch: Batch) -> list[SourceEvent]:
        """The events of a batch, with turns of the event loop for other tasks in between."""
        events: list[SourceEvent] = []
        for records in loop_slices(batch):
            async with self._work_lock:
                for record in records:
                    if isinstance(record, UnreadRecord):
                        events.append(self._unreadable_event(record))
                        continue
                    try:
                        event = self._event(record)
                    except Exception as error:  # noqa: BLE001 - any error that a hostile record causes
                        event = await self._retried_event(assigned, record, error)
                    events.append(event)
                await asyncio.sleep(0)
        return events

    async def _retried_event(
        self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception
    ) -> SourceEvent:
        """The event of a record on which the reader has failed; it is refused alone if it fails again.

        Another partition may have displaced the schema of the record since the batch was prepared.
        """
        logger.warning("record-unreadable", pipe=self._pipe, offset=record.offset, error=repr(error))
        await self._prepare(assigned, [record])
        try:
            return self._event(record)
        except Exception as repeated_error:
            logger.exception("record-refused", pipe=self._pipe, offset=record.offset)
            return self._failed_event(record, repeated_error)

    def _unreadable_event(self, record: UnreadRecord) -> SourceEvent:
        """A record or a batch that the consumer could not read."""
        logger.error("record-unreadable", pipe=self._pipe, offset=record.offset, error=record.detail)
        return refused(self._event_without_data(record), record.reason, record.detail)

    def _failed_event(self, record: ConsumerRecord, error: Exception) -> SourceEvent:
        """The event of a record that failed; normalize makes a dead letter of it."""
        detail = f"collect failed on this record ({type(error).__name__}); see its log for the cause"
        event = self._event_without_data(record)
        event.data = record.value if len(record.value or b"") <= self._max_bytes else None
        return refused(event, "collect-failed", detail)

    def _event_without_data(self, record: ConsumerRecord) -> SourceEvent:
        """An event whose id is the topic, partition and offset of a record."""
        topic_path = f"{self._cluster}/{record.topic}"
        event_id = f"{topic_path}/{record.partition}/{record.offset}".encode()
        headers = [("ce_id", event_id), ("ce_source", f"kafka://{topic_path}".encode())]
        return SourceEvent(record.offset, event_id, None, headers, None)

    async def _prepare(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Wait until the schemas of a batch are known; tries again until the registry answers."""
        try:
            while True:
                try:
                    await self._topic_events.prepare(batch)
                except (Retryable, Misconfigured) as error:
                    logger.warning("schemas-unknown", pipe=self._pipe, error=str(error))
                    self._waiting_for_schemas.add(assigned)
                    self._lifetime.health.warn(_REGISTRY, str(error))
                else:
                    return
                await _pause(assigned, "it was revoked before the schemas of its records were known")
        finally:
            if assigned in self._waiting_for_schemas:
                self._waiting_for_schemas.discard(assigned)
                if not self._waiting_for_schemas:
                    self._lifetime.health.warn(_REGISTRY, None)

    def _end_offset(self, assigned: AssignedPartition) -> int:
        """The end offset of a partition at the last fetch; 0: not known."""
        member = self._consumer.member
        return (member.highwater(assigned.tp) or 0) if member is not None and assigned.active else 0

    async def _handle_poison(
        self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception
    ) -> None:
        """Write a record on which `_handle` failed repeatedly; normalize makes a dead letter of it."""
        event = self._failed_event(record, error)
        event.data = None
        await self._write(assigned, [record], [event])

    async def _write(
        self,
        assigned: AssignedPartition,
        batch: Batch,
        events: list[SourceEvent],
        *,
        is_catching_up: bool = True,
    ) -> None:
        """Queue the records of a batch; they are complete when Kafka has acknowledged them. Waits for backfill."""
        if assigned.committed is not None and batch[0].offset < assigned.committed:
            await self._refuse_truncated(assigned)
        in_us, state = now_us(), await self._partition_state(assigned)
        try:
            await self._wait_for_earlier_batches(state)
            await self._keep_times(assigned, state, batch, in_us)
            acknowledgements: list[Awaitable[Any]] = [*self._deleted.report(assigned.tp, assigned.deleted)]
            pipe = self._registry.get(self._pipe)
            if pipe is None or pipe.pipe.source != self._source:
                raise _abandoned(assigned, "the pipe has another source now")
            if is_catching_up:
                for record, event in zip(batch, events, strict=True):
                    written_us = record.timestamp * 1000
                    event.backfill |= state.catch_up.is_backfill(record.offset, written_us, in_us)
            accepted_times_us = state.times.of((event.position for event in events), in_us)
            is_paced = is_catching_up and any(event.backfill for event in events)
            event_indexes = [index for index, event in enumerate(events) if not event.skipped]
            for slice_indexes in self._pace.slices(event_indexes) if is_paced else loop_slices(event_indexes):
                events_slice = [events[index] for index in slice_indexes]
                slice_times_us = [accepted_times_us[index] for index in slice_indexes]
                if backfill_count := sum(event.backfill for event in events_slice) if is_paced else 0:
                    await self._pace.turn(backfill_count)
                if assigned.fenced:  # a partition that is only being revoked finishes its batch
                    raise _abandoned(assigned, "it belongs to another member")
                async with self._work_lock:
                    acknowledgement = await self._writer.begin(
                        pipe, events_slice, slice_times_us, state.source, state.reader_run, in_us
                    )
                    await asyncio.sleep(0)
                acknowledgements.append(acknowledgement)
                if is_paced:
                    await acknowledgement
            acknowledgements += self._remember(assigned, events)
        except BaseException:
            state.reader_run = new_run()  # some records may have been written: the next ones have gone back
            raise
        batch_acknowledgement = asyncio.gather(*acknowledgements)
        state.writing.append(batch_acknowledgement)
        assigned.complete_when(
            batch_acknowledgement, batch[-1].offset, partial(self._complete, assigned, len(batch))
        )

    def _remember(self, assigned: AssignedPartition, events: Sequence[SourceEvent]) -> list[Awaitable[None]]:
        """Have the source write down what it has to know of events; empty: nothing.

        Raises:
            Fenced: another member may own the partition.
        """
        remembered = self._topic_events.remember(events)
        if remembered is None:
            return []
        writing = asyncio.ensure_future(remembered)  # it begins in the next turn of the event loop
        try:
            self._require_lease(assigned)
        except Fenced:
            writing.cancel()
            raise
        return [writing]

    def _require_lease(self, assigned: AssignedPartition) -> None:
        """Check that no other member can own a partition: what a source writes down has no other fence.

        Raises:
            Fenced: one can, or it is not known.
        """
        if assigned.fenced or not self._lease.held():
            raise _abandoned(assigned, "it may belong to another member")

    @staticmethod
    async def _wait_for_earlier_batches(state: _PartitionState) -> None:
        """Wait until fewer than `WRITING_BATCHES` are being written: a commit has room for few accepted times."""
        while len(state.writing) >= WRITING_BATCHES:
            await asyncio.wait([state.writing[0]])
            state.writing.popleft().result()
        for writing in state.writing:  # nothing is written after a batch that was not
            if writing.done():
                writing.result()

    def _complete(self, assigned: AssignedPartition, records: int, offset: int) -> None:
        """Kafka has acknowledged a batch."""
        assigned.complete_through(offset)
        self._states[assigned].times.forget(offset + 1)
        self._pace.progress.advance(partition_name(assigned.tp), offset + 1, records, monotonic_s())

    async def _partition_state(self, assigned: AssignedPartition) -> _PartitionState:
        """The state of a partition.

        Raises:
            Fenced: its position is one of an earlier topic of this name; the next assignment reads from the beginning.
        """
        state = self._states.get(assigned)
        if state is None:
            # Asked for each assignment: the topic may have been created again, with positions that begin anew.
            topic_id = await self._topic_id(assigned)
            name = f"kafka/{self._cluster}/{assigned.topic}/{topic_id}/{assigned.partition}"
            await self._refuse_earlier_topic(topic_id)
            state = self._states[assigned] = _PartitionState(assigned, name.encode(), self._pace.after_s)
            topic = self._named(topic_id)
            if "/" in state.times.topic and state.times.topic != topic:
                state.times = AcceptedTimes()  # of the positions in another cluster
            state.times.topic = topic
            assigned.metadata_at = state.times.text_from
        return state

    async def _refuse_earlier_topic(self, topic_id: str) -> None:
        """Commit the beginning of the partitions whose position is one of an earlier topic of the same name.

        Args:
            topic_id: of the topic that is there; empty: not known.

        Raises:
            Fenced: there are such partitions; the next assignment reads them from the beginning.
        """
        earlier_partitions = [
            assigned
            for assigned in self._consumer.assigned.values()
            if self._is_earlier(self._times(assigned).topic, topic_id)
        ]
        if not earlier_partitions:
            return
        logger.warning("topic-created-again", pipe=self._pipe, topic=self._source.topic, id=topic_id)
        times = AcceptedTimes()
        times.topic = self._named(topic_id)
        for assigned in earlier_partitions:
            await self._commit(assigned, times, lambda: 0)
        reason = f"{self._source.topic} was created again: it is read from its beginning"
        for assigned in earlier_partitions:
            assigned.make_void(KafkaError(reason))
        raise Fenced(reason)

    def _named(self, topic_id: str) -> str:
        """The identity of a topic in commits: `<cluster>/<id>`; empty: its id is not known."""
        return topic_id and f"{self._cluster}/{topic_id}"

    def _is_earlier(self, named: str, topic_id: str) -> bool:
        """Whether a commit is one of an earlier topic of this cluster: a synced one is of another cluster's topic.

        Args:
            named: what the commit has of its topic; without a cluster, it is one of this cluster.
            topic_id: of the topic that is there; empty: not known.
        """
        cluster, _, named_id = named.rpartition("/")
        return bool(topic_id and named_id) and cluster in ("", self._cluster) and named_id != topic_id

    def _times(self, assigned: AssignedPartition) -> AcceptedTimes:
        state = self._states.get(assigned)
        return AcceptedTimes(assigned.metadata) if state is None else state.times

    async def _watch_topic_id(self) -> None:
        """Look from time to time whether the topic was created again, until cancelled: a fetch does not tell it."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                if self._consumer.assigned and (topic_id := await self._request_topic_id()):
                    await self._refuse_earlier_topic(topic_id)
            except Fenced:
                pass  # the next assignment goes on
            except Exception:  # such as credentials that are being written: look again
                logger.exception("topic-id-not-watched", pipe=self._pipe)

    async def _topic_id(self, assigned: AssignedPartition) -> str:
        while (topic_id := await self._request_topic_id()) is None:
            await _pause(assigned, "it was revoked before the id of its topic was known")
        return topic_id

    async def _request_topic_id(self) -> str | None:
        """The id of the topic; empty: it has none, None: Kafka does not tell it at the moment."""
        source = self._source
        try:
            identity = await topic_identity(source.bootstrap, source.topic, source.security, self._pipe)
        except (KafkaError, OSError) as error:
            logger.warning("topic-id-unknown", pipe=self._pipe, error=repr(error))
            return None
        return identity.topic

    async def _keep_times(
        self, assigned: AssignedPartition, state: _PartitionState, batch: Batch, accepted_us: int
    ) -> None:
        """Commit the accepted time of a batch with the position that is complete, unless the batch has one."""
        if state.first_offset is None:
            # Not behind deleted records, which the next reader has to report if this one does not come to it.
            committed_offset = batch[0].offset if assigned.committed is None else assigned.committed
            state.first_offset = min(batch[0].offset, committed_offset)
        if state.times.at(batch[-1].offset) is not None:
            return
        state.times.extend(batch[-1].offset + 1, accepted_us)
        first_offset, offsets = state.first_offset, assigned.offsets
        assigned.committed = await self._commit(
            assigned,
            state.times,
            lambda: first_offset if offsets.committable is None else offsets.committable,
        )

    async def _commit(
        self, assigned: AssignedPartition, times: AcceptedTimes, offset: Callable[[], int]
    ) -> int:
        """Commit an offset with the accepted times of what follows it; returns it.

        Args:
            assigned: the partition.
            times: accepted times, with the topic.
            offset: returns the offset; called for each attempt.

        Raises:
            Fenced: the partition was revoked, or the membership has ended before.
        """
        while True:
            commit_offset = offset()
            if (member := self._consumer.member) is None or assigned.fenced:
                raise _abandoned(assigned, "its membership has ended")
            try:
                await member.commit(
                    {assigned.tp: OffsetAndMetadata(commit_offset, times.text_from(commit_offset))}
                )
            except KafkaError as error:  # refused, such as during a rebalance, or Kafka does not answer
                logger.warning("accepted-time-not-committed", pipe=self._pipe, error=repr(error))
            else:
                return commit_offset
            await _pause(assigned, "it was revoked before the accepted time was committed")

    async def _refuse_truncated(self, assigned: AssignedPartition) -> None:
        """Wait until the partition is revoked: it gives its offsets to new events, which would count as copies."""
        subject = f"{assigned.topic}[{assigned.partition}]"
        logger.error("source-truncated", pipe=self._pipe, partition=subject, committed=assigned.committed)
        self._lifetime.health.warn(
            subject,
            f"it ends before the committed offset {assigned.committed}: Kafka has lost records of it. Give the pipe"
            " another name to read it from its beginning",
        )
        await assigned.revoked.wait()
        self._lifetime.health.warn(subject, None)
        raise _abandoned(assigned, "it was truncated")


async def _pause(assigned: AssignedPartition, reason: str) -> None:
    """Wait before an attempt is repeated.

    Raises:
        Fenced: the partition was revoked.
    """
    await wait_at_most(assigned.revoked, _RETRY_S)
    if not assigned.active:
        raise _abandoned(assigned, reason)


def _abandoned(assigned: AssignedPartition, reason: str) -> Fenced:
    """Leave the records to the next owner of the partition; raise the result."""
    assigned.abandon()
    return Fenced(f"{assigned.topic}[{assigned.partition}]: {reason}")
