"""observe: every topic > books > minutes, alarms, API and console. It only reads what the events travel on."""

import asyncio
import contextlib

from hifi import log
from hifi.http import server
from hifi.service import Service, run
from hifi_observe.observatory import Observatory
from hifi_observe.settings import ObserveSettings
from hifi_observe.web.api import application

logger = log.get(__name__)


async def observe(service: Service, settings: ObserveSettings) -> None:
    """Observe until the service stops."""
    observatory = Observatory(settings, service.health)
    sock = server.listen(settings.observe_host, settings.observe_port)
    async with server.serve(application(observatory), sock, drain_s=2):
        logger.info("console", url=f"http://{settings.observe_host}:{sock.getsockname()[1]}/")
        if not await service.unless_stopped(observatory.start()):
            return
        service.health.state = "running"
        running = asyncio.create_task(observatory.run())
        stopping = asyncio.create_task(service.stopping.wait())
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if running.done():
            running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    await observatory.stop()


def main() -> None:
    """The program `hifi-observe`."""
    run("observe", ObserveSettings, observe)


if __name__ == "__main__":
    main()
