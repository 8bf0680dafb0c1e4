"""The record of the colours on the control plane's Kafka: read it, and write the next one."""

from hifi.delivery.colours import Colours, decode
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower


class ColourLog(TopicFollower):
    """Follows the topic of colours.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: of the colours.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        super().__init__(bootstrap, client_id, {topic: self._take_record})
        self.newest: Colours | None = None
        """The newest record; None: there is none."""
        self.newest_offset = -1
        """Its offset, which grows from record to record; -1: there is none."""
        self._bootstrap, self._topic, self._client_id = bootstrap, topic, client_id

    async def write(self, colours: Colours) -> None:
        """Write the next record.

        Raises:
            HifiError: Kafka does not acknowledge it.
        """
        producer = Producer(self._bootstrap, self._client_id)
        await producer.start()
        try:
            await producer.send_and_wait(self._topic, 0, [colours.record()])
        finally:
            await producer.stop()

    def _take_record(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        del key
        self.newest, self.newest_offset = decode(value), offset
