"""Send batches to ingest until each event is accepted or refused."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from hifi.pipe.source import HttpSource
from hifi.record.cloudevents.percent_encoding import percent_encoded
from hifi.runtime import exact_json
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Retryable
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent
from hifi_cli.sending.responses import MAX_WAIT_S, decide

ANSWER_S: Final = 30.0
BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
MAX_REFUSALS: Final = 20


@dataclass(slots=True)
class SendCounts:
    """Outcomes of the events so far."""

    accepted: int = 0
    refused: int = 0
    unknown: int = 0
    """Events that may or may not be in Kafka, of a pipe that accepts no CloudEvents to repeat them safely."""
    repeats: int = 0
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
        source: the source that the pipe declares, if known.
        patience_s: give up if no event is accepted for this long, seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        pipe: str,
        key: str,
        *,
        source: HttpSource | None,
        patience_s: float,
    ) -> None:
        self.counts = SendCounts()
        self._session = session
        self._url = f"{url}/v1/pipes/{pipe}/events"
        self._path = f"/v1/pipes/{pipe}/events"
        self._authorization = {"Authorization": f"Bearer {key}"}
        self._source = source
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
            Retryable: no event was accepted for `patience_s`.
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
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": batch.key}
        try:
            status, answer_headers, body = await self._post(headers, batch.body())
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self._pause(backoff_s(batch.tries, BACKOFF_S), f"no answer: {error!r}")
            batch.tries += 1
            return [batch]
        decision = decide(batch, status, answer_headers, body)
        self._accept(decision.accepted)
        for number, reason in decision.refused:
            self.counts.refuse(number, reason)
        if decision.wait_s:
            await self._pause(decision.wait_s, f"ingest answers {status}; waiting to send again")
        for event, name in decision.unknown:
            await self._repeat(event, name)
        return decision.retry

    async def _repeat(self, event: FileEvent, name: str) -> None:
        """Send one event that may be in Kafka already, with the id that ingest gave it, so that it is recognized."""
        headers = self._as_cloudevent(event, name)
        while True:
            try:
                status, answer_headers, _ = await self._post(headers, event.data)
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

    def _as_cloudevent(self, event: FileEvent, name: str) -> dict[str, str]:
        source = self._source
        headers = {
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": self._path,
            "ce-type": source.type if source else "hifi.event",
        }
        if source and source.partition_key:
            value = _field_at(exact_json.loads(event.data), source.partition_key)
            if value is not None and value != "":
                headers["ce-partitionkey"] = str(value)
        if source and source.time and (value := _field_at(exact_json.loads(event.data), source.time)):
            headers["ce-time"] = str(value)
        return {
            header: percent_encoded(value.encode()).decode() if header.startswith("ce-") else value
            for header, value in headers.items()
        }

    async def _post(self, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with self._session.post(
            self._url, data=body, headers=self._authorization | dict(headers), timeout=timeout
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
            raise Retryable(f"no event was accepted for {self._patience_s:.0f} s: {reason}")
        self.obstacle = reason
        await asyncio.sleep(min(wait_s, MAX_WAIT_S))


def _field_at(data: Any, path: str) -> Any:
    for segment in path.split("."):
        if not isinstance(data, dict):
            return None
        data = data.get(segment)
    return data
