"""Writes audit entries and uses of tokens, with a producer of its own, since the audit may be in another cluster."""

import asyncio
from collections.abc import Sequence

from hifi.control.principals.audit import AuditEntry
from hifi.kafka.producer import Producer
from hifi.kafka.topics import PrincipalTopics
from hifi.record.record import Record


class AuditWriter:
    """Connects with the first record.

    Args:
        bootstrap: the control plane's Kafka.
        client_id: name in the broker's logs.
        topics: of principals and audit.
    """

    def __init__(self, bootstrap: str, client_id: str, topics: PrincipalTopics) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._topics = topics
        self._producer: Producer | None = None
        self._connecting = asyncio.Lock()

    async def write(self, entry: AuditEntry) -> None:
        """Write an entry.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        await self._send(self._topics.audit, [entry.record()])

    async def write_uses(self, records: Sequence[Record]) -> None:
        """Write uses of tokens.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        await self._send(self._topics.last_used, records)

    async def _send(self, topic: str, records: Sequence[Record]) -> None:
        async with self._connecting:
            if self._producer is None:
                producer = Producer(self._bootstrap, self._client_id)
                await producer.start()
                self._producer = producer
        await self._producer.send_and_wait(topic, 0, records)

    async def stop(self) -> None:
        """Disconnect."""
        if self._producer is not None:
            await self._producer.stop()
