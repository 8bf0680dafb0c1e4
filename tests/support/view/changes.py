"""A stream of changes of a view, read as a program would."""

import asyncio
from typing import Any, Self

import aiohttp
import orjson
from tests.support.view.view_stream import KEY, ViewClient


class Changes:
    """A stream of changes.

    Args:
        client: of the view.
        last_id: to go on from; None: from all rows.
        view: its name.
        key: that opens the view.
        filters: of the request.
    """

    def __init__(
        self,
        client: ViewClient,
        last_id: str | None = None,
        view: str = "flights-now",
        key: str = KEY,
        **filters: str,
    ) -> None:
        self.last_id = last_id or ""
        self.resets = 0
        self._url = f"{client.url}/v1/views/{view}/changes"
        self._key = key
        self._filters = filters
        self._session = aiohttp.ClientSession()
        self._answer: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> Self:
        headers = {"authorization": f"Bearer {self._key}"} | (
            {"last-event-id": self.last_id} if self.last_id else {}
        )
        self._answer = await self._session.get(self._url, headers=headers, params=self._filters)
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._answer is not None
        self._answer.close()
        await self._session.close()

    async def row(self) -> dict[str, Any]:
        """The next row."""
        row: dict[str, Any] = orjson.loads(await self._next("row"))
        return row

    async def rows(self, count: int) -> dict[str, int]:
        """Flight to delay of the next rows."""
        rows = [await self.row() for _ in range(count)]
        return {row["flight"]: row["delay"] for row in rows}

    async def complete(self) -> str:
        """Until when the view is complete, as the next such event says."""
        return str(orjson.loads(await self._next("complete-until")))

    async def end(self) -> None:
        """Read until the server ends the stream.

        Raises:
            aiohttp.ClientError: it breaks off.
        """
        assert self._answer is not None
        async with asyncio.timeout(30):
            while await self._answer.content.readany():
                pass

    async def _next(self, kind: str) -> bytes:
        assert self._answer is not None
        async with asyncio.timeout(30):
            while True:
                block = await self._answer.content.readuntil(b"\n\n")
                fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n"))
                self.resets += fields.get(b"event") == b"reset"
                if b"id" in fields:
                    self.last_id = fields[b"id"].decode()
                if fields.get(b"event") == kind.encode():
                    return fields[b"data"]
