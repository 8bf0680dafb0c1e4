"""Follow topics of the control plane: everything when it starts, then what is new each time it is asked to."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from hifi.kafka.clients import close, connect
from hifi.kafka.security import client_options
from hifi.kafka.topic_reader import read_assigned
from hifi.runtime import log

logger = log.get(__name__)


Take: TypeAlias = Callable[[bytes | None, bytes | None, int], None]
"""Gets key, value and offset of a record; one for which it raises ValueError is logged and left out."""


class TopicFollower:
    """Reads topics with one partition each, committed records only, over one connection.

    Args:
        bootstrap: their Kafka, `HOST:PORT,…`.
        client_id: name in the broker's logs.
        takes: topic to what gets its records; all new ones of a topic come before those of the next.
    """

    def __init__(self, bootstrap: str, client_id: str, takes: Mapping[str, Take]) -> None:
        self._takes = {TopicPartition(topic, 0): take for topic, take in takes.items()}
        self._next: dict[TopicPartition, int] = {}
        self._consumer = AIOKafkaConsumer(
            **client_options(bootstrap),
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )

    async def start(self) -> None:
        """Connect and read everything; retries until Kafka answers and the topics exist."""
        await connect(self._consumer.start)
        # Assigned once, and paused while nothing is read: a change of the assignment asks Kafka for its metadata, and
        # a partition that is not paused is fetched all the time.
        self._consumer.assign(list(self._takes))
        self._consumer.pause(*self._takes)
        await connect(self.catch_up)

    async def stop(self) -> None:
        """Disconnect."""
        await close(self._consumer)

    async def catch_up(self) -> None:
        """Read up to the ends that the topics have now.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        if not self._next:
            self._next = dict(await self._consumer.beginning_offsets(list(self._takes)))
        ends = await self._consumer.end_offsets(list(self._takes))
        for partition, take in self._takes.items():
            if ends[partition] > self._next[partition]:
                await self._read(partition, take, range(self._next[partition], ends[partition]))
                self._next[partition] = ends[partition]

    async def _read(self, partition: TopicPartition, take: Take, unread: range) -> None:
        self._consumer.resume(partition)
        try:
            async for records in read_assigned(self._consumer, {partition: unread}):
                for record in records:
                    self._take(partition, take, record)
        finally:
            self._consumer.pause(partition)

    @staticmethod
    def _take(partition: TopicPartition, take: Take, record: ConsumerRecord) -> None:
        try:
            take(record.key, record.value, record.offset)
        except ValueError as error:
            logger.warning("record-unreadable", topic=partition.topic, offset=record.offset, error=str(error))
