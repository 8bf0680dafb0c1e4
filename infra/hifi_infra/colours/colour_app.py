"""State of two colours and their fronts of the service `colours`, over HTTP for commands inside the network."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.errors import HifiError, Retryable
from hifi.runtime.http.problem import Problem
from hifi_infra.colours.front import Front
from hifi_infra.colours.served_colours import COLOUR, FRONTS


class SeenColour(Protocol):
    """A colour: see `hifi_infra.containers.project_runner.ProjectRunner`."""

    @property
    def no_sleep(self) -> str:
        """Why the service cannot end and start it, and who can; empty: it can."""

    async def is_running(self) -> bool:
        """Whether any of its processes runs."""

    async def waits_for(self) -> list[str]:
        """Conditions that it waits for before all of its services are ready."""


def colour_app(
    colours: Mapping[str, SeenColour], kafkas: Mapping[str, str], fronts: Sequence[Front]
) -> Starlette:
    """The API as an ASGI app. It changes nothing.

    Args:
        colours: by name.
        kafkas: colour to the bootstrap servers of its Kafka.
        fronts: that divide the requests.
    """

    async def colour(request: Request) -> Response:
        """One colour."""
        name = request.path_params["name"]
        if name not in colours:
            raise Problem(404, f"There is no colour {name}.")
        try:
            is_running, conditions = await colours[name].is_running(), await colours[name].waits_for()
        except Retryable as error:
            raise Problem(503, str(error)) from None
        state = {
            "runs": is_running,
            "waits_for": conditions,
            "kafka": kafkas[name] if is_running else "",
            "no_sleep": colours[name].no_sleep,
        }
        return Response(orjson.dumps(state), media_type="application/json")

    async def shares(_: Request) -> Response:
        """URL of each front to the shares in force there."""
        try:
            shares = {front.url: await front.shares() for front in fronts}
        except HifiError as error:
            raise Problem(503, str(error)) from None
        return Response(orjson.dumps(shares), media_type="application/json")

    async def problem(_: Request, error: Exception) -> Response:
        """A `Problem` as a response."""
        assert isinstance(error, Problem)
        return error.response()

    handlers: dict[Any, Any] = {Problem: problem}
    routes = [Route(COLOUR, colour, methods=["GET"]), Route(FRONTS, shares, methods=["GET"])]
    return Starlette(routes=routes, exception_handlers=handlers)
