"""A sender that posts batches to ingest over real HTTP and notes every answer."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import orjson
from tests.support.ingest.ingest_harness import KEY, Ingest, Stream

BATCH = 40


class Sender:
    """Posts batches, one after the other, over many connections, and notes every answer."""

    def __init__(
        self,
        instance: Ingest,
        batch: int = BATCH,
        *,
        pipe_name: str = "flights",
        key: str = KEY,
        pad: int = 0,
    ) -> None:
        self.url = f"{instance.url}/v1/pipes/{pipe_name}/events"
        self.bearer = {"authorization": f"Bearer {key}"}
        self.body = orjson.dumps([{"n": n, "pad": "." * pad} for n in range(batch)])
        self.statuses: Counter[int] = Counter()
        self.accepted: list[str] = []
        self.refusals: list[tuple[str | None, Any]] = []

    async def post(self, client: aiohttp.ClientSession) -> int:
        async with client.post(
            self.url, data=self.body, headers={"content-type": "application/json"}
        ) as answer:
            body = await answer.json(content_type=None)
            self.statuses[answer.status] += 1
            if answer.status == 202:
                self.accepted += body["ids"]
            else:
                self.refusals.append((answer.headers.get("retry-after"), body))
            return answer.status

    @contextlib.asynccontextmanager
    async def sending(self, connections: int, pause_s: float = 0) -> AsyncIterator[aiohttp.ClientSession]:
        """Post over and over on each connection while the block runs."""

        async def loop(client: aiohttp.ClientSession) -> None:
            while not stopped.is_set():
                await self.post(client)
                await asyncio.sleep(pause_s)

        stopped = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=self.bearer, connector=connector) as client:
            tasks = [asyncio.create_task(loop(client)) for _ in range(connections)]
            try:
                yield client
            finally:
                stopped.set()
                await asyncio.gather(*tasks)


async def until(condition: Callable[[], bool], bound_s: float = 60) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.05)


async def told(stream: Stream) -> Counter[int]:
    """HTTP statuses by number, as the reports tell observe."""
    counts: Counter[int] = Counter()
    for record in await stream.accepted():
        for status, count in orjson.loads(record.value)["answers"].items():
            counts[int(status)] += count
    return counts
