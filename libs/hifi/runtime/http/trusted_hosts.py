"""Refuses requests that a page of another site has a browser send: by the headers Host and Origin.

A name of an attacker that is bound to this server's address (DNS rebinding) would make the browser treat the console as
part of the attacker's site. Addresses, `localhost` and names without a dot cannot be such names; others are listed.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from hifi.runtime.http.problem import Problem

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; what they return is kept from other sites by browsers."""


class TrustedHosts:
    """ASGI middleware: passes requests on whose Host is this server, and whose Origin, for changes, is allowed."""

    def __init__(self, app: ASGIApp, names: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """Wrap an app.

        Args:
            app: to pass requests on to.
            names: by which the server is reached, besides addresses and names without a dot; or URLs with them.
            origins: of other sites whose pages may send what is no GET, besides those of this server.
        """
        self._app = app
        self._origins = frozenset(origins)
        self._names = frozenset(
            _name(urlsplit(name).netloc if "://" in name else name) for name in names if name
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 or 403, or pass the request on."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal.response())(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_trusted(_name(host)):
            return Problem(
                421,
                "This server is not reached by this name. Use its address, or have the operator list the name in the "
                "settings of its hosts.",
            )
        origin = headers.get("origin")
        if (
            scope["method"] not in _SAFE
            and origin is not None
            and origin not in self._origins
            and urlsplit(origin).netloc.lower() != host.lower()
        ):
            return Problem(403, "A page of another site may not make changes here.", title="Wrong origin")
        return None

    def _is_trusted(self, name: str) -> bool:
        if not name:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return "." not in name or name in self._names
        return True


def _name(host: str) -> str:
    """The name or address of a Host header, without port and brackets; empty: it has none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def split_hosts(text: str) -> list[str]:
    """The names of a setting, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]
