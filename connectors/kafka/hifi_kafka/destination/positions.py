"""Reads the positions topic of a destination cluster; `transactions.py` writes it and knows what was written."""

import asyncio
import zlib
from collections.abc import Container
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi.delivery.written_offsets import CHUNK_BYTES, WrittenOffsets
from hifi.kafka.admin import create_topic, known_partitions
from hifi.kafka.clients import assigned_consumer, close, started_admin
from hifi.kafka.topic_reader import read_ranges
from hifi.record.packed_text import is_number
from hifi.runtime import log
from hifi.runtime.errors import Missing
from hifi_kafka.declaration import KafkaDestinationSettings
from hifi_kafka.destination.topic_limit import TopicLimit

PARTITIONS: Final = 8
"""Partitions of a positions topic that egest creates."""
RETENTION_DAYS: Final = 60
"""For which positions of a topic that egest creates are kept after they were last written, so that those of past
offsets and logs go. It is twice as long as dead letters are kept, which may come back."""
_DAY_MS: Final = 86_400_000
_SEGMENT_MS: Final = 10 * 60 * 1000
"""A segment is not compacted while it is written to, and each new producer reads the whole partition."""

logger = log.get(__name__)


class Position(NamedTuple):
    """Owner and line of records of the positions topic.

    Attributes:
        owner: `<stream>;<pipe>;<destination>;<log>;<partition>;`: offsets of each log of the stream begin at 0.
        line: `fresh`, or `retried` for what the retrier brought back: two instances may own the two.
    """

    owner: bytes
    line: bytes

    def key(self, chunk: int) -> bytes:
        """Key of the record with a bitmap."""
        return b"%b%b;%d" % (self.owner, self.line, chunk)

    def partition(self, partitions: int) -> int:
        """Partition of these records; it is the same for both lines."""
        return zlib.crc32(self.owner) % partitions


def _take(
    position: Position,
    key: bytes | None,
    value: bytes | None,
    offsets_by_line: dict[bytes, WrittenOffsets],
) -> bool:
    """Add the offsets of a record of the positions topic, or forget them; False: egest did not write it."""
    if key is None:
        return False
    if not key.startswith(position.owner):
        return True
    line, _, chunk = key[len(position.owner) :].partition(b";")
    if not is_number(chunk) or (value is not None and len(value) != CHUNK_BYTES):
        return False
    offsets = offsets_by_line.setdefault(line, WrittenOffsets())
    if value is None:
        offsets.forget(int(chunk))
    else:
        offsets.merge(int(chunk), value)
    return True


class PositionReader:
    """Reads positions; one at a time, over two connections that stay open."""

    def __init__(self, settings: KafkaDestinationSettings, pipe: str) -> None:
        """Start without connections.

        Args:
            settings: of the destination; the topic that gets the events has to exist.
            pipe: name.
        """
        self._settings, self._pipe = settings, pipe
        self._topic, self._events_topic = settings.positions_topic, settings.topic
        self._lock = asyncio.Lock()
        self._clients: tuple[AIOKafkaConsumer, AIOKafkaConsumer] | None = None
        self.partitions = 0
        """Partitions of the topic, known after the first `read`."""
        self.topic_limit = TopicLimit(settings, pipe)
        self._closing: list[asyncio.Task[None]] = []

    async def read(
        self, position: Position, first_offset: int, offsets_by_line: dict[bytes, WrittenOffsets]
    ) -> int:
        """Read all records that are written until now, and wait until their transactions are decided.

        Args:
            position: whose records; those of both lines are read.
            first_offset: first offset to read.
            offsets_by_line: line to its offsets; the records are added.

        Returns:
            The offset after the last one read.
        """
        async with self._lock:
            try:
                return await self._read(position, first_offset, offsets_by_line)
            except BaseException:
                # The next read connects anew, and makes the topic again if somebody deleted it.
                clients, self._clients = self._clients, None
                self._closing = [task for task in self._closing if not task.done()]
                self._closing += [asyncio.create_task(close(client)) for client in clients or ()]
                raise

    async def _read(
        self, position: Position, first_offset: int, offsets_by_line: dict[bytes, WrittenOffsets]
    ) -> int:
        if self._clients is None:
            await self._connect()
        assert self._clients is not None
        committed_consumer, uncommitted_consumer = self._clients
        tp = TopicPartition(self._topic, position.partition(self.partitions))
        # The end includes open transactions: reading committed records up to it waits until they are decided.
        start_offsets, end_offsets = (
            await uncommitted_consumer.beginning_offsets([tp]),
            await uncommitted_consumer.end_offsets([tp]),
        )
        if first_offset > end_offsets[tp]:  # the topic was made again
            first_offset = 0
        offsets = range(max(first_offset, start_offsets[tp]), end_offsets[tp])
        async for records in read_ranges(committed_consumer, {tp: offsets}):
            for record in records:
                if not _take(position, record.key, record.value, offsets_by_line):
                    logger.warning(
                        "position-unreadable", topic=tp.topic, partition=tp.partition, offset=record.offset
                    )
        return max(first_offset, offsets.stop)

    async def stop(self) -> None:
        """Close the connections."""
        clients, self._clients = self._clients, None
        for client in clients or ():
            await close(client)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connect(self) -> None:
        partitions = await self._partitions_of_topic()
        clients = (self._consumer("read_committed"), self._consumer("read_uncommitted"))
        try:
            for client in clients:
                await client.start()
        except BaseException:
            for client in clients:
                await close(client)
            raise
        self._clients, self.partitions = clients, partitions

    def _consumer(self, isolation_level: str) -> AIOKafkaConsumer:
        return assigned_consumer(
            self._settings.bootstrap,
            f"hifi-{self._pipe}",
            security=self._settings.security,
            pipe=self._pipe,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",  # at the end the positions that Kafka still has would be skipped
        )

    def _admin(self) -> AbstractAsyncContextManager[Any]:
        return started_admin(
            self._settings.bootstrap,
            f"hifi-{self._pipe}",
            security=self._settings.security,
            pipe=self._pipe,
        )

    async def require_topic(self) -> None:
        """Ask the cluster for the topic that gets the events.

        Raises:
            Missing: it is not there.
        """
        async with self._admin() as admin:
            self._require_topic(await admin.list_topics())

    def _require_topic(self, topics: Container[str]) -> None:
        if self._events_topic not in topics:
            raise Missing(
                f"topic {self._events_topic}",
                f"the topic {self._events_topic} does not exist at the destination; create it",
            )

    async def _partitions_of_topic(self) -> int:
        """The number of partitions; creates the topic if it is missing."""
        async with self._admin() as admin:
            topics = await admin.list_topics()
            self._require_topic(topics)
            if self._topic not in topics:
                logger.warning("positions-topic-made", topic=self._topic, cluster=self._settings.bootstrap)
                configs = {
                    "cleanup.policy": "compact,delete",
                    "retention.ms": str(RETENTION_DAYS * _DAY_MS),
                    "segment.ms": str(_SEGMENT_MS),
                }
                await create_topic(admin, self._topic, PARTITIONS, configs)
            return await known_partitions(admin, self._topic)  # the write has a time-out
