"""What egest writes to Kafka: gathered for one turn of the event loop, sent in batches, told when acknowledged."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from hifi import log
from hifi.errors import Overloaded
from hifi.event import Record
from hifi.kafka.producer import Producer

_CHUNK: Final = 200
_TRIES: Final = 5

Entry: TypeAlias = tuple[Record, Callable[[], None]]
Target: TypeAlias = tuple[str, int]

logger = log.get(__name__)


class Outbox:
    """Records on their way, each with what to do once Kafka has acknowledged it."""

    def __init__(self, producer: Producer, failed: asyncio.Future[None]) -> None:
        """Begin with nothing to write.

        Args:
            producer: of the service.
            failed: gets the error when records cannot be written although Kafka answers: nothing can go on then.
        """
        self._producer = producer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Target, list[Entry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, topic: str, partition: int, record: Record, then: Callable[[], None]) -> None:
        """Write a record, and call `then` when Kafka has acknowledged it."""
        if not self._gathered:
            self._loop.call_soon(self._flush)
        target = topic, partition
        entries = self._gathered.get(target)
        if entries is None:
            entries = self._gathered[target] = []
        entries.append((record, then))

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for target, entries in gathered.items():
            try:
                sending = self._producer.send(*target, [record for record, _ in entries])
            except Overloaded:
                self._deliver(target, entries)
            except Exception as error:  # noqa: BLE001 - a callback: nobody else would see it
                self._fail(error)
            else:
                sending.acknowledged.add_done_callback(partial(self._acknowledged, target, entries))

    def _acknowledged(self, target: Target, entries: list[Entry], future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        if future.exception() is not None:
            self._deliver(target, entries)
            return
        for _, then in entries:
            then()

    def _deliver(self, target: Target, entries: list[Entry]) -> None:
        """The slow way: wait for room, try again."""
        task = self._loop.create_task(self._delivered(target, entries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delivered(self, target: Target, entries: list[Entry]) -> None:
        for start in range(0, len(entries), _CHUNK):
            chunk = entries[start : start + _CHUNK]
            for turn in range(1, _TRIES + 1):
                try:
                    await self._producer.send_and_wait(*target, [record for record, _ in chunk])
                    break
                except Overloaded:
                    return  # the producer has stopped: the next owner does it all again
                except Exception as error:
                    logger.exception("write-failed", topic=target[0], partition=target[1], error=repr(error))
                    if turn == _TRIES:
                        self._fail(error)
                        return
                    await asyncio.sleep(0.2 * turn)
            for _, then in chunk:
                then()

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
