"""A real webhook of an owner on the loopback interface, which checks signatures."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from standardwebhooks import Webhook

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def secret_file(folder: Path) -> Path:
    """A file in a folder with the secret with which observe signs."""
    file = folder / "webhook_secret"
    file.write_text(f"{SECRET}\n")
    return file


@asynccontextmanager
async def hook(posted: list[dict[str, Any]]) -> AsyncIterator[str]:
    """Run it; yields its URL. What is posted with a valid signature is appended to the list."""

    async def take(request: web.Request) -> web.Response:
        posted.append(Webhook(SECRET).verify(await request.read(), dict(request.headers)))
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()
