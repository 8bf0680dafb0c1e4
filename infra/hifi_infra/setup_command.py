"""The main function of commands that set something up on a Kafka and end."""

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import HifiError, Misconfigured, Retryable, Unprepared
from hifi.runtime.settings import load

logger = log.get(__name__)


class SetupCommandSettings(ServiceSettings):
    """Settings of every command that sets something up."""

    wait_s: float = Field(120, gt=0, description="How long to wait for Kafka, seconds.")


SettingsT = TypeVar("SettingsT", bound=SetupCommandSettings)


def run_setup(
    settings_type: type[SettingsT], set_up: Callable[[SettingsT], Coroutine[Any, Any, None]]
) -> None:
    """Load the settings and set up; exits with the status of an error.

    Args:
        settings_type: of the command.
        set_up: sets up; what exists already stays as it is, so that it can be repeated.
    """
    try:
        settings = load(settings_type)
        log.configure("setup", settings.instance, format=settings.log_format, level=settings.log_level)
        asyncio.run(repeated(lambda: set_up(settings), settings.wait_s))
    except HifiError as error:
        print(f"hifi-setup: {error}", file=sys.stderr)
        sys.exit(exit_status(error))


def exit_status(error: HifiError) -> int:
    """Of the command: 2 if a pipe or a setting is wrong, so that trying again would not help, else 1. Pure."""
    return 2 if isinstance(error, Misconfigured) and not isinstance(error, Unprepared) else 1


async def repeated(set_up: Callable[[], Coroutine[Any, Any, None]], repeat_s: float) -> None:
    """Set up; again when Kafka does not answer in time: a cluster that has just started is slow.

    Args:
        set_up: can be repeated.
        repeat_s: after its start no attempt begins, seconds.

    Raises:
        Retryable: Kafka did not answer in the last attempt.
    """
    end_s = time.monotonic() + repeat_s
    for failures in itertools.count():
        try:
            await set_up()
            return
        except Retryable as error:
            if time.monotonic() >= end_s:
                raise
            logger.warning("setup-repeated", error=str(error))
            await asyncio.sleep(backoff_s(failures))
