"""Read dead letters from Kafka, up to the present end of the topic."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NotRequired

import orjson
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hifi.delivery.dead_letters.letter import DeadLetter, DeadLetterFilter
from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.runtime import log, metrics
from hifi.runtime.errors import Misconfigured

logger = log.get(__name__)


class _ReplayBody(TypedDict):
    offsets: list[int]
    works: NotRequired[list[str]]


_REPLAY: Final = TypeAdapter(_ReplayBody)
Progress = Callable[[int, int], None]
"""Called with the number of records read so far, and the number of records to read."""


class ReplayNotes:
    """Which dead letters were replayed, as records of the topic `replays` note it."""

    def __init__(self) -> None:
        """Know of none."""
        self._offsets: dict[int, set[int]] = {}
        self._noted_ms: dict[bytes, int] = {}

    def add(self, partition: int, value: bytes | None, noted_ms: int) -> None:
        """Add a record of the topic.

        Args:
            partition: of the dead letters.
            value: of the record.
            noted_ms: when Kafka appended it, milliseconds since 1970 UTC.

        Raises:
            ValueError: it is no such record.
        """
        body = _REPLAY.validate_json(value or b"")
        works = [bytes.fromhex(work) for work in body.get("works", ())]
        self._offsets.setdefault(partition, set()).update(body["offsets"])
        for work in works:
            self._noted_ms[work] = max(noted_ms, self._noted_ms.get(work, noted_ms))

    def cover(self, letter: DeadLetter) -> bool:
        """Whether a replay of a dead letter, or of one of the same work after this one was written, is noted.

        One that was written after the replay was refused again.
        """
        if letter.offset in self._offsets.get(letter.partition, ()):
            return True
        return bool(self._noted_ms) and letter.dead_ms <= self._noted_ms.get(letter.work or b"", -1)


def replay_note(dead_letters: Sequence[DeadLetter]) -> bytes:
    """The value of the record of the topic `replays` for dead letters of one partition that were replayed."""
    works = {letter.work: None for letter in dead_letters}
    return orjson.dumps(
        {
            "offsets": [letter.offset for letter in dead_letters],
            "works": [work.hex() for work in works if work is not None],
        }
    )


async def letters(
    bootstrap: str,
    topics: Topics,
    letter_filter: DeadLetterFilter,
    progress: Progress = lambda _done, _all: None,
) -> AsyncGenerator[DeadLetter, None]:
    """The dead letters that match a filter; those of a partition in the order in which they were written.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: of the stream.
        letter_filter: which dead letters.
        progress: called while the topic is read.

    Raises:
        Misconfigured: no Kafka answers, or the stream does not exist.
    """
    async with _consumer(bootstrap) as consumer:
        notes = await _replay_notes(
            consumer, await _partitions(bootstrap, topics.replays), letter_filter.since_ms
        )
        partitions = await _partitions(bootstrap, topics.dead_letter)
        async for record in _records(consumer, partitions, letter_filter.since_ms, progress):
            letter = _letter(record)
            if letter_filter.matches(letter):
                yield replace(letter, replayed=notes.cover(letter))


async def letter(bootstrap: str, topics: Topics, partition: int, offset: int) -> DeadLetter:
    """One dead letter.

    Raises:
        Misconfigured: there is none (any more) with that id, or no Kafka answers.
    """
    async with _consumer(bootstrap) as consumer:
        tp = TopicPartition(topics.dead_letter, partition)
        if tp in await _partitions(bootstrap, topics.dead_letter):
            begin, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            if begin <= offset < end:
                consumer.assign([tp])
                consumer.seek(tp, offset)
                async with asyncio.timeout(30):
                    return _letter(await consumer.getone(tp))
    raise Misconfigured(
        f"there is no dead letter {partition}:{offset} (any more); `hifi dead list` shows what there is"
    )


async def replay_notes(bootstrap: str, topics: Topics, since_ms: int | None = None) -> ReplayNotes:
    """Which dead letters were replayed since a time, milliseconds since 1970 UTC.

    Raises:
        Misconfigured: no Kafka answers, or the stream does not exist.
    """
    async with _consumer(bootstrap) as consumer:
        return await _replay_notes(consumer, await _partitions(bootstrap, topics.replays), since_ms)


def _letter(record: ConsumerRecord) -> DeadLetter:
    return DeadLetter(
        record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers)
    )


@contextlib.asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        try:
            consumer = await stack.enter_async_context(topic_consumer(bootstrap, "hifi-dead-letters"))
        except (KafkaError, OSError) as error:
            raise Misconfigured(f"no Kafka answers at {bootstrap}: {error!r}; is the mesh up?") from None
        yield consumer


async def _partitions(bootstrap: str, topic: str) -> list[TopicPartition]:
    # A consumer without a group knows only the topics that it is assigned to.
    counts = await partition_counts(bootstrap, [topic])
    if topic not in counts:
        raise Misconfigured(f"the topic {topic} does not exist; is the name of the stream right?")
    return [TopicPartition(topic, number) for number in range(counts[topic])]


async def _records(
    consumer: Any,
    tps: Sequence[TopicPartition],
    since_ms: int | None,
    progress: Progress = lambda _done, _all: None,
) -> AsyncIterator[ConsumerRecord]:
    """Every record of the partitions from a time on, up to their present end."""
    ranges = await offset_ranges(consumer, tps, since_ms)
    total_records, read_records = sum(map(len, ranges.values())), 0
    async for records in read_ranges(consumer, ranges):
        for record in records:
            read_records += 1
            yield record
        progress(read_records, total_records)


async def _replay_notes(consumer: Any, tps: Sequence[TopicPartition], since_ms: int | None) -> ReplayNotes:
    """Which dead letters were replayed since a time; a replay follows its dead letter."""
    notes = ReplayNotes()
    async for record in _records(consumer, tps, since_ms):
        try:
            notes.add(record.partition, record.value, record.timestamp)
        except ValueError as error:
            metrics.UNREADABLE_RECORDS.labels(record.topic).inc()
            logger.warning(
                "record-unreadable", topic=record.topic, offset=record.offset, error=type(error).__name__
            )
    return notes
