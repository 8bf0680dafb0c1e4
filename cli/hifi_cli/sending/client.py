"""Hands batches to ingest until each item has an answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson

from hifi.errors import Retryable
from hifi.pipe.model import Source
from hifi_cli.sending.batches import Batch
from hifi_cli.sending.event_files import Item
from hifi_cli.sending.responses import MOST_WAIT_S, meaning

ANSWER_S: Final = 30.0
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
MOST_LISTED: Final = 20


@dataclass(slots=True)
class Counts:
    """What became of the items so far."""

    accepted: int = 0
    refused: int = 0
    unknown: int = 0
    """Kafka may or may not have them, and the pipe takes no CloudEvents, by which they could be repeated safely."""
    repeats: int = 0
    why: list[tuple[int, str]] = field(default_factory=list)
    """The first refused items: number and reason."""

    def refuse(self, number: int, reason: str) -> None:
        """One item will not be taken."""
        self.refused += 1
        if len(self.why) < MOST_LISTED:
            self.why.append((number, reason))


class Client:
    """Sends to one pipe.

    Args:
        session: to send with.
        url: of ingest.
        pipe: the pipe's name.
        key: a write key of the pipe.
        source: as the pipe declares it, where that is known.
        patience_s: how long nothing may be accepted before giving up, seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        pipe: str,
        key: str,
        *,
        source: Source | None,
        patience_s: float,
    ) -> None:
        self.counts = Counts()
        self._session = session
        self._url = f"{url}/v1/pipes/{pipe}/events"
        self._path = f"/v1/pipes/{pipe}/events"
        self._authorization = {"Authorization": f"Bearer {key}"}
        self._source = source
        self._patience_s = patience_s
        self._progress_s = time.monotonic()
        self.obstacle = ""
        """What lies in the way now, for a person."""

    async def send(self, take: Callable[[], Awaitable[Batch | None]], *, concurrency: int) -> None:
        """Send every batch that `take` gives until it gives None; with a concurrency of one in order.

        Raises:
            Misconfigured: ingest refuses the key, the pipe or everything.
            Retryable: nothing was accepted for too long.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._work(take))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _work(self, take: Callable[[], Awaitable[Batch | None]]) -> None:
        while (batch := await take()) is not None:
            self._progress_s = time.monotonic()  # waiting for the source is no lack of progress
            waiting = [batch]
            while waiting:
                waiting[:1] = await self._try(waiting[0])

    async def _try(self, batch: Batch) -> list[Batch]:
        """One request; gives what is to be sent next."""
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": batch.key}
        try:
            status, answer_headers, body = await self._post(headers, batch.body())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._pause(BACKOFF_S[min(batch.tries, len(BACKOFF_S) - 1)], f"no answer: {error!r}")
            batch.tries += 1
            return [batch]
        meant = meaning(batch, status, answer_headers, body)
        self._accept(meant.accepted)
        for number, reason in meant.refused:
            self.counts.refuse(number, reason)
        if meant.wait_s:
            await self._pause(meant.wait_s, f"ingest answers {status} and asks to come again")
        for item, name in meant.unknown:
            await self._repeat(item, name)
        return meant.again

    async def _repeat(self, item: Item, name: str) -> None:
        """Send one item that Kafka may have already, as the very event that ingest made of it."""
        headers = self._as_cloudevent(item, name)
        while True:
            try:
                status, answer_headers, _ = await self._post(headers, item.data)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                await self._pause(BACKOFF_S[-1], f"no answer: {error!r}")
                continue
            if status == 202:
                self._accept(1)
            elif status in (408, 429, 503):
                await self._pause(float(answer_headers.get("retry-after", "1")), f"ingest answers {status}")
                continue
            else:
                self.counts.unknown += 1
            return

    def _as_cloudevent(self, item: Item, name: str) -> dict[str, str]:
        source = self._source
        headers = {
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": self._path,
            "ce-type": source.type if source else "hifi.event",
        }
        if source and source.partition_key and (value := _at(orjson.loads(item.data), source.partition_key)):
            headers["ce-partitionkey"] = str(value)
        return headers

    async def _post(self, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with self._session.post(
            self._url, data=body, headers=self._authorization | dict(headers), timeout=timeout
        ) as answer:
            found = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, found, await answer.read()

    def _accept(self, count: int) -> None:
        if count:
            self.counts.accepted += count
            self._progress_s = time.monotonic()
            self.obstacle = ""

    async def _pause(self, wait_s: float, why: str) -> None:
        self.counts.repeats += 1
        if time.monotonic() - self._progress_s > self._patience_s:
            raise Retryable(f"nothing was accepted for {self._patience_s:.0f} s; {why}")
        self.obstacle = why
        await asyncio.sleep(min(wait_s, MOST_WAIT_S))


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(data, dict):
            return None
        data = data.get(part)
    return data
