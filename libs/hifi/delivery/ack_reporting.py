"""Write ack reports every second, and the closing ones at the end."""

import asyncio
from typing import Final

from hifi.delivery.ack_report import AckReporter
from hifi.kafka.producer import Producer
from hifi.runtime import log
from hifi.runtime.health import Health
from hifi.runtime.running import cancel

_CONDITION: Final = "kafka"
_REPORT_S: Final = 1.0
_STALLED_S: Final = 5.0
_CLOSE_S: Final = 8.0

logger = log.get(__name__)


class AckReports:
    """Sends the reports of a service, which is not ready while Kafka acknowledges nothing for 5 s.

    Args:
        reporter: makes the reports.
        producer: writes them, and is stopped with them: nothing may be written after the closing reports.
        health: of the service.
    """

    def __init__(self, reporter: AckReporter, producer: Producer, health: Health) -> None:
        self._reporter = reporter
        self._producer = producer
        self._health = health
        self.task: asyncio.Task[None] | None = None
        """Sends the reports."""

    async def start(self) -> None:
        """Begin to report every second."""
        self.task = asyncio.create_task(self._report())

    async def stop(self) -> None:
        """Write the closing reports within 8 s, then stop the producer."""
        await cancel(self.task)
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._reporter.close()
        except TimeoutError:
            logger.error("ack-report-incomplete", timeout_s=_CLOSE_S)  # noqa: TRY400 - the traceback says nothing
        if not await self._producer.stop(timeout_s=2):
            logger.error("producer-not-flushed")

    async def _report(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._reporter.send_reports()
            await asyncio.sleep(_REPORT_S)
            stalled_s = self._producer.stalled_s(loop.time())
            if stalled_s > _STALLED_S:
                self._health.block(_CONDITION, f"Kafka has acknowledged nothing for {stalled_s:.0f} s")
            else:
                self._health.unblock(_CONDITION)
