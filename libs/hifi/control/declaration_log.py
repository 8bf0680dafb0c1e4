"""Appends declarations to the topic `declared`, and finds out which of them count."""

from collections.abc import Sequence

from hifi.control.declaration import Declaration, Declarations
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower


class DeclarationLog:
    """Reads and changes what is declared.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: `declared`.
        client_id: name in the broker's logs.
        keep: declarations to keep of each pipe, the newest ones.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str, keep: int = 1) -> None:
        self.declared = Declarations(keep)
        self._topic = topic
        self._producer = Producer(bootstrap, client_id)
        self._follower = TopicFollower(bootstrap, client_id, {topic: self.declared.take}, rereads=False)

    async def start(self) -> None:
        """Connect and read everything; retries until Kafka answers and the topic exists."""
        await self._producer.start()
        await self._follower.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._follower.stop()
        await self._producer.stop()

    async def catch_up(self) -> None:
        """Read up to the end that the topic has now.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        await self._follower.catch_up()

    async def append(self, declarations: Sequence[Declaration]) -> list[Declaration]:
        """Append declarations of different pipes; returns those that count, with their numbers.

        A declaration is left out of the result if somebody else replaced the same one before; it has no effect then.

        Raises:
            HifiError: Kafka refused the records; none counts.
            aiokafka.errors.KafkaError: the topic could not be read back; whether they count is unknown.
        """
        await self._producer.send_and_wait(
            self._topic, 0, [declaration.record() for declaration in declarations]
        )
        await self.catch_up()
        ids = {declaration.id for declaration in declarations}
        return [
            version
            for declaration in declarations
            for version in self.declared.versions(declaration.name)
            if version.id in ids
        ]
