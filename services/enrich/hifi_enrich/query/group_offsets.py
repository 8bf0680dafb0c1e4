"""Where the query goes on: offsets that the group `<stream>.enrich` committed. Kafka keeps the only state of enrich."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from hifi import log, metrics

_ANSWER_S: Final = 15.0

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """Where each partition goes on."""

    offsets: dict[int, int]
    notes: dict[int, str]
    """What was left beside a committed offset, such as how often the query died there."""


def resume(
    committed: Mapping[int, int | None], first: Mapping[int, int], end: Mapping[int, int]
) -> dict[int, int]:
    """Where to go on: where committed; at the first record there is, where that is gone or nothing was committed."""
    offsets = {}
    for partition, earliest in first.items():
        offset = committed.get(partition)
        inside = offset is not None and earliest <= offset <= end[partition]
        offsets[partition] = offset if inside and offset is not None else earliest
    return offsets


class GroupOffsets:
    """Reads and commits offsets of a group without being a member of it.

    Every method raises KafkaError or TimeoutError when Kafka does not answer.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._options = {"bootstrap_servers": bootstrap, "group_id": group, "enable_auto_commit": False}
        self._topic = topic
        self._parts = {TopicPartition(topic, partition): partition for partition in range(partitions)}
        self._consumer: Any = None

    async def __aenter__(self) -> Self:
        """Connect."""
        self._consumer = AIOKafkaConsumer(**self._options, request_timeout_ms=10_000)
        await asyncio.wait_for(self._consumer.start(), _ANSWER_S)
        self._consumer.assign(list(self._parts))
        self._consumer.pause(*self._parts)  # it is here for its offsets only
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._consumer.stop()

    async def start(self) -> Start:
        """Where to go on. What retention took away before it was read is counted and logged as lost."""
        async with asyncio.timeout(_ANSWER_S):
            known = {part: await self._consumer.committed(part) for part in self._parts}
            first, end = await self._bounds()
            notes = await self._notes()
        committed = {self._parts[part]: offset for part, offset in known.items()}
        offsets = resume(committed, first, end)
        for partition, offset in offsets.items():
            before = committed[partition]
            if before is not None and before != offset:
                self._tell_lost(partition, before, offset, end[partition])
        return Start(
            offsets,
            {
                partition: note
                for partition, note in notes.items()
                if offsets[partition] == committed[partition]
            },
        )

    async def end(self) -> dict[int, int]:
        """The offset after the last record of each partition."""
        async with asyncio.timeout(_ANSWER_S):
            return (await self._bounds())[1]

    async def commit(self, offsets: Mapping[int, int], notes: Mapping[int, str] | None = None) -> None:
        """Commit the offsets to go on from."""
        notes = notes or {}
        async with asyncio.timeout(_ANSWER_S):
            await self._consumer.commit(
                {
                    TopicPartition(self._topic, partition): OffsetAndMetadata(
                        offset, notes.get(partition, "")
                    )
                    for partition, offset in offsets.items()
                }
            )

    async def _bounds(self) -> tuple[dict[int, int], dict[int, int]]:
        first = await self._consumer.beginning_offsets(list(self._parts))
        end = await self._consumer.end_offsets(list(self._parts))
        return (
            {self._parts[part]: offset for part, offset in first.items()},
            {self._parts[part]: offset for part, offset in end.items()},
        )

    async def _notes(self) -> dict[int, str]:
        fetched = await self._consumer._coordinator.fetch_committed_offsets(list(self._parts))  # noqa: SLF001 - the only way to the metadata
        return {self._parts[part]: one.metadata for part, one in fetched.items() if one.metadata}

    def _tell_lost(self, partition: int, committed: int, goes_on: int, end: int) -> None:
        if committed > end:
            logger.error(
                "offsets-ahead",
                topic=self._topic,
                partition=partition,
                committed=committed,
                end=end,
                goes_on=goes_on,
            )
            return
        metrics.SKIPPED.labels(self._topic).inc(goes_on - committed)
        logger.error(
            "offsets-lost", topic=self._topic, partition=partition, first=committed, last=goes_on - 1
        )
