"""Load of a mesh: events at a steady rate, each sent once."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp

WRITE_KEY = "write-key"
KEYS = 200
MOST_REQUESTS = 100
"""Requests in flight at most: on a slow machine further ones would keep the loop of the test from anything else."""


class SteadyLoad:
    """Sends events to the pipe `orders`.

    Args:
        session: of the sender.
        url: of ingest.
        events_per_s: to send.
        event: data of an event, by its number.
    """

    def __init__(
        self, session: aiohttp.ClientSession, url: str, events_per_s: int, event: Callable[[int], Any]
    ) -> None:
        self.accepted: set[int] = set()
        """Numbers of the events that were answered with 202."""
        self._session = session
        self._url = f"{url}/v1/pipes/orders/events"
        self._events_per_s = events_per_s
        self._event = event
        self._free = asyncio.Semaphore(MOST_REQUESTS)

    async def run(self) -> None:
        """Send until cancelled."""
        number, began_s = 0, time.monotonic()
        async with asyncio.TaskGroup() as posts:
            while True:
                while number < (time.monotonic() - began_s) * self._events_per_s:
                    await self._free.acquire()
                    posts.create_task(self._post(number))
                    number += 1
                await asyncio.sleep(0.02)

    async def _post(self, number: int) -> None:
        headers = {"authorization": f"Bearer {WRITE_KEY}", "x-key": f"key-{number % KEYS}"}
        try:
            async with self._session.post(self._url, json=self._event(number), headers=headers) as answer:
                if answer.status == 202:
                    self.accepted.add(number)
        finally:
            self._free.release()
