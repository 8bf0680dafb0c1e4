"""The main function of commands that set something up on a Kafka and end."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hifi.kafka.settings import ServiceSettings
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.settings import load

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def run_setup(
    settings_type: type[SettingsT], set_up: Callable[[SettingsT], Coroutine[Any, Any, None]]
) -> None:
    """Load the settings and set up; exits with 1 when Kafka does not answer, with 2 when a setting is wrong."""
    try:
        settings = load(settings_type)
        log.configure("setup", settings.instance, format=settings.log_format, level=settings.log_level)
        asyncio.run(set_up(settings))
    except HifiError as error:
        print(f"hifi-setup: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, Misconfigured) else 1)
