"""Write records in transactions that an earlier holder of the same id, frozen or cut off, can no longer complete."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hifi.kafka.batches import forget_errors, retrieve_error
from hifi.kafka.clients import close, connect, may_arrive_late, transactional_producer
from hifi.record.record import Record
from hifi.runtime.errors import HifiError, Retryable

_TIMEOUT_S: Final = 15.0
_MIN_TRANSACTION_S: Final = 60.0
_FENCED: Final = frozenset({"ProducerFenced", "InvalidProducerEpoch", "InvalidProducerIdMapping"})
"""Names of the errors that a producer gets after another one with its id was initialized."""


class Overtaken(HifiError):
    """Another holder of the transactional id has begun since: this one must end."""


class Transaction:
    """Records that are written together."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._acknowledgements: list[asyncio.Future[Any]] = []

    async def add(self, topic: str, record: Record, partition: int = 0) -> None:
        """Add a record."""
        await self._send(topic, record, partition)

    async def append(self, topic: str, record: Record, partition: int = 0) -> int:
        """Add a record and wait until Kafka has acknowledged it; returns its offset."""
        return int((await (await self._send(topic, record, partition))).offset)

    async def flush(self) -> None:
        """Wait until Kafka has acknowledged all records."""
        await asyncio.gather(*self._acknowledgements)

    async def _send(self, topic: str, record: Record, partition: int) -> asyncio.Future[Any]:
        acknowledgement: asyncio.Future[Any] = await self._producer.send(
            topic, record.value, key=record.key, partition=partition
        )
        acknowledgement.add_done_callback(retrieve_error)
        self._acknowledgements.append(acknowledgement)
        return acknowledgement


class FencedWriter:
    """Writes to one cluster.

    Args:
        bootstrap: `HOST:PORT,…`.
        transactional_id: the same for all that may write, of which only the last one to connect can.
        client_id: name in the broker's logs.
        timeout_s: bound on a transaction, seconds.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, client_id: str, *, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._producer: AIOKafkaProducer | None = None
        self._has_written = False
        """Whether the producer has begun a transaction. What it requested before could end none."""

    async def start(self) -> None:
        """Connect and overtake every earlier holder of the id; retries until Kafka answers."""
        await connect(self._open)

    async def take_over(self) -> None:
        """As `start`, without retries: what an earlier holder had begun to commit is complete then.

        Raises:
            Overtaken: another holder was faster.
            Retryable: Kafka did not answer.
        """
        await self.stop()
        try:
            await self._open()
        except (KafkaError, OSError) as error:
            raise _as_hifi_error(error, "Kafka did not answer") from error

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await close(producer)
            forget_errors(producer)

    async def write(self, topic: str, records: Sequence[Record]) -> int:
        """Write records to partition 0 of a topic, all or none; returns the offset of the last one.

        Raises:
            Overtaken, Retryable: as `transaction`.
        """
        async with self.transaction() as transaction:
            for record in records[:-1]:
                await transaction.add(topic, record)
            return await transaction.append(topic, records[-1])

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Write what the block adds, all or none; it is committed at the end of the block, aborted if that raises.

        Raises:
            Overtaken: another holder has begun. Or it may have: Kafka did not answer an earlier request, which may
                arrive late and would commit a part of these records. Take over again, and read.
            Retryable: Kafka did not answer; whether the records were written is unknown.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._producer is not None and self._has_written and may_arrive_late(self._producer):
                    await self.stop()
                    raise Overtaken(
                        "Kafka did not answer an earlier request, so another holder may have begun; nothing was written"
                    )
                if self._producer is None:
                    await self._open()
                assert self._producer is not None
                self._has_written = True
                async with self._producer.transaction():
                    transaction = Transaction(self._producer)
                    yield transaction
                    await transaction.flush()
        except (KafkaError, TimeoutError, OSError) as error:
            await self.stop()
            raise _as_hifi_error(error, "whether the records were written is unknown") from error

    async def _open(self) -> None:
        producer = transactional_producer(
            self._bootstrap,
            self._transactional_id,
            self._client_id,
            timeout_s=max(_MIN_TRANSACTION_S, self._timeout_s),
        )
        try:
            await producer.start()
        except BaseException:
            await close(producer)
            raise
        self._producer, self._has_written = producer, False


def _as_hifi_error(error: Exception, detail: str) -> HifiError:
    if type(error).__name__ in _FENCED:
        return Overtaken("another instance of this service has started")
    return Retryable(f"{detail}: {error!r}")
