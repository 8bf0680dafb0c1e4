"""An outside destination that misbehaves when told to, and writes down every request that it got.

Run as a file: `python destination.py PORT BOOK`. A POST to `/NAME` is answered as `/NAME`'s mode says; a PUT to
`/mode/NAME` with a mode as its body changes it. BOOK gets one line of JSON a request: `to`, `id`, `key`, `n`, `at_s`,
`mode`, `clean` (a 2xx was answered), `ambiguous` (and the connection reset behind it, so the answer may not have come).
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
"""Above the time-out of 2 s that the chaos pipe declares."""


class Destination:
    """Modes and the book."""

    def __init__(self, book: TextIO) -> None:
        self._book = book
        self._modes: dict[str, str] = {}
        self._told_off: set[str] = set()

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
        clean = mode in {"ok", "slow", "reset-after"} or (
            mode == "retry-after" and event["id"] in self._told_off
        )
        line = {
            "to": name,
            "id": event["id"],
            "key": event["key"],
            "n": event["n"],
            "at_s": time.time(),
            "mode": mode,
        }
        line |= {"clean": clean, "ambiguous": mode == "reset-after"}
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
        if event in self._told_off:
            return web.Response(status=204)
        self._told_off.add(event)
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
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        request.transport.abort()
        return web.Response()

    async def _truncate(self, request: web.Request, *_: Any) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 2")  # type: ignore[attr-defined]
        request.transport.close()
        return web.Response()


async def serve(port: int, book: TextIO) -> None:
    """Until SIGTERM."""
    destination = Destination(book)
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
