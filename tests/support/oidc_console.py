"""A console on which people sign in with a provider, with a copy of the principals that the test writes."""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from unittest.mock import patch

import aiohttp
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from yarl import URL

from hifi.control.principals.gate import Gate, Needs
from hifi.control.principals.oidc.login import configured_login
from hifi.control.principals.principal import Principal, Principals, RevokedPerson, Role
from hifi.control.principals.sign_in import SignIn, link_response
from hifi.runtime.clock import now_us
from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http import server
from hifi.runtime.http.problem import Problem
from hifi.runtime.http.trusted_hosts import TrustedHosts

NEEDS = {
    "page": Needs(Role.VIEWER, fresh=False),
    "pipe": Needs(Role.VIEWER, fresh=False),
    "change": Needs(Role.OPERATOR),
    "link": Needs(Role.VIEWER),
}


@dataclass
class Copy:
    """A copy of the topic, as the test has it."""

    principals: Principals = field(default_factory=Principals)
    read: bool = True
    fresh: bool = True

    def revoke_person(self, name: str) -> None:
        """Take the record that revokes a person."""
        self.principals.take(name.encode(), RevokedPerson(name, "test", now_us()).record().value, 0)

    def restore_person(self, name: str) -> None:
        """Take the record that lets a person sign in again."""
        self.principals.take(name.encode(), None, 0)


@dataclass
class Console:
    """A console that runs."""

    url: str
    copy: Copy


@contextlib.asynccontextmanager
async def console(settings: Mapping[str, str], port: int = 0, url: str = "") -> AsyncIterator[Console]:
    """Run a console with settings `HIFI_OIDC_…`; `url`: as browsers see it."""
    copy = Copy()
    gate = Gate(copy)
    with patch.dict(os.environ, {f"HIFI_OIDC_{name}": value for name, value in settings.items()}):
        login = configured_login()

    async def show_principal(_: Request, principal: Principal) -> Response:
        return JSONResponse(principal.json())

    async def link(request: Request, principal: Principal) -> Response:
        return link_response(gate, request, principal)

    async def problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    pages = ConsolePages("hifi_observe.web", "test", navigation("", None, "/api"))
    sign_in = SignIn(gate, pages, login, url)
    app = Starlette(
        routes=[
            sign_in.page("/", "page", show_principal, NEEDS),
            sign_in.page("/pipes/{pipe}", "pipe", show_principal, NEEDS),
            sign_in.api("/pipes/{pipe}/change", "change", show_principal, NEEDS, "POST"),
            sign_in.api("/change", "change", show_principal, NEEDS, "POST"),
            sign_in.api("/link", "link", link, NEEDS, "POST"),
            *sign_in.routes(),
        ],
        exception_handlers={Problem: problem},
        middleware=[Middleware(TrustedHosts)],
    )
    sock = server.listen("127.0.0.1", port)
    async with server.serve(app, sock, drain_s=1):
        yield Console(f"http://127.0.0.1:{sock.getsockname()[1]}", copy)


def new_browser(*secure: str) -> aiohttp.ClientSession:
    """A browser without cookies; `secure`: URLs on loopback that get secure cookies, as browsers send them."""
    origins = [URL(url).origin() for url in secure]
    jar = aiohttp.CookieJar(unsafe=True, quote_cookie=False, treat_as_secure_origin=origins)
    return aiohttp.ClientSession(cookie_jar=jar)


async def fetched(
    browser: aiohttp.ClientSession, url: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[int, str, Mapping[str, str]]:
    """Status, text and headers of an answer, without following redirects."""
    async with browser.request(method, url, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.text(), answer.headers
