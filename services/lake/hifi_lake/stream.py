"""The stream for the batches of the query: tables, pipes, receipts and offsets.

The batches run in a thread of Spark's; the stream is reached through the event loop of the service.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import wait
from typing import Any, Final, TypeVar

from aiokafka import TopicPartition

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.delivery.several_logs import require_usable
from hifi.kafka.clients import topic_consumer
from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topic_identity import topic_identity
from hifi.kafka.topic_reader import note_unreadable, offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.pipe.limit_check import destination_refusals, require_none
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import ConnectorDestination
from hifi.pipe.pipes_end import NOTHING_KNOWN, read_pipes_end
from hifi.pipe.reader import reader
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log as service_log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Fenced
from hifi.runtime.health import Health
from hifi_iceberg.declaration import LakeTable, lake_table
from hifi_lake.held_tables import HeldTables
from hifi_lake.recorded import RecordedDeliveries, TableName

T = TypeVar("T")
_REVISION_TIMEOUT_S: Final = 30.0
_CALL_TIMEOUT_S: Final = 120.0
"""Time after which a call fails that makes no progress."""
_POLL_S: Final = 1.0

logger = service_log.get(__name__)


class LakeStream:
    """Calls from the thread of a batch. Make it on the event loop."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topics: Topics,
        registry: PipeRegistry,
        log: Callable[[], str],
        election: LeaderElection,
        health: Health,
        watermarks: PublishedWatermarks,
    ) -> None:
        """Connect nothing yet.

        Args:
            bootstrap: of Kafka.
            client_id: name in the logs and quotas of the broker.
            topics: of the stream.
            registry: of the pipes, started.
            log: returns the identity of the stream's log; raises `Misconfigured` if Kafka does not report it.
            election: decides whether this instance may still write.
            health: shows tables whose declaration is wrong, and revisions of pipes that do not arrive.
            watermarks: of the stream, for tables that state their watermark.
        """
        self._bootstrap, self._client_id = bootstrap, client_id
        self._topics = topics
        self._registry = registry
        self.log: Final = log
        self._election = election
        self._health = health
        self._watermarks = watermarks
        self._loop = asyncio.get_running_loop()
        self._tables: dict[TableName, LakeTable] = {}
        self._recorded = RecordedDeliveries()
        self._held_tables = HeldTables()
        self._held_read_to = -1
        """`content_offset` of the registry before they were read."""
        self.pipes_end = NOTHING_KNOWN
        """Tells which revisions were never published."""

    def names(self) -> set[TableName]:
        """Every table that a pipe in use declares, or declared since this instance started, and those of held pipes.

        A table that is no longer declared still gets the events that were routed to it before.
        """
        return self._declared_names() | self._held_tables.of(self._registry.unreadable_keys())

    def is_declared(self, name: TableName) -> bool:
        """Whether a declaration of a table was read; if not, its pipe is held."""
        return name in self._declared_names()

    def _declared_names(self) -> set[TableName]:
        declared_tables = {
            (revision.pipe.pipe, destination.name)
            for revision in self._registry.in_use()
            for destination in revision.pipe.destinations
            if reader(destination) == "lake"
        }
        return declared_tables | self._tables.keys()

    def table(self, name: TableName) -> LakeTable:
        """A table as the current revision of its pipe declares it, else as its last declaration does.

        Raises:
            Misconfigured: the declaration is wrong, or the stream has two colours.
        """
        pipe, destination = name
        for revision in self._registry.in_use():
            declared_destination = (
                revision.pipe.destination(destination) if revision.pipe.pipe == pipe else None
            )
            if (
                isinstance(declared_destination, ConnectorDestination)
                and reader(declared_destination) == "lake"
            ):
                require_usable(declared_destination, coloured=self._registry.coloured)
                require_none(destination_refusals(revision.pipe.pipe, declared_destination, pipe_limits()))
                self._tables[name] = lake_table(revision.pipe, declared_destination)
                break
        return self._tables[name]

    def read_held_tables(self) -> None:
        """Read which tables the pipes have that are held, if that may have changed.

        Raises:
            Fenced: another instance leads meanwhile.
            TimeoutError, aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        read_to = self._registry.content_offset
        if not self._registry.holds_pipes or read_to == self._held_read_to:
            return
        self._held_tables, self._held_read_to = self._call(self._read_held_tables()), read_to

    def is_held(self, pipe: str) -> bool:
        """Whether the declaration of a pipe cannot be read; nothing may be written by an earlier declaration."""
        return self._registry.unreadable(pipe) is not None

    def settled_until(self, table: LakeTable) -> str | None:
        """The watermark of a table; None: the table does not state it, or it is unknown."""
        if not table.settings.watermark:
            return None
        self._loop.call_soon_threadsafe(self._watermarks.follow)
        return self._watermarks.settled_until(table.pipe, table.destination)

    def enriched_id(self) -> str:
        """The id that Kafka gave the topic `enriched` when it was made; empty: the brokers give topics none.

        Raises:
            Fenced: another instance leads meanwhile.
            TimeoutError, aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        return self._call(topic_identity(self._bootstrap, self._topics.enriched)).topic

    def has_revisions_to(self, offset: int) -> bool:
        """Whether the topic of the pipes has been read to an offset, or is so within 30 s, with the held tables.

        If not, `pipes_end` is asked for again.

        Raises:
            Fenced: another instance leads meanwhile.
            TimeoutError, aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        if offset <= self._registry.offset or self._call(
            self._registry.wait_for_offset(offset, _REVISION_TIMEOUT_S)
        ):
            self.read_held_tables()
            return True
        self.pipes_end = self._call(read_pipes_end(self._bootstrap, self._client_id, self._topics))
        return False

    def require_leadership(self) -> None:
        """Raise Fenced unless this instance leads."""
        if not self._election.leading.is_set():
            raise Fenced("another instance of lake leads now")

    def receipts_end(self) -> dict[int, int]:
        """Partition to the end offset of `receipts`."""
        return self._call(self._receipts_end())

    def recorded(self, start: Mapping[int, int], floors: Mapping[int, int]) -> RecordedDeliveries:
        """The deliveries of tables that have a receipt. Takes as long as there are receipts that were not read yet.

        Args:
            start: partition to the offset in `enriched` before which deliveries are of no interest.
            floors: partition to the offset in `receipts` from which on to read; default: all.

        Raises:
            Fenced: another instance leads meanwhile.
            TimeoutError, aiokafka.errors.KafkaError, OSError: no records come; the next call goes on there.
        """
        self._call(self._read_recorded(start, floors), lambda: self._recorded.read_count)
        return self._recorded

    def commit(
        self, offsets: GroupOffsets, end_offsets: Mapping[int, int], metadata: Mapping[int, str]
    ) -> None:
        """Commit the offsets of the group, with metadata by partition."""
        self.require_leadership()
        self._call(offsets.commit(end_offsets, metadata))

    def warn(self, name: TableName, reason: str | None) -> None:
        """Show on /readyz the reason why a table cannot be written; None: it can be written."""
        self._loop.call_soon_threadsafe(self._health.warn, "/".join(name), reason)

    async def _read_held_tables(self) -> HeldTables:
        tables = HeldTables()
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            ranges = await offset_ranges(consumer, [TopicPartition(self._topics.pipes, 0)])
            async for records in read_ranges(consumer, ranges):
                for record in records:
                    tables.take(record)
        return tables

    async def _receipts_end(self) -> dict[int, int]:
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            end_offsets = await consumer.end_offsets(self._receipt_partitions())
        return {topic_partition.partition: offset for topic_partition, offset in end_offsets.items()}

    async def _read_recorded(self, start: Mapping[int, int], floors: Mapping[int, int]) -> None:
        topic = self._topics.receipts
        self._recorded.want(self.names(), start)
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            existing_ranges = await offset_ranges(consumer, self._receipt_partitions())
            unread_ranges = self._recorded.unread(
                {partition.partition: offsets for partition, offsets in existing_ranges.items()}, floors
            )
            ranges = {
                TopicPartition(topic, partition): offsets for partition, offsets in unread_ranges.items()
            }
            async for records in read_ranges(consumer, ranges):
                for record, error in self._recorded.add(records):
                    note_unreadable(record, error)

    def _receipt_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(self._topics.receipts, partition)
            for partition in range(self._registry.partitions or 1)
        ]

    def _call(self, coroutine: Coroutine[Any, Any, T], progress: Callable[[], int] = lambda: 0) -> T:
        """Run a coroutine on the event loop.

        Args:
            coroutine: to run; cancelled if this method raises.
            progress: returns a number that changes as long as the coroutine makes progress.

        Raises:
            Fenced: another instance leads meanwhile.
            TimeoutError: it has made no progress for `_CALL_TIMEOUT_S`.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        seen_progress, since_s = progress(), monotonic_s()
        try:
            while not wait([future], _POLL_S).done:
                self.require_leadership()
                if progress() != seen_progress:
                    seen_progress, since_s = progress(), monotonic_s()
                elif monotonic_s() - since_s > _CALL_TIMEOUT_S:
                    raise TimeoutError(f"Kafka has not answered for {_CALL_TIMEOUT_S:.0f} s")
            return future.result()
        finally:
            future.cancel()
