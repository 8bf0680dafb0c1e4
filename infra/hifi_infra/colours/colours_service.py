"""The service `colours`: brings about the record of two colours, and tells commands what it sees of them.

As `hifi up --colours` does it with processes: the shares at the front, which colours run, and the shift away from a
colour that has ended. It changes nothing that the record does not say.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from hifi.delivery.colours import Colour, Colours, FrontAddress
from hifi.kafka.certificate_reports import report_to
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import ControlTopics
from hifi.runtime.clock import wait_at_most
from hifi.runtime.http.server import serve
from hifi.runtime.service import Service
from hifi_infra.colours.colour_app import SeenColour, colour_app
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop, ColourRunner
from hifi_infra.colours.colours_at_start import colours_at_start
from hifi_infra.colours.front import Front
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.served_colours import ServedColours

_KAFKA: Final = "kafka"
_FRONT: Final = "front"
_BY: Final = "colours"


class KeptColour(ColourRunner, SeenColour, Protocol):
    """A colour that the service runs, and tells of."""


class ColoursService:
    """The service, on any platform. Make it before anything is awaited: it blocks readiness until Kafka was read.

    Args:
        service: that it is.
        settings: with the control plane's Kafka as its Kafka.
        sock: where it tells what it sees.
    """

    def __init__(self, service: Service, settings: ServiceSettings, sock: socket.socket) -> None:
        service.health.block(_KAFKA, "the control plane's Kafka has not been read yet")
        service.health.block(_FRONT, "the front does not answer yet")
        self._service = service
        self._settings = settings
        self._sock = sock
        self._runtime = ServedColours(f"http://127.0.0.1:{sock.getsockname()[1]}")
        self.log = ColourLog(settings.kafka, ControlTopics(f"{settings.stream}-control"), settings.instance)

    def operations(self, actor: str) -> ColourOperations:
        """The operations of an actor of this name."""
        return ColourOperations(self._settings.kafka, self._settings.topics, self._runtime, actor)

    async def follow(
        self,
        runners: Mapping[str, KeptColour],
        fronts: Sequence[Front],
        addresses: Mapping[str, Colour],
        more_work: Callable[[ColourLoop], Sequence[Coroutine[Any, Any, None]]],
    ) -> None:
        """Follow the record until the service stops.

        Args:
            runners: of the colours by name.
            fronts: that divide the requests.
            addresses: name to colour with its addresses; the record says the rest.
            more_work: makes what runs beside.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.log.stop)
            if not await self._service.unless_stopped(self.log.start()):
                return
            addresses_of_fronts = tuple(FrontAddress(front.url, front.stats) for front in fronts)

            async def at_start(before: Colours | None) -> Colours:
                """The record of this start."""
                now_ms = time.time_ns() // 1_000_000
                return colours_at_start(before, addresses, addresses_of_fronts, now_ms, _BY)

            await self.log.write(at_start)
            self._service.health.unblock(_KAFKA)
            kafkas = {name: colour.kafka for name, colour in addresses.items()}
            await stack.enter_async_context(serve(colour_app(runners, kafkas, fronts), self._sock, drain_s=1))
            loop = ColourLoop(self.log, runners, fronts, self.operations, _BY)
            self._service.health.state = "running"
            tasks = [asyncio.create_task(work) for work in (loop.follow(), *more_work(loop))]
            await self._until_stopped(fronts, tasks)

    async def _until_stopped(self, fronts: Sequence[Front], tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the service stops, and end the tasks then; an unexpected error of theirs is raised."""
        try:
            while not self._service.stopping.is_set():
                await wait_at_most(self._service.stopping, 1)
                if all(front.running for front in fronts):
                    self._service.health.unblock(_FRONT)
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def report_certificates(service: Service, settings: ServiceSettings) -> None:
    """Report the certificates of the service to the control plane, until cancelled."""
    topic = ControlTopics(f"{settings.stream}-control").certificates
    await report_to(topic, settings.kafka, settings.instance, settings.certificate_days, service.health)
