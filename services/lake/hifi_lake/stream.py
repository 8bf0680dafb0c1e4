"""The stream for the batches of the query: tables, pipes, receipts and offsets.

The batches run in a thread of Spark's; the stream is reached through the event loop of the service.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from aiokafka import TopicPartition

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.delivery.several_logs import require_usable
from hifi.kafka.clients import topic_consumer
from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.pipe.limit_check import destination_refusals, require_none
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import ConnectorDestination
from hifi.pipe.reader import reader
from hifi.pipe.registry import PipeRegistry
from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, SOURCE
from hifi.record.identity import identity
from hifi.record.receipt import parse_source
from hifi.runtime.errors import Fenced, NotAnEvent, Retryable
from hifi.runtime.health import Health
from hifi_iceberg.declaration import LakeTable, lake_table

T = TypeVar("T")
TableName = tuple[str, str]
"""Pipe and destination."""
Recorded = tuple[str, str, int, int]
"""Pipe, destination, partition, and offset in `enriched` of a delivery that has a receipt."""
_REVISION_TIMEOUT_S: Final = 30.0
_CALL_TIMEOUT_S: Final = 120.0


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

    def names(self) -> set[TableName]:
        """Every table that a pipe in use declares, or declared since this instance started.

        A table that is no longer declared still gets the events that were routed to it before.
        """
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

    def is_held(self, pipe: str) -> bool:
        """Whether the declaration of a pipe cannot be read; nothing may be written by an earlier declaration."""
        return self._registry.unreadable(pipe) is not None

    def settled_until(self, table: LakeTable) -> str | None:
        """The watermark of a table; None: the table does not state it, or it is unknown."""
        if not table.settings.watermark:
            return None
        self._loop.call_soon_threadsafe(self._watermarks.follow)
        return self._watermarks.settled_until(table.pipe, table.destination)

    def require_offset(self, offset: int) -> None:
        """Wait until the topic of the pipes has been read to an offset.

        Raises:
            Retryable: the offset does not arrive.
        """
        if offset > self._registry.offset and not self._call(
            self._registry.wait_for_offset(offset, _REVISION_TIMEOUT_S)
        ):
            raise Retryable(f"offset {offset} of the topic pipes has not arrived")

    def require_leadership(self) -> None:
        """Raise Fenced unless this instance leads."""
        if not self._election.leading.is_set():
            raise Fenced("another instance of lake leads now")

    def receipts_end(self) -> dict[int, int]:
        """Partition to the end offset of `receipts`."""
        return self._call(self._receipts_end())

    def recorded(self, floors: Mapping[int, int]) -> list[Recorded]:
        """The deliveries of tables that have a receipt.

        Args:
            floors: partition to the offset in `receipts` from which on to read; default: all.
        """
        return self._call(self._read_recorded(floors))

    def commit(
        self, offsets: GroupOffsets, end_offsets: Mapping[int, int], metadata: Mapping[int, str]
    ) -> None:
        """Commit the offsets of the group, with metadata by partition."""
        self.require_leadership()
        self._call(offsets.commit(end_offsets, metadata))

    def warn(self, name: TableName, reason: str | None) -> None:
        """Show on /readyz the reason why a table cannot be written; None: it can be written."""
        self._loop.call_soon_threadsafe(self._health.warn, "/".join(name), reason)

    async def _receipts_end(self) -> dict[int, int]:
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            end_offsets = await consumer.end_offsets(self._receipt_partitions())
        return {topic_partition.partition: offset for topic_partition, offset in end_offsets.items()}

    async def _read_recorded(self, floors: Mapping[int, int]) -> list[Recorded]:
        recorded_deliveries: list[Recorded] = []
        table_names = self.names()
        async with topic_consumer(self._bootstrap, self._client_id) as consumer:
            existing_ranges = await offset_ranges(consumer, self._receipt_partitions())
            ranges = {
                topic_partition: range(
                    max(existing_range.start, floors.get(topic_partition.partition, 0)), existing_range.stop
                )
                for topic_partition, existing_range in existing_ranges.items()
            }
            async for records in read_ranges(consumer, ranges):
                receipts = (_recorded_delivery(record) for record in records)
                recorded_deliveries += [
                    receipt for receipt in receipts if receipt is not None and receipt[:2] in table_names
                ]
        return recorded_deliveries

    def _receipt_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(self._topics.receipts, partition)
            for partition in range(self._registry.partitions or 1)
        ]

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_TIMEOUT_S)


def _recorded_delivery(record: Any) -> Recorded | None:
    """The delivery of a receipt; None: it is for no delivery of a record of `enriched`."""
    try:
        pipe = identity(record.headers).pipe
    except NotAnEvent:
        return None
    header_fields = fields(record.headers)
    source = parse_source(header_fields.get(SOURCE, b""))
    if source is None or source[0] != b"enriched":
        return None
    return pipe, header_fields.get(DESTINATION, b"").decode(), record.partition, source[1]
