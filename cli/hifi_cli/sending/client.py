"""Send batches to ingest until each event is accepted or refused."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Retryable
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.responses import decide
from hifi_infra.colours.haproxy_folder import KEY_HEADER

ANSWER_S: Final = 30.0
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
MAX_REFUSALS: Final = 20


@dataclass(slots=True)
class SendCounts:
    """Outcomes of the events so far."""

    accepted: int = 0
    refused: int = 0
    repeats: int = 0
    """Requests that ingest did not answer or did not accept as a whole, and after which sending waited."""
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """Number and reason of the first refused events."""

    def refuse(self, number: int, reason: str) -> None:
        """Count an event that is refused for good."""
        self.refused += 1
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals.append((number, reason))


class IngestClient:
    """Sends events to one pipe.

    Args:
        session: HTTP session.
        url: address of ingest.
        pipe: name of the pipe.
        key: write key of the pipe.
        patience_s: give up if no request is accepted for this long, seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        pipe: str,
        key: str,
        *,
        patience_s: float,
    ) -> None:
        self.counts = SendCounts()
        self._session = session
        self._url = f"{url}/v1/pipes/{pipe}/events"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"}
        self._patience_s = patience_s
        self._last_progress_s = time.monotonic()
        self.obstacle = ""
        """Why sending is waiting at the moment, for the progress bar."""
        self._unfinished: dict[int, list[RequestBatch]] = {}
        """Number of a worker to the batches that it has not finished."""

    async def send(
        self, next_batch: Callable[[], Awaitable[RequestBatch | None]], *, concurrency: int
    ) -> None:
        """Send the batches of `next_batch` until it returns None. With a concurrency of 1 the order is preserved.

        Raises:
            Misconfigured: ingest refuses the key, the pipe or every event.
            Retryable: no request was accepted for `patience_s`.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for worker in range(concurrency):
                    group.create_task(self._work(next_batch, worker))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    @property
    def in_flight(self) -> list[tuple[int, int]]:
        """First and last number of the events whose request had no answer when sending was stopped, ascending."""
        return sorted(
            (batches[0].items[0].number, batches[0].items[-1].number)
            for batches in self._unfinished.values()
            if batches
        )

    async def _work(self, next_batch: Callable[[], Awaitable[RequestBatch | None]], worker: int) -> None:
        while (batch := await next_batch()) is not None:
            self._last_progress_s = time.monotonic()  # time spent waiting for the file does not count
            batches = self._unfinished[worker] = [batch]
            while batches:
                batches[:1] = await self._try(batches[0])

    async def _try(self, batch: RequestBatch) -> list[RequestBatch]:
        """Send one request; return the batches to send next."""
        batch.tries += 1
        try:
            status, answer_headers, body = await self._post(batch)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._pause(backoff_s(batch.tries - 1, BACKOFF_S), f"no answer: {error!r}")
            return [batch]
        decision = decide(batch, status, answer_headers, body)
        self._accept(decision.accepted)
        for number, reason in decision.refused:
            self.counts.refuse(number, reason)
        if decision.obstacle:
            await self._pause(decision.wait_s, decision.obstacle)
        return decision.retry

    async def _post(self, batch: RequestBatch) -> tuple[int, dict[str, str], bytes]:
        # Two colours know nothing of each other's events: the front sends what is repeated to the same one.
        headers = self._headers | {"Idempotency-Key": batch.key, KEY_HEADER: batch.key}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with self._session.post(
            self._url, data=batch.body(), headers=headers, timeout=timeout
        ) as answer:
            lower_headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, lower_headers, await answer.read()

    def _accept(self, count: int) -> None:
        if count:
            self.counts.accepted += count
            self._last_progress_s = time.monotonic()
            self.obstacle = ""

    async def _pause(self, wait_s: float, reason: str) -> None:
        self.counts.repeats += 1
        if time.monotonic() - self._last_progress_s > self._patience_s:
            raise Retryable(f"no request was accepted for {self._patience_s:.0f} s: {reason}")
        self.obstacle = reason
        await asyncio.sleep(wait_s)
