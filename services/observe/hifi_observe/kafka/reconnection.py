"""Run a task that needs Kafka again each time it fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from hifi.runtime import log
from hifi.runtime.errors import HifiError

PAUSE_S: Final = 2.0
"""Pause before a further attempt, seconds."""

logger = log.get(__name__)


async def reconnect(name: str, task: Callable[[], Awaitable[None]]) -> None:
    """Run a task again each time it ends or Kafka does not answer, until cancelled.

    Args:
        name: of the task, for the log.
        task: starts it.
    """
    while True:
        try:
            await task()
        except* (TimeoutError, KafkaError, OSError, HifiError) as errors:
            logger.warning("kafka-task-failed", task=name, error=repr(errors.exceptions[0]))
        await asyncio.sleep(PAUSE_S)
