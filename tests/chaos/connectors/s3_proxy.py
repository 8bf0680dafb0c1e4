"""An HTTP proxy in front of the S3 server that fails, answers slowly, or fails after the request took effect."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

MODES: Final = ("error", "error-after", "reset-after", "slow", "hang")
SLOW_S: Final = 2.0
_MOST_BYTES: Final = 256 * 1024**2


class S3Proxy:
    """Forwards requests, host and signature included. `mode` is how it behaves: "ok" or one of `MODES`."""

    def __init__(self, port: int, target: str) -> None:
        self.url: Final = f"http://127.0.0.1:{port}"
        self.mode = "ok"
        self._port = port
        self._target = target
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._forward)
        app.cleanup_ctx.append(self._client)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _client(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            yield

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        mode = self.mode
        body = await request.read()
        if mode == "error":
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if mode in {"slow", "hang"}:
            await asyncio.sleep(SLOW_S if mode == "slow" else 60)
        headers = {name: value for name, value in request.headers.items() if name != "Connection"}
        url = URL(f"{self._target}{request.raw_path}", encoded=True)
        try:
            async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                content = await answer.read()
        except aiohttp.ClientError:
            return web.Response(status=502)
        if mode == "error-after":
            return web.Response(status=500, text="<Error><Code>InternalError</Code></Error>")
        if mode == "reset-after" and request.transport is not None:
            request.transport.abort()
        answer_headers = {
            name: value
            for name, value in answer.headers.items()
            if name not in {"Transfer-Encoding", "Connection"}
        }
        return web.Response(status=answer.status, body=content, headers=answer_headers)
