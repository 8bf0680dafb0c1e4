"""A destination that misbehaves on request, and logs every request that it receives.

Run as a file: `python faulty_destination.py PORT LOG`. It answers a POST to `/NAME` by the mode of NAME; a PUT to
`/mode/NAME` with a mode as body sets it. LOG gets one line of JSON a request: `to`, `id`, `key`, `n`, `at_s`, `mode`,
`clean` (a 2xx was sent), `ambiguous` (and the connection was reset after it, so the answer may not have arrived).
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from aiohttp import web

SLOW_S = 0.8
LATE_S = 2.5
"""Longer than the time-out of 2 s in the chaos pipe."""


class FaultyDestination:
    """Answers by mode, and logs each request."""

    def __init__(self, log: TextIO) -> None:
        self._book = log
        self._modes: dict[str, str] = {}
        self._retried: set[str] = set()

    async def set_mode(self, request: web.Request) -> web.Response:
        """PUT /mode/NAME."""
        self._modes[request.match_info["name"]] = (await request.text()).strip()
        return web.Response()

    async def take(self, request: web.Request) -> web.StreamResponse:
        """POST /NAME."""
        name = request.match_info["name"]
        mode = self._modes.get(name, "ok")
        event = json.loads(await request.read())
        answer = getattr(self, "_" + mode.replace("-", "_"))
        is_clean = mode in {"ok", "slow", "reset-after"} or (
            mode == "retry-after" and event["id"] in self._retried
        )
        line = {
            "to": name,
            "id": event["id"],
            "key": event["key"],
            "n": event["n"],
            "at_s": time.time(),
            "mode": mode,
        }
        line |= {"clean": is_clean, "ambiguous": mode == "reset-after"}
        self._book.write(json.dumps(line) + "\n")
        self._book.flush()
        response: web.StreamResponse = await answer(request, event["id"])
        return response

    async def _ok(self, *_: Any) -> web.Response:
        return web.Response(status=204)

    async def _slow(self, *_: Any) -> web.Response:
        await asyncio.sleep(SLOW_S)
        return web.Response(status=204)

    async def _late(self, *_: Any) -> web.Response:
        await asyncio.sleep(LATE_S)
        return web.Response(status=204)

    async def _hang(self, *_: Any) -> web.Response:
        await asyncio.sleep(60)
        return web.Response(status=204)

    async def _error(self, *_: Any) -> web.Response:
        return web.Response(status=500)

    async def _refuse(self, *_: Any) -> web.Response:
        return web.Response(status=400)

    async def _retry_after(self, _: web.Request, event: str) -> web.Response:
        if event in self._retried:
            return web.Response(status=204)
        self._retried.add(event)
        return web.Response(status=429, headers={"Retry-After": "1"})

    async def _reset(self, request: web.Request, *_: Any) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _silent(self, request: web.Request, *_: Any) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async def _reset_after(self, request: web.Request, *_: Any) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await asyncio.sleep(0)
        request.transport.abort()
        return web.Response()

    async def _truncate(self, request: web.Request, *_: Any) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 2")
        request.transport.close()
        return web.Response()


async def serve(port: int, log: TextIO) -> None:
    """Serve until SIGTERM."""
    destination = FaultyDestination(log)
    app = web.Application()
    app.router.add_put("/mode/{name}", destination.set_mode)
    app.router.add_post("/{name}", destination.take)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await runner.cleanup()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
        asyncio.run(serve(int(sys.argv[1]), file))
