"""Writes the audit entries of observe, with a producer of its own, since the audit may be in another cluster."""

import asyncio

from hifi.control.principals.audit import AuditEntry
from hifi.kafka.producer import Producer


class AuditWriter:
    """Connects with the first entry.

    Args:
        bootstrap: the control plane's Kafka.
        client_id: name in the broker's logs.
        topic: of the audit.
    """

    def __init__(self, bootstrap: str, client_id: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._topic = topic
        self._producer: Producer | None = None
        self._connecting = asyncio.Lock()

    async def write(self, entry: AuditEntry) -> None:
        """Write an entry.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        async with self._connecting:
            if self._producer is None:
                producer = Producer(self._bootstrap, self._client_id)
                await producer.start()
                self._producer = producer
        await self._producer.send_and_wait(self._topic, 0, [entry.record()])

    async def stop(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()
