"""Requests of a lane that wait to be sent again from this instance."""

import asyncio
from collections.abc import Callable

from hifi_egest.delivery.delivery import OutboundRequest


class LocalRetries:
    """Holds requests for the time that the retry policy asks for."""

    def __init__(self, resend: Callable[[OutboundRequest], None]) -> None:
        """Start empty; `resend` is called with each request when its wait is over."""
        self._loop = asyncio.get_running_loop()
        self._resend = resend
        self._timers: dict[OutboundRequest, asyncio.TimerHandle] = {}

    def add(self, request: OutboundRequest, after_s: float) -> None:
        """Hold a request for `after_s` seconds."""
        self._timers[request] = self._loop.call_later(after_s, self._expired, request)

    def remove_revoked(self) -> list[OutboundRequest]:
        """Remove and return the requests with deliveries of a revoked partition."""
        revoked_requests = [request for request in self._timers if not request.active]
        for request in revoked_requests:
            self._timers.pop(request).cancel()
        return revoked_requests

    def _expired(self, request: OutboundRequest) -> None:
        del self._timers[request]
        self._resend(request)
