"""The web console: pages whose script calls the API in the session of the person who has signed in."""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hifi.control.principals.gate import Needs
from hifi.control.principals.principal import Principal, Role
from hifi.control.principals.sign_in import SignIn
from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http.openapi import json_response
from hifi_manage.web.operations import PIPE_SCHEMA

_API: Final = "/api/v1/openapi.json"
NEEDS: Final[Mapping[str, Needs]] = {
    name: Needs(Role.VIEWER)
    for name in (
        "console_pipes",
        "console_new",
        "console_pipe",
        "console_principals",
        "console_audit",
        "schema",
    )
}
"""Name of a page to what it needs; its script shows what the API returns to the role."""


class ManagementConsole:
    """Routes of the console.

    Args:
        observe_url: of observe's console; empty: there is none.
        view_url: of view's console; empty: there is none.
    """

    def __init__(self, observe_url: str, view_url: str = "") -> None:
        self._observe_url = observe_url.rstrip("/")
        self.pages = ConsolePages(
            "hifi_manage.web", "manage", navigation(self._observe_url or None, "", _API, view_url or None)
        )

    def routes(self, sign_in: SignIn) -> list[Route]:
        """Routes of the pages, their static files and the JSON Schema of a pipe."""
        return [
            sign_in.page("/", "console_pipes", self.console_pipes, NEEDS),
            sign_in.page("/new", "console_new", self.console_new, NEEDS),
            sign_in.page("/pipes/{pipe}", "console_pipe", self.console_pipe, NEEDS),
            sign_in.page("/principals", "console_principals", self.console_principals, NEEDS),
            sign_in.page("/audit", "console_audit", self.console_audit, NEEDS),
            sign_in.api("/pipe.schema.json", "schema", self.schema, NEEDS, "GET"),
            Route("/static/{name}", self.static, name="static"),
        ]

    async def console_pipes(self, _: Request, principal: Principal) -> Response:
        """All pipes."""
        return self._page("pipes.html", "Declarations", principal)

    async def console_new(self, _: Request, principal: Principal) -> Response:
        """Declare a new pipe."""
        return self._page("pipe.html", "New pipe", principal, pipe="", observe=self._observe_url)

    async def console_pipe(self, request: Request, principal: Principal) -> Response:
        """One pipe: its declaration, its rollout, its destinations and its versions."""
        name = request.path_params["pipe"]
        return self._page("pipe.html", name, principal, pipe=name, observe=self._observe_url)

    async def console_principals(self, _: Request, principal: Principal) -> Response:
        """The principals."""
        return self._page("principals.html", "Principals", principal)

    async def console_audit(self, _: Request, principal: Principal) -> Response:
        """The audit."""
        return self._page("audit.html", "Audit", principal)

    async def schema(self, _: Request, __: Principal) -> Response:
        """The JSON Schema of a pipe."""
        return json_response(PIPE_SCHEMA)

    async def static(self, request: Request) -> Response:
        """Style sheets and scripts."""
        return self.pages.static(request.path_params["name"])

    def _page(self, template: str, title: str, principal: Principal, **values: str) -> Response:
        return self.pages.page(template, title, values, account=f"{principal.name} ({principal.role.value})")
