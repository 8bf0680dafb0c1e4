"""Writes records in transactions that an earlier instance of the service, frozen or cut off, can no longer complete."""

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hifi.kafka.batches import forget_errors
from hifi.kafka.clients import close, connect
from hifi.kafka.security import client_options
from hifi.record.event import Record
from hifi.runtime.errors import HifiError, Retryable

_TIMEOUT_S: Final = 15.0
_FENCED: Final = frozenset({"ProducerFenced", "InvalidProducerEpoch", "InvalidProducerIdMapping"})


class Overtaken(HifiError):
    """Another instance of the service has started since: this one must end."""


class FencedWriter:
    """Writes to one cluster.

    Args:
        bootstrap: `HOST:PORT,…`.
        transactional_id: the same for all instances of a service of a control plane.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, transactional_id: str, client_id: str) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._client_id = client_id
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect and overtake every earlier instance; retries until Kafka answers."""
        await connect(self._open)

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await close(producer)
            forget_errors(producer)

    async def write(self, topic: str, records: Sequence[Record]) -> int:
        """Write records to partition 0 of a topic, all or none; returns the offset of the last one.

        Raises:
            Overtaken: another instance has started.
            Retryable: Kafka did not answer; whether the records were written is unknown.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._producer is None:
                    await self._open()
                producer = self._producer
                assert producer is not None
                async with producer.transaction():
                    sent = [
                        await producer.send(topic, record.value, key=record.key, partition=0)
                        for record in records
                    ]
                    offsets: list[int] = [(await one).offset for one in sent]
                return offsets[-1]
        except (KafkaError, TimeoutError, OSError) as error:
            await self.stop()
            if type(error).__name__ in _FENCED:
                raise Overtaken("another instance of this service has started") from error
            raise Retryable(f"whether the records were written to {topic} is unknown: {error!r}") from error

    async def _open(self) -> None:
        producer = AIOKafkaProducer(
            **client_options(self._bootstrap),
            client_id=self._client_id,
            transactional_id=self._transactional_id,
            acks="all",
        )
        try:
            await producer.start()
        except BaseException:
            await close(producer)
            raise
        self._producer = producer
