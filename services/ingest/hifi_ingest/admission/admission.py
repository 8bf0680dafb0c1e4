"""Decide for each request, before its body is read, whether ingest can answer it in time.

docs/decisions/admission.md has the reasons.
"""

import asyncio
import math
from typing import Final

from hifi.runtime import metrics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.http.problem import Problem
from hifi_ingest.admission.backlog_limit import BacklogLimit
from hifi_ingest.admission.request_limit import TICK_S, RequestLimit

_QUEUE: Final = metrics.OVERLOADED.labels("queue")
_BACKLOG: Final = metrics.OVERLOADED.labels("backlog")


class Admission:
    """The two limits of a process: its own queue, and the backlog of the stages behind it."""

    def __init__(self, requests: RequestLimit, backlog: BacklogLimit) -> None:
        self.requests = requests
        self.backlog = backlog

    def check(self, pipe: str, now_s: float) -> None:
        """Refuse a request of a pipe while ingest or a stage behind it is overloaded.

        Raises:
            Problem: 429 with Retry-After.
        """
        if self.requests.refuses(now_s, pipe):
            _QUEUE.inc()
            raise _overloaded("ingest is overloaded", 1)
        wait_s = self.backlog.wait_s(now_s, pipe)
        if wait_s > 0:
            _BACKLOG.inc()
            raise _overloaded(f"{self.backlog.service} is overloaded", max(1, math.ceil(wait_s)))

    def accepted(self, pipe: str, events: int) -> None:
        """Count accepted events."""
        self.backlog.take(monotonic_s(), pipe, events)

    async def adjust(self) -> None:
        """Adjust the limit of requests every 100 ms until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.requests.tick(monotonic_s())


def _overloaded(subject: str, retry_after_s: int) -> Problem:
    return Problem(
        429,
        f"{subject}; no event was accepted, send the request again later",
        [("retry-after", str(retry_after_s))],
    )
