"""`python -m hifi_infra.kubernetes.colours`: the service `colours` of two colours that are Helm releases."""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import aiohttp
from pydantic import Field

from hifi.delivery.colours import NAMES, Colour, ColourState
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.errors import HifiError
from hifi.runtime.http.server import listen
from hifi.runtime.service import Service, run
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.colours.colours_service import ColoursService, report_certificates
from hifi_infra.kubernetes.kubernetes_api import ApiAccess, KubernetesApi
from hifi_infra.kubernetes.release_colour import ReleaseColour
from hifi_infra.kubernetes.route_front import RouteFront

_ROUTE: Final = "route"
_READ_S: Final = 2.0


class KubernetesColoursSettings(ServiceSettings):
    """Settings of the service `colours` on Kubernetes: environment variables with the prefix `HIFI_COLOURS_`."""

    colours_port: int = Field(9500, ge=0, le=65535, description="Port on which it tells what it sees.")
    colours_route: str = Field(description="Name of the HTTPRoute that divides the requests.")
    colours_url: str = Field(description="URL of the route for senders, as it is shown.")
    colours_blue_release: str = Field("blue", description="Name of the Helm release of blue.")
    colours_blue_name: str = Field("blue-hifi", description="Beginning of the names of its resources.")
    colours_blue_kafka: str = Field(description="Bootstrap servers of its Kafka.")
    colours_green_release: str = Field("green", description="Name of the Helm release of green.")
    colours_green_name: str = Field("green-hifi", description="Beginning of the names of its resources.")
    colours_green_kafka: str = Field(description="Bootstrap servers of its Kafka.")

    def of_colour(self, name: str) -> tuple[str, str, str]:
        """Helm release, beginning of the names of its resources, and bootstrap servers of a colour."""
        return (
            getattr(self, f"colours_{name}_release"),
            getattr(self, f"colours_{name}_name"),
            getattr(self, f"colours_{name}_kafka"),
        )


async def divide(service: Service, settings: KubernetesColoursSettings) -> None:
    """Follow the record until the service stops."""
    colours = ColoursService(service, settings, listen(settings.host, settings.colours_port))
    access = ApiAccess.of_pod(os.environ)
    async with aiohttp.ClientSession() as session:
        api = KubernetesApi(session, access)
        runners, addresses, backends = {}, {}, {}
        for name in NAMES:
            release, full_name, kafka = settings.of_colour(name)
            backends[name] = f"{full_name}-ingest"
            # The chart names the route as the Service of the release's ingest.
            has_front = backends[name] == settings.colours_route
            runners[name] = ReleaseColour(api, release, has_front=has_front)
            addresses[name] = Colour(
                0,
                ColourState.IDLE,
                (f"http://{full_name}-ingest:8080",),
                f"http://{full_name}-observe:9200",
                kafka,
            )
        front = RouteFront(
            api, settings.colours_route, settings.colours_url, backends, lambda: colours.log.newest_offset
        )

        async def watch() -> None:
            """Read the route every few seconds: an upgrade may have changed it, or a Gateway does not take it."""
            while True:
                try:
                    await front.refresh()
                    service.health.unblock(_ROUTE)
                except HifiError as error:
                    service.health.block(_ROUTE, str(error))
                await asyncio.sleep(_READ_S)

        def more_work(_: ColourLoop) -> Sequence[Coroutine[Any, Any, None]]:
            """The look at the route."""
            return [watch()]

        await colours.follow(runners, [front], addresses, more_work)


if __name__ == "__main__":
    run("colours", KubernetesColoursSettings, divide, report_certificates)
