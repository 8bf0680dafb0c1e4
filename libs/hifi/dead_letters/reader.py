"""Reading the topic `dead-letter` up to where it ends now."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.dead_letters.letter import DeadLetter, DeadLetterFilter
from hifi.errors import Misconfigured
from hifi.kafka.admin import partition_counts
from hifi.topics import Topics

Progress = Callable[[int, int], None]
"""Is told records read and records to read."""


async def letters(
    bootstrap: str, topics: Topics, wanted: DeadLetterFilter, progress: Progress = lambda _done, _all: None
) -> AsyncGenerator[DeadLetter, None]:
    """The dead letters that are meant, those of a partition in the order in which they died.

    Args:
        bootstrap: `HOST:PORT,…`.
        topics: of the stream.
        wanted: which.
        progress: is told how far the reading is.

    Raises:
        Misconfigured: no Kafka answers, or the stream does not exist.
    """
    async with _consumer(bootstrap) as consumer:
        replayed = await _replayed(consumer, await _partitions(bootstrap, topics.replays), wanted.since_ms)
        buried = await _partitions(bootstrap, topics.dead_letter)
        async for record in _records(consumer, buried, wanted.since_ms, progress):
            letter = _letter(record)
            if wanted.matches(letter):
                yield replace(letter, replayed=(letter.partition, letter.offset) in replayed)


async def letter(bootstrap: str, topics: Topics, partition: int, offset: int) -> DeadLetter:
    """One dead letter.

    Raises:
        Misconfigured: there is none (any more) at that place, or no Kafka answers.
    """
    async with _consumer(bootstrap) as consumer:
        tp = TopicPartition(topics.dead_letter, partition)
        if tp in await _partitions(bootstrap, topics.dead_letter):
            begin, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            if begin <= offset < end:
                consumer.assign([tp])
                consumer.seek(tp, offset)
                return _letter(await asyncio.wait_for(consumer.getone(tp), 30))
    raise Misconfigured(
        f"there is no dead letter {partition}:{offset} (any more); `hifi dead list` shows what there is"
    )


async def replayed(bootstrap: str, topics: Topics, since_ms: int | None = None) -> set[tuple[int, int]]:
    """Partition and offset of the dead letters that were replayed since a time, milliseconds since 1970 UTC.

    Raises:
        Misconfigured: no Kafka answers, or the stream does not exist.
    """
    async with _consumer(bootstrap) as consumer:
        return await _replayed(consumer, await _partitions(bootstrap, topics.replays), since_ms)


def _letter(record: ConsumerRecord) -> DeadLetter:
    return DeadLetter(
        record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers)
    )


@contextlib.asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        try:
            await consumer.start()
        except (KafkaError, OSError) as error:
            raise Misconfigured(f"no Kafka answers at {bootstrap}: {error!r}; is the mesh up?") from None
        yield consumer
    finally:
        await consumer.stop()


async def _partitions(bootstrap: str, topic: str) -> list[TopicPartition]:
    # A consumer knows only the topics that it is assigned to.
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
    """Every record of a topic's partitions from a time on to where they end now."""
    starts: Mapping[TopicPartition, int] = await consumer.beginning_offsets(tps)
    ends: Mapping[TopicPartition, int] = await consumer.end_offsets(tps)
    if since_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(tps, since_ms))
        starts = {tp: found[tp].offset if found[tp] is not None else ends[tp] for tp in tps}
    unread = [tp for tp in tps if starts[tp] < ends[tp]]
    total, done = sum(ends[tp] - starts[tp] for tp in unread), 0
    consumer.assign(unread)
    for tp in unread:
        consumer.seek(tp, starts[tp])
    while unread:
        for tp, records in (await consumer.getmany(*unread, timeout_ms=500, max_records=2000)).items():
            for record in records:
                if record.offset < ends[tp]:
                    done += 1
                    yield record
        progress(done, total)
        unread = [tp for tp in unread if await consumer.position(tp) < ends[tp]]


async def _replayed(
    consumer: Any, tps: Sequence[TopicPartition], since_ms: int | None
) -> set[tuple[int, int]]:
    """Partition and offset of the dead letters that were replayed: a replay is always later than its letter."""
    found: set[tuple[int, int]] = set()
    async for record in _records(consumer, tps, since_ms):
        found.update((record.partition, offset) for offset in orjson.loads(record.value)["offsets"])
    return found
