"""Reads and commits the offsets of a Spark query in a consumer group, as the other services have theirs."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from hifi.kafka.clients import assigned_consumer, close
from hifi.runtime import log, metrics

_TIMEOUT_S: Final = 15.0
_REQUEST_TIMEOUT_MS: Final = 10_000

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """The offsets at which an execution of the query starts."""

    offsets: dict[int, int]
    """Partition to the offset of the first record to read."""
    notes: dict[int, str]
    """Partition to the metadata of its committed offset, such as how often the query failed there."""


def starting_offsets(
    committed_offsets: Mapping[int, int | None],
    first_offsets: Mapping[int, int],
    end_offsets: Mapping[int, int],
) -> dict[int, int]:
    """The committed offsets; the first offset where none was committed or its record no longer exists."""
    offsets = {}
    for partition, first_offset in first_offsets.items():
        offset = committed_offsets.get(partition)
        is_inside = offset is not None and first_offset <= offset <= end_offsets[partition]
        offsets[partition] = offset if is_inside and offset is not None else first_offset
    return offsets


class GroupOffsets:
    """Reads and commits the offsets of a group without joining it.

    Every method raises KafkaError or TimeoutError when Kafka does not answer within 15 s.
    """

    def __init__(self, bootstrap: str, client_id: str, group: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._client_id = bootstrap, client_id
        self._group = group
        self._topic = topic
        self._numbers = {TopicPartition(topic, partition): partition for partition in range(partitions)}
        self._consumer: Any = None
        self.remark = ""
        """Text that every commit adds to the metadata of each partition."""

    async def __aenter__(self) -> Self:
        """Connect, unless it is connected."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self.close()

    async def open(self) -> None:
        """Connect, unless it is connected."""
        if self._consumer is not None:
            return
        consumer = assigned_consumer(
            self._bootstrap, self._client_id, group_id=self._group, request_timeout_ms=_REQUEST_TIMEOUT_MS
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await consumer.start()
        except BaseException:
            await close(consumer)
            raise
        consumer.assign(list(self._numbers))
        consumer.pause(*self._numbers)  # it fetches no records
        self._consumer = consumer

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.stop()

    async def start(self) -> StartOffsets:
        """The offsets to start at. Records that were deleted before they were read are counted and logged as lost."""
        async with asyncio.timeout(_TIMEOUT_S):
            fetched, (first_offsets, end_offsets) = await asyncio.gather(
                self._fetch_committed(), self._bounds()
            )
        committed_offsets = {
            partition: fetched[tp].offset if tp in fetched else None
            for tp, partition in self._numbers.items()
        }
        metadata = {
            self._numbers[tp]: fetched_offset.metadata
            for tp, fetched_offset in fetched.items()
            if fetched_offset.metadata
        }
        offsets = starting_offsets(committed_offsets, first_offsets, end_offsets)
        for partition, offset in offsets.items():
            committed_offset = committed_offsets[partition]
            if committed_offset is not None and committed_offset != offset:
                self._report_lost(partition, committed_offset, offset, end_offsets[partition])
        return StartOffsets(
            offsets,
            {
                partition: text
                for partition, text in metadata.items()
                if offsets[partition] == committed_offsets[partition]
            },
        )

    async def rehearse(self) -> None:
        """Connect and make every request of `start`, so that its connections are open when it is called."""
        await self.open()
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.gather(self._fetch_committed(), self._bounds())

    async def end(self) -> dict[int, int]:
        """The offset after the last record of each partition."""
        async with asyncio.timeout(_TIMEOUT_S):
            return (await self._bounds())[1]

    async def first(self) -> dict[int, int]:
        """The offset of the first record of each partition that Kafka still has."""
        async with asyncio.timeout(_TIMEOUT_S):
            return (await self._bounds())[0]

    async def commit(self, offsets: Mapping[int, int], metadata: Mapping[int, str] | None = None) -> None:
        """Commit the offsets of the next records to read, with optional metadata by partition."""
        metadata = metadata or {}
        async with asyncio.timeout(_TIMEOUT_S):
            await self._consumer.commit(
                {
                    TopicPartition(self._topic, partition): OffsetAndMetadata(
                        offset, metadata.get(partition, "") + self.remark
                    )
                    for partition, offset in offsets.items()
                }
            )

    async def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        first_offsets, end_offsets = await asyncio.gather(
            self._consumer.beginning_offsets(list(self._numbers)),
            self._consumer.end_offsets(list(self._numbers)),
        )
        return (
            {self._numbers[tp]: offset for tp, offset in first_offsets.items()},
            {self._numbers[tp]: offset for tp, offset in end_offsets.items()},
        )

    async def _fetch_committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets with their metadata, of the partitions that have one, in one request."""
        coordinator: Any = self._consumer._coordinator  # noqa: SLF001 - the only access to the metadata
        fetched: dict[TopicPartition, OffsetAndMetadata] = await coordinator.fetch_committed_offsets(
            list(self._numbers)
        )
        return fetched

    def _report_lost(self, partition: int, committed: int, start: int, end: int) -> None:
        if committed > end:
            logger.error(
                "offsets-ahead",
                topic=self._topic,
                partition=partition,
                committed=committed,
                end=end,
                start=start,
            )
            return
        metrics.SKIPPED.labels(self._topic).inc(start - committed)
        logger.error("offsets-lost", topic=self._topic, partition=partition, first=committed, last=start - 1)
