"""An HTTP destination within the process of the run, which fails on request and keeps what it accepted."""

import asyncio
import json
import time
from decimal import Decimal
from typing import Any, Final

from aiohttp import web

MODES: Final = ("error", "slow", "hang", "reset-after")
_SLOW_S: Final = 1.0


class HttpDestination:
    """Accepts POSTs to `/PIPE`. `mode` is how it behaves: "ok" or one of `MODES`."""

    def __init__(self, port: int) -> None:
        self.url: Final = f"http://127.0.0.1:{port}"
        self.mode = "ok"
        self.rows: dict[str, list[dict[str, Any]]] = {}
        """Pipe to the data of each request that was answered with 2xx."""
        self.arrivals: list[dict[str, Any]] = []
        """Lines of a request log, as `tests.chaos.verification` reads them; `id` is the CloudEvents id."""
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_post("/{pipe}", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        mode, pipe = self.mode, request.match_info["pipe"]
        data = json.loads(await request.read(), parse_float=Decimal)
        is_clean = mode in {"ok", "slow", "reset-after"}
        line = {"to": "http", "id": request.headers["ce-id"], "data_id": data["id"], "mode": mode}
        ambiguous = mode == "reset-after"
        self.arrivals.append(line | {"at_s": time.time(), "clean": is_clean, "ambiguous": ambiguous})
        if is_clean:
            self.rows.setdefault(pipe, []).append(data)
        if mode == "error":
            return web.Response(status=503)
        if mode in {"slow", "hang"}:
            await asyncio.sleep(_SLOW_S if mode == "slow" else 60)
        if ambiguous and request.transport is not None:
            request.transport.abort()
        return web.Response(status=204)
