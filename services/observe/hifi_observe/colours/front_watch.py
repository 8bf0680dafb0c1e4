"""Reads HAProxy's counters every second."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from hifi.runtime import log
from hifi_observe.colours.front_stats import FrontCounters, FrontMinutes, parse_counters, sum_of_fronts

_INTERVAL_S: Final = 1.0
_WITHIN_S: Final = 3.0

logger = log.get(__name__)


class FrontWatch:
    """Counts what the fronts refuse, of all of them together.

    Args:
        stats: returns the path of the runtime socket of each HAProxy; none: there is no front yet.
    """

    def __init__(self, stats: Callable[[], Sequence[str]]) -> None:
        self._stats = stats
        self._minutes: dict[str, FrontMinutes] = {}
        self._away: dict[str, str] = {}

    @property
    def away(self) -> str | None:
        """The reason why counters could not be read the last time; None: they could."""
        return "; ".join(self._away.values()) or None

    def of(self, minute: int) -> dict[str, Any] | None:
        """See `sum_of_fronts`."""
        return sum_of_fronts([minutes.of(minute) for minutes in self._minutes.values()])

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await asyncio.gather(*map(self._read_front, self._stats()))
            await asyncio.sleep(_INTERVAL_S)

    async def _read_front(self, stats: str) -> None:
        minutes = self._minutes.setdefault(stats, FrontMinutes())
        try:
            minutes.take(await read_counters(stats), time.time())
            self._away.pop(stats, None)
        except (OSError, TimeoutError, ValueError) as error:
            if stats not in self._away:
                logger.warning("front-unreadable", stats=stats, error=repr(error))
            minutes.miss(time.time())
            self._away[stats] = f"the front's counters at {stats} cannot be read: {error!r}"


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
