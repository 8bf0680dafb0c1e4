"""The web console: pages whose script calls the API with the token of the person who has signed in.

The pages themselves hold no data and need no token.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http.openapi import json_response
from hifi_manage.web.operations import PIPE_SCHEMA

_API: Final = "/api/v1/openapi.json"


class ManagementConsole:
    """Routes of the console.

    Args:
        observe_url: of observe's console; empty: there is none.
    """

    def __init__(self, observe_url: str) -> None:
        self._observe = observe_url.rstrip("/")
        self._pages = ConsolePages("hifi_manage.web", "manage", navigation(self._observe or None, "", _API))

    def routes(self) -> list[Route]:
        """Routes of the pages, their static files and the JSON Schema of a pipe."""
        return [
            Route("/", self.pipes),
            Route("/new", self.new),
            Route("/pipes/{pipe}", self.pipe),
            Route("/principals", self.principals),
            Route("/audit", self.audit),
            Route("/pipe.schema.json", self.schema),
            Route("/static/{name}", self.static),
        ]

    async def pipes(self, _: Request) -> Response:
        """All pipes."""
        return self._pages.page("pipes.html", "Declarations", {})

    async def new(self, _: Request) -> Response:
        """Declare a new pipe."""
        return self._pages.page("pipe.html", "New pipe", {"pipe": "", "observe": self._observe})

    async def pipe(self, request: Request) -> Response:
        """One pipe: its declaration, its rollout, its destinations and its versions."""
        name = request.path_params["pipe"]
        return self._pages.page("pipe.html", name, {"pipe": name, "observe": self._observe})

    async def principals(self, _: Request) -> Response:
        """The principals."""
        return self._pages.page("principals.html", "Principals", {})

    async def audit(self, _: Request) -> Response:
        """The audit."""
        return self._pages.page("audit.html", "Audit", {})

    async def schema(self, _: Request) -> Response:
        """The JSON Schema of a pipe."""
        return json_response(PIPE_SCHEMA)

    async def static(self, request: Request) -> Response:
        """Style sheets and scripts."""
        return self._pages.static(request.path_params["name"])
