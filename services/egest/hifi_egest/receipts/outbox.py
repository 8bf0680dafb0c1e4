"""Write records to Kafka in batches: those of one turn of the event loop go together."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from hifi.kafka.producer import Producer
from hifi.record.event import Record
from hifi.runtime import log
from hifi.runtime.errors import Overloaded

_CHUNK: Final = 200
_TRIES: Final = 5

Entry: TypeAlias = tuple[Sequence[Record], Callable[[], None]]
_TopicPartition: TypeAlias = tuple[str, int]

logger = log.get(__name__)


class Outbox:
    """Sends records, and calls back when Kafka has acknowledged them."""

    def __init__(self, producer: Producer, failed: asyncio.Future[None]) -> None:
        """Start with nothing to write.

        Args:
            producer: of the service.
            failed: receives the error if Kafka answers and records still cannot be written; egest must stop then.
        """
        self._producer = producer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._pending: dict[_TopicPartition, list[Entry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(
        self, topic: str, partition: int, records: Sequence[Record], acknowledged: Callable[[], None]
    ) -> None:
        """Write records, at least one; `acknowledged` is called once, when Kafka has acknowledged all of them."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        topic_partition = topic, partition
        entries = self._pending.get(topic_partition)
        if entries is None:
            entries = self._pending[topic_partition] = []
        entries.append((records, acknowledged))

    def _flush(self) -> None:
        pending, self._pending = self._pending, {}
        for topic_partition, entries in pending.items():
            try:
                sending = self._producer.send(*topic_partition, _records(entries))
            except Overloaded:
                self._send_with_retries(topic_partition, entries)
            except Exception as error:  # noqa: BLE001 - this is a callback of the loop: no caller handles the error
                self._fail(error)
            else:
                sending.acknowledged.add_done_callback(partial(self._acknowledged, topic_partition, entries))

    def _acknowledged(
        self, topic_partition: _TopicPartition, entries: list[Entry], future: asyncio.Future[None]
    ) -> None:
        if future.cancelled():
            return
        if future.exception() is not None:
            self._send_with_retries(topic_partition, entries)
            return
        for _, acknowledged in entries:
            acknowledged()

    def _send_with_retries(self, topic_partition: _TopicPartition, entries: list[Entry]) -> None:
        """Send in the background, with waits for buffer space and repeated tries."""
        task = self._loop.create_task(self._send_chunks(topic_partition, entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_chunks(self, topic_partition: _TopicPartition, entries: list[Entry]) -> None:
        for chunk in _chunks(entries):
            for attempt in range(1, _TRIES + 1):
                try:
                    await self._producer.send_and_wait(*topic_partition, _records(chunk))
                    break
                except Overloaded:
                    return  # the producer has stopped: the next owner repeats it
                except Exception as error:
                    logger.exception(
                        "write-failed",
                        topic=topic_partition[0],
                        partition=topic_partition[1],
                        error=repr(error),
                    )
                    if attempt == _TRIES:
                        self._fail(error)
                        return
                    await asyncio.sleep(0.2 * attempt)
            for _, acknowledged in chunk:
                acknowledged()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)


def _records(entries: Sequence[Entry]) -> Sequence[Record]:
    if len(entries) == 1:
        return entries[0][0]
    return [record for records, _ in entries for record in records]


def _chunks(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Neighbours with at most _CHUNK records together, or one entry with more."""
    chunk: list[Entry] = []
    count = 0
    for entry in entries:
        if chunk and count + len(entry[0]) > _CHUNK:
            yield chunk
            chunk, count = [], 0
        chunk.append(entry)
        count += len(entry[0])
    if chunk:
        yield chunk
