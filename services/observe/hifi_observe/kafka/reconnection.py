"""Run a task of this instance again each time it fails, so that it ends no other one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi.runtime.health import Health

PAUSE_S: Final = 2.0
"""Pause before a further attempt, seconds."""
_STEADY_S: Final = 60.0
"""A task that has not failed for this long works again, seconds."""

logger = log.get(__name__)


async def reconnect(name: str, task: Callable[[], Awaitable[None]], health: Health) -> None:
    """Run a task again each time it ends or fails, until cancelled.

    Args:
        name: of the task, for the log.
        task: starts it.
        health: gets a warning if the task fails for another reason than that Kafka does not answer.
    """
    subject = f"task {name}"
    while True:
        steady_timer = asyncio.get_running_loop().call_later(_STEADY_S, health.warn, subject, None)
        try:
            await task()
        except* (TimeoutError, KafkaError, OSError, HifiError) as errors:
            logger.warning("kafka-task-failed", task=name, error=repr(errors.exceptions[0]))
        except* Exception as errors:
            logger.exception("task-failed", task=name)
            reason = f"it failed and is run again, see task-failed in the log: {errors.exceptions[0]!r}"
            health.warn(subject, reason)
        finally:
            steady_timer.cancel()
        await asyncio.sleep(PAUSE_S)
