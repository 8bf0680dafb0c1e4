"""A short visit to Kafka, as a command makes it: read topics of one partition to their end, write records, leave."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import PartitionFollower, Take, TopicFollower
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable

_ANSWER_S: Final = 15


@contextlib.asynccontextmanager
async def answering(message: str, error: type[Misconfigured | Retryable] = Retryable) -> AsyncIterator[None]:
    """A block in which Kafka must answer within 15 s.

    Args:
        message: of the error, which also names the cause.
        error: its class.

    Raises:
        Retryable: or `error`: Kafka does not answer, or fails.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            yield
    except (TimeoutError, KafkaError, OSError) as cause:
        raise error(f"{message} ({cause!r})") from cause


async def read_topics(bootstrap: str, client_id: str, handlers: Mapping[str, Take]) -> None:
    """Pass all records of topics with one partition on; waits while Kafka does not answer.

    Args:
        bootstrap: their Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        handlers: topic to what gets its records.
    """
    await read_all(TopicFollower(bootstrap, client_id, handlers))


async def read_all(follower: PartitionFollower) -> None:
    """Have a follower read all that is committed, and leave; waits while Kafka does not answer."""
    try:
        await follower.start()
    finally:
        await follower.stop()


async def write_records(bootstrap: str, client_id: str, *writes: tuple[str, Sequence[Record]]) -> None:
    """Write records to topics with one partition, one write after the other.

    Args:
        bootstrap: their Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        writes: topic and the records for it.

    Raises:
        KafkaError: Kafka refuses one.
    """
    producer = Producer(bootstrap, client_id)
    try:
        await producer.start()
        for topic, records in writes:
            await producer.send_and_wait(topic, 0, list(records))
    finally:
        await producer.stop()
