"""What the topics say of the events that steps read: their order, heartbeats, dead letters, and the steps' begin."""

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition

from hifi.delivery.dead_letters.letter import DeadLetterFilter
from hifi.delivery.dead_letters.reader import letters
from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import assigned_consumer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import KIND, PIPE, RAW, REASON, SERVICE, STAMP, STEP
from hifi.record.heartbeat import HEARTBEAT, is_heartbeat
from hifi_cli.demo.state.oracle import LoggedEvent, LoggedHeartbeat, PipeLog

_ID: Final = "ce_id"


class StepLetter(NamedTuple):
    """A dead letter.

    Attributes:
        id: of the event.
        service: that wrote it.
        reason: why.
        step: that did not count the event; empty: it is of another service.
    """

    id: str
    service: str
    reason: str
    step: str


class StepLog:
    """Reads the topics of a stream from their first record to their present end."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        """Connect nothing yet.

        Args:
            bootstrap: `HOST:PORT,…`.
            topics: of the stream.
        """
        self._bootstrap = bootstrap
        self._topics = topics

    async def begun_steps(self) -> set[str]:
        """Pipes of the steps that have begun: what is enriched from then on counts."""
        return {
            record.key.decode()
            async for record in self._records(self._topics.folds)
            if record.key is not None
        }

    async def unstamped_partitions(self, pipe: str) -> set[int]:
        """Partitions of which no heartbeat of a pipe has arrived on `enriched`: its events may get no stamp yet."""
        counts = await partition_counts(self._bootstrap, [self._topics.enriched])
        stamped = {partition async for partition, _ in self._heartbeats(pipe)}
        return set(range(counts[self._topics.enriched] or 0)) - stamped

    async def of_pipe(self, pipe: str) -> PipeLog:
        """The records of a pipe in `raw`, and its heartbeats that have a watermark."""
        events = [
            LoggedEvent(record.partition, record.offset, values[_ID].decode())
            async for record in self._records(self._topics.raw)
            if (values := fields(record.headers)).get(PIPE) == pipe.encode()
        ]
        heartbeats = [
            LoggedHeartbeat(partition, int(values[RAW]), int(values[STAMP]))
            async for partition, values in self._heartbeats(pipe)
            if STAMP in values
        ]
        return PipeLog(events, heartbeats)

    async def letters(self) -> list[StepLetter]:
        """All dead letters of the stream."""
        return [
            StepLetter(letter.text(_ID), letter.text(SERVICE), letter.text(REASON), letter.text(STEP))
            async for letter in letters(self._bootstrap, self._topics, DeadLetterFilter())
        ]

    async def _heartbeats(self, pipe: str) -> AsyncIterator[tuple[int, dict[str, bytes]]]:
        """Partition and fields of each heartbeat of a pipe."""
        async for record in self._records(self._topics.enriched):
            if is_heartbeat(record.headers):
                values = fields(record.headers)
                assert values[KIND] == HEARTBEAT
                if values[PIPE] == pipe.encode():
                    yield record.partition, values

    async def _records(self, topic: str) -> AsyncIterator[Any]:
        consumer = assigned_consumer(self._bootstrap, "hifi-demo")
        await consumer.start()
        try:
            counts = await partition_counts(self._bootstrap, [topic])
            partitions = [TopicPartition(topic, partition) for partition in range(counts[topic] or 0)]
            async for records in read_ranges(consumer, await offset_ranges(consumer, partitions)):
                for record in records:
                    yield record
        finally:
            await consumer.stop()
