"""Reads the results of a step as a `read_committed` consumer sees them, with the time at which each was visible."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from step_events import PARTITIONS, Totals, Window

_POLL_S: Final = 0.1


class StepResults:
    """Reads one topic from now on until it is stopped.

    Attributes:
        arrived_us: time of each record, in their order.
    """

    def __init__(self, kafka: str, topic: str) -> None:
        """Connect nothing yet."""
        self._kafka = kafka
        self._topic = topic
        self._bodies: list[bytes] = []
        self.arrived_us: list[int] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read from the end of the topic on."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka, isolation_level="read_committed", fetch_max_wait_ms=100
        )
        await consumer.start()
        consumer.assign([TopicPartition(self._topic, partition) for partition in range(PARTITIONS)])
        await consumer.seek_to_end()
        for partition in consumer.assignment():
            await consumer.position(partition)
        self._task = asyncio.create_task(self._read(consumer))

    async def stop(self) -> None:
        """Disconnect."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def results(self) -> list[tuple[Window, Totals]]:
        """Each record."""
        return [_result(orjson.loads(body)) for body in self._bodies]

    async def until_complete(self, expected: Mapping[Window, Totals], limit_s: float) -> int:
        """Wait for the results of all windows, and compare them.

        Returns:
            The number of records beyond one of each window, which normalize drops.

        Raises:
            TimeoutError: some are missing.
            RuntimeError: one differs.
        """
        async with asyncio.timeout(limit_s):
            while len(self._bodies) < len(expected) or len(dict(self.results())) < len(expected):
                await asyncio.sleep(_POLL_S)
        results = self.results()
        if wrong := [window for window, totals in results if expected.get(window) != totals]:
            raise RuntimeError(f"{len(wrong)} results differ, such as that of {wrong[0]}")
        return len(results) - len(expected)

    def delays_s(self, closed_us: Mapping[int, int], begin_us: int, end_us: int) -> list[float]:
        """From the time a window was closed to that of each of its results, of windows closed in a period; sorted."""
        return sorted(
            (arrived_us - closed_us[window.end_ms]) / 1e6
            for (window, _), arrived_us in zip(self.results(), self.arrived_us, strict=True)
            if begin_us <= closed_us.get(window.end_ms, 0) < end_us
        )

    async def first_after(self, closed_us: Mapping[int, int], begin_us: int, limit_s: float) -> int:
        """Wait for the first result of a window that was closed after a time; when it was visible.

        Raises:
            TimeoutError: there is none.
        """
        async with asyncio.timeout(limit_s):
            next_index = 0
            while True:
                for index in range(next_index, len(self._bodies)):
                    window, _ = _result(orjson.loads(self._bodies[index]))
                    if closed_us.get(window.end_ms, 0) > begin_us:
                        return self.arrived_us[index]
                    next_index = index + 1
                await asyncio.sleep(_POLL_S)

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        try:
            while True:
                records = await consumer.getmany(timeout_ms=1000)
                now_us = time.time_ns() // 1000
                for batch in records.values():
                    self._bodies += [record.value for record in batch]
                    self.arrived_us += [now_us] * len(batch)
        finally:
            await consumer.stop()


def _result(body: Mapping[str, Any]) -> tuple[Window, Totals]:
    end_ms = round(datetime.fromisoformat(body["window_end"]).timestamp() * 1000)
    return Window(end_ms, body["carrier"]), Totals(body["flights"], body["total"], body["worst"])
