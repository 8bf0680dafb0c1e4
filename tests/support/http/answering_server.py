"""A server that gives each request to one handler."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def answering_server(handle: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Run a server at a free port; the URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "localhost", 0, ssl_context=tls).start()
        yield f"{'http' if tls is None else 'https'}://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
