"""The query on `/readyz`: the instance's state, and the reason why it waits."""

import asyncio
from typing import Final

from hifi.runtime.health import Health
from hifi.runtime.service import Service

_CONDITION: Final = "query"


class QueryStatus:
    """Reports the state of the query to the service's health. A service that stops keeps the state `draining`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def health(self) -> Health:
        """The service's health."""
        return self._service.health

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the service is to stop."""
        return self._service.stopping

    def starting(self, reason: str) -> None:
        """Not ready yet, for this reason."""
        self.health.block(_CONDITION, reason)

    def waiting(self, reason: str) -> None:
        """No query runs, for this reason."""
        self._set_state("waiting")
        self.health.block(_CONDITION, reason)

    def running(self) -> None:
        """The query runs."""
        self._set_state("running")
        self.health.unblock(_CONDITION)

    def standby(self) -> None:
        """Another instance runs the query."""
        self._set_state("standby")
        self.health.unblock(_CONDITION)

    def _set_state(self, state: str) -> None:
        if not self.stopping.is_set():
            self.health.state = state

    async def wait_for_any(self, *events: asyncio.Event, timeout_s: float | None = None) -> None:
        """Wait until one of the events is set, the service is to stop, or `timeout_s` seconds have passed."""
        tasks = [asyncio.ensure_future(event.wait()) for event in (*events, self.stopping)]
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
