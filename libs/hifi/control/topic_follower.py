"""Follow a topic of the control plane: everything when it starts, then what is new each time it is asked to."""

from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi import log
from hifi.kafka.clients import close, connect
from hifi.kafka.security import client_options
from hifi.kafka.topic_reader import offset_ranges, read_ranges

logger = log.get(__name__)


class TopicFollower:
    """Reads a topic with one partition, committed records only.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: to follow.
        client_id: name in the broker's logs.
        take: called with key, value and offset of each record; a record for which it raises ValueError is logged and
            left out.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        client_id: str,
        take: Callable[[bytes | None, bytes | None, int], None],
    ) -> None:
        self._take_record = take
        self._partition = TopicPartition(topic, 0)
        self._next = 0
        self._consumer = AIOKafkaConsumer(
            **client_options(bootstrap),
            client_id=client_id,
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=50,
        )

    async def start(self) -> None:
        """Connect and read everything; retries until Kafka answers and the topic exists."""
        await connect(self._consumer.start)
        await connect(self.catch_up)

    async def stop(self) -> None:
        """Disconnect."""
        await close(self._consumer)

    async def catch_up(self) -> None:
        """Read up to the end that the topic has now.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        found = (await offset_ranges(self._consumer, [self._partition]))[self._partition]
        unread = range(max(found.start, self._next), found.stop)
        async for records in read_ranges(self._consumer, {self._partition: unread}):
            for record in records:
                try:
                    self._take_record(record.key, record.value, record.offset)
                except ValueError as error:
                    logger.warning(
                        "record-unreadable",
                        topic=self._partition.topic,
                        offset=record.offset,
                        error=str(error),
                    )
        self._next = max(self._next, found.stop)
