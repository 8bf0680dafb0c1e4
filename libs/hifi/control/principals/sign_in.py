"""The pages of a console on which people sign in and out, with a token or with a link that works once."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Final
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from typing_extensions import TypedDict

from hifi.control.principals.gate import Gate, Needs, cookie_name
from hifi.control.principals.principal import Principal
from hifi.control.principals.sessions import SESSION_S
from hifi.runtime.clock import now_us
from hifi.runtime.console.console_pages import ConsolePages
from hifi.runtime.http.openapi import Operation, json_response
from hifi.runtime.http.problem import Problem

PATH: Final = "/sign-in"
_BODY_BYTES: Final = 4096


class LinkJson(TypedDict):
    """A link that opens the console signed in."""

    path: Annotated[str, Field(description="To be appended to the URL of the console.")]


Handler = Callable[[Request, Principal], Awaitable[Response]]


def link_response(gate: Gate, principal: Principal) -> Response:
    """A link that opens the console signed in as a principal."""
    answer: LinkJson = {"path": f"{PATH}#{gate.sessions.new_link(principal)}"}
    return json_response(answer)


class SignIn:
    """Routes of the pages, and guards of all others.

    Args:
        gate: of the service.
        pages: of its console.
    """

    def __init__(self, gate: Gate, pages: ConsolePages) -> None:
        self._gate = gate
        self._pages = pages

    def routes(self) -> list[BaseRoute]:
        """Routes to sign in and out."""
        return [
            Route(PATH, self.sign_in, methods=["GET"], name="sign_in"),
            Route(PATH, self.sign_in_with, methods=["POST"], name="sign_in_with"),
            Route("/sign-out", self.sign_out, methods=["POST"], name="sign_out"),
        ]

    def operations(
        self, operations: Iterable[Operation], api: object, needs: Mapping[str, Needs]
    ) -> list[BaseRoute]:
        """A route of each operation of an API, whose handler is the method with its name."""
        return [
            self.api(operation.path, operation.name, getattr(api, operation.name), needs, operation.method)
            for operation in operations
        ]

    def api(self, path: str, name: str, handler: Handler, needs: Mapping[str, Needs], method: str) -> Route:
        """A route of the API: others than principals of its role get 401 or 403."""

        async def guarded(request: Request) -> Response:
            """Handle the request as its principal."""
            return await handler(request, self._gate.principal(request, needs[name]))

        assert name in needs
        return Route(path, guarded, methods=[method], name=name)

    def page(self, path: str, name: str, handler: Handler, needs: Mapping[str, Needs]) -> Route:
        """A route of a page: whoever is not signed in is sent to the page to sign in."""

        async def guarded(request: Request) -> Response:
            """Show the page to its principal."""
            try:
                principal = self._gate.principal(request, needs[name])
            except Problem as problem:
                if problem.status == 401:
                    query = f"?{request.url.query}" if request.url.query else ""
                    return RedirectResponse(f"{PATH}?next={quote(request.url.path + query)}", 303)
                return self._pages.page(
                    "refused.html", problem.title, {"detail": problem.detail}, {}, problem.status
                )
            return await handler(request, principal)

        assert name in needs
        return Route(path, guarded, methods=["GET"], name=name)

    async def sign_in(self, request: Request) -> Response:
        """The page to sign in."""
        return self._page(_local(request.query_params.get("next", "/")))

    async def sign_in_with(self, request: Request) -> Response:
        """Begin a session with a token, or with the code of a link."""
        fields = await _fields(request)
        next_page = _local(fields.get("next", "/"))
        try:
            self._gate.require_read(fresh=False)
        except Problem as problem:
            return self._page(next_page, problem.detail, problem.status)
        if "origin" not in request.headers:
            return self._page(next_page, "The browser does not say from which page this comes.", 403)
        if code := fields.get("code", ""):
            principal = self._gate.sessions.redeem(code, now_us())
            why = "The link was used before, or is older than an hour."
        else:
            principal = self._gate.of_token(fields.get("token", "").strip())
            why = "The token is unknown, has expired or was revoked."
        if principal is None:
            return self._page(next_page, why, 401)
        response = RedirectResponse(next_page, 303)
        response.set_cookie(
            cookie_name(request),
            self._gate.sessions.begin(principal),
            max_age=int(SESSION_S),
            secure=request.headers["origin"].startswith("https:"),
            httponly=True,
            samesite="lax",
        )
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        name = cookie_name(request)
        if session := request.cookies.get(name):
            self._gate.sessions.end(session)
        response = RedirectResponse(PATH, 303)
        response.delete_cookie(name, httponly=True, samesite="lax")
        return response

    def _page(self, following: str, why: str = "", status: int = 200) -> Response:
        return self._pages.page("sign-in.html", "Sign in", {"next": following, "why": why}, {}, status)


def _local(target: str) -> str:
    """A path of this server; others are replaced by `/`, since a link could lead to another site."""
    parts = urlsplit(target)
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc
    return target if is_local and target.isprintable() else "/"


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form.

    Raises:
        Problem: 413, it is too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY_BYTES:
            raise Problem(413, f"A form may have {_BODY_BYTES} bytes.")
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
