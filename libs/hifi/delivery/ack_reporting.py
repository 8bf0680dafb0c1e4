"""Write ack reports every second, and the closing ones at the end."""

import asyncio
from typing import Final

from hifi.delivery.ack_report import AckReporter
from hifi.kafka.producer import Producer
from hifi.runtime import log
from hifi.runtime.health import Health

_CONDITION: Final = "kafka"
_REPORT_S: Final = 1.0
_STALLED_S: Final = 5.0
_CLOSE_S: Final = 8.0

logger = log.get(__name__)


async def report_acks(reporter: AckReporter, producer: Producer, health: Health) -> None:
    """Send the reports every second until cancelled; not ready while Kafka acknowledges nothing for 5 s."""
    loop = asyncio.get_running_loop()
    while True:
        reporter.send_reports()
        await asyncio.sleep(_REPORT_S)
        stalled_s = producer.stalled_s(loop.time())
        if stalled_s > _STALLED_S:
            health.block(_CONDITION, f"Kafka has acknowledged nothing for {stalled_s:.0f} s")
        else:
            health.unblock(_CONDITION)


async def close(reporter: AckReporter, producer: Producer) -> None:
    """Write the closing reports within 8 s, then stop the producer."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await reporter.close()
    except TimeoutError:
        logger.error("ack-report-incomplete", timeout_s=_CLOSE_S)  # noqa: TRY400 - the traceback says nothing
    if not await producer.stop(timeout_s=2):
        logger.error("producer-not-flushed")
