"""Write the totals of each write key to the topic `key-usage`, every second."""

import asyncio
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.key_usage import KeyUsageCounts
from hifi.kafka.producer import Producer
from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi.runtime.running import cancel

_REPORT_S: Final = 1.0
_WRITE_S: Final = 15.0
_CLOSE_S: Final = 3.0

logger = log.get(__name__)


class KeyUsageReports:
    """Writes totals with a producer of its own, so that events never wait for it.

    Args:
        bootstrap: the stream's Kafka.
        topic: `key-usage`.
        counts: of this process.
        instance: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, counts: KeyUsageCounts, instance: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._counts = counts
        self._instance = instance
        self._producer: Producer | None = None
        self._failing = False
        self.task: asyncio.Task[None] | None = None
        """Writes the totals."""

    async def start(self) -> None:
        """Begin to write what changed, each second."""
        self.task = asyncio.create_task(self._report())

    async def stop(self) -> None:
        """Write the last totals within 3 s."""
        await cancel(self.task)
        await self._write(_CLOSE_S)
        await self._disconnect()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            await self._write(_WRITE_S)

    async def _write(self, timeout_s: float) -> None:
        totals = self._counts.take()
        if not totals:
            return
        is_written = False
        try:
            async with asyncio.timeout(timeout_s):
                if self._producer is None:
                    producer = Producer(self._bootstrap, self._instance)
                    await producer.start()
                    self._producer = producer
                await self._producer.send_and_wait(self._topic, 0, self._counts.records(totals))
            is_written = True
        except (KafkaError, HifiError, OSError, TimeoutError) as error:
            if not self._failing:
                logger.warning("key-usage-not-written", error=repr(error))
        finally:
            self._failing = not is_written
            if not is_written:
                self._counts.restore(totals)
                await self._disconnect()

    async def _disconnect(self) -> None:
        """Drop the producer and the records that it could not write; their totals are written again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop(timeout_s=0)
