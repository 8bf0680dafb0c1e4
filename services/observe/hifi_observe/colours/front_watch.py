"""Reads HAProxy's counters every second."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from hifi import log
from hifi_observe.colours.front_stats import FrontCounters, FrontMinutes, parse_counters

_INTERVAL_S: Final = 1.0
_WITHIN_S: Final = 3.0

logger = log.get(__name__)


class FrontWatch:
    """Counts what the front refuses.

    Args:
        stats: returns the path of HAProxy's runtime socket; empty: there is no front yet.
    """

    def __init__(self, stats: Callable[[], str]) -> None:
        self._stats = stats
        self._minutes = FrontMinutes()
        self.away: str | None = None
        """Why the counters could not be read the last time; None: they could."""

    def of(self, minute: int) -> dict[str, Any] | None:
        """See `FrontMinutes.of`."""
        return self._minutes.of(minute)

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            stats = self._stats()
            if stats:
                try:
                    self._minutes.take(await read_counters(stats), time.time())
                    self.away = None
                except (OSError, TimeoutError, ValueError) as error:
                    if self.away is None:
                        logger.warning("front-unreadable", stats=stats, error=repr(error))
                    self._minutes.miss(time.time())
                    self.away = f"the front's counters at {stats} cannot be read: {error!r}"
            await asyncio.sleep(_INTERVAL_S)


async def read_counters(stats: str) -> FrontCounters:
    """The counters that the front has now.

    Args:
        stats: path of HAProxy's runtime socket.

    Raises:
        OSError, TimeoutError, ValueError: they cannot be read.
    """
    async with asyncio.timeout(_WITHIN_S):
        reader, writer = await asyncio.open_unix_connection(stats)
        try:
            writer.write(b"show stat\n")
            return parse_counters((await reader.read(-1)).decode())
        finally:
            writer.close()
