"""Every route of observe and manage times every role: allowed or refused, as this table says.

The routes are read from the applications: one that has no row here fails `test_each_route_has_a_row`.
"""

import base64
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from tests.support.observe_principal import PRINCIPALS, as_principal

from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.principal import Principals, Role
from hifi.runtime.http import server
from hifi_manage.web import api as manage_api
from hifi_observe.settings import ObserveSettings
from hifi_observe.web import api as observe_api

PUBLIC = "public"
REGISTRY = "/registry"
OBSERVE = {
    "GET /": Role.VIEWER,
    "GET /alarms": Role.VIEWER,
    "GET /control": Role.VIEWER,
    "GET /runbooks": Role.VIEWER,
    "GET /report": Role.VIEWER,
    "GET /report/document": Role.VIEWER,
    "GET /pipes/{pipe}": Role.VIEWER,
    "GET /pipes/{pipe}/colours": Role.VIEWER,
    "GET /pipes/{pipe}/dead": Role.VIEWER,
    "GET /pipes/{pipe}/minutes/{minute}": Role.VIEWER,
    "GET /static/plotly.min.js": PUBLIC,
    "GET /static/{name}": PUBLIC,
    "GET /sign-in": PUBLIC,
    "POST /sign-in": PUBLIC,
    "GET /sign-in/oidc": PUBLIC,
    "GET /sign-in/oidc/callback": PUBLIC,
    "POST /sign-in/oidc/backchannel-logout": PUBLIC,  # with a token that the provider has signed
    "POST /sign-out": PUBLIC,
    "GET /openapi.json": Role.VIEWER,
    "GET /api/v1/status": Role.VIEWER,
    "GET /api/v1/verdicts": Role.VIEWER,
    "GET /api/v1/control": Role.VIEWER,
    "GET /api/v1/pipes": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/minutes": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/colours": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/colours/history": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/series": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/recent": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/skew": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/minutes/{minute}": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/minutes/{minute}/event": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/minutes/{minute}/lost": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/dead": Role.VIEWER,
    "POST /api/v1/pipes/{pipe}/dead/replay": Role.OPERATOR,
    "GET /api/v1/report": Role.VIEWER,
    "GET /api/v1/alarms": Role.VIEWER,
    "GET /api/v1/usage": Role.VIEWER,
    "GET /api/v1/watermarks": Role.VIEWER,
    "GET /api/v1/watermarks/{pipe}": Role.VIEWER,
    "POST /api/v1/silences": Role.OPERATOR,
    "GET /api/v1/me": Role.VIEWER,
    "POST /api/v1/sign-in-links": Role.VIEWER,
}
MANAGE = {
    "GET /": Role.VIEWER,
    "GET /new": Role.VIEWER,
    "GET /pipes/{pipe}": Role.VIEWER,
    "GET /principals": Role.VIEWER,  # an empty page; the API lists principals to administrators only
    "GET /audit": Role.VIEWER,
    "GET /pipe.schema.json": Role.VIEWER,
    "GET /static/{name}": PUBLIC,
    "GET /sign-in": PUBLIC,
    "POST /sign-in": PUBLIC,
    "GET /sign-in/oidc": PUBLIC,
    "GET /sign-in/oidc/callback": PUBLIC,
    "POST /sign-in/oidc/backchannel-logout": PUBLIC,  # with a token that the provider has signed
    "POST /sign-out": PUBLIC,
    "GET /api/v1/openapi.json": Role.VIEWER,
    "GET /api/v1/pipes": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}": Role.VIEWER,
    "PUT /api/v1/pipes/{pipe}": Role.ADMIN,
    "DELETE /api/v1/pipes/{pipe}": Role.ADMIN,
    "POST /api/v1/pipes/{pipe}/pause": Role.OPERATOR,
    "POST /api/v1/pipes/{pipe}/resume": Role.OPERATOR,
    "GET /api/v1/pipes/{pipe}/versions": Role.VIEWER,
    "GET /api/v1/pipes/{pipe}/versions/{number}": Role.VIEWER,
    "POST /api/v1/pipes/{pipe}/versions/{number}/declare": Role.ADMIN,
    "GET /api/v1/pipes/{pipe}/keys": Role.VIEWER,
    "POST /api/v1/pipes/{pipe}/keys": Role.ADMIN,
    "POST /api/v1/pipes/{pipe}/keys/{key}/rotate": Role.ADMIN,
    "DELETE /api/v1/pipes/{pipe}/keys/{key}": Role.ADMIN,
    "POST /api/v1/check": Role.ADMIN,
    "POST /api/v1/try": Role.ADMIN,
    "POST /api/v1/pipes/{pipe}/rollout/{kind}": Role.OPERATOR,
    "GET /api/v1/me": Role.VIEWER,
    "POST /api/v1/sign-in-links": Role.VIEWER,
    "GET /api/v1/principals": Role.ADMIN,
    "GET /api/v1/audit": Role.VIEWER,
    "GET /registry/schemas/types": Role.VIEWER,
    "GET /registry/schemas/ids/{id}": Role.VIEWER,
    "GET /registry/schemas/ids/{id}/schema": Role.VIEWER,
    "GET /registry/schemas/ids/{id}/subjects": Role.VIEWER,
    "GET /registry/schemas/ids/{id}/versions": Role.VIEWER,
    "GET /registry/subjects": Role.VIEWER,
    "GET /registry/subjects/{subject:path}/versions/{version}/schema": Role.VIEWER,
    "GET /registry/subjects/{subject:path}/versions/{version}/referencedby": Role.VIEWER,
    "GET /registry/subjects/{subject:path}/versions/{version}": Role.VIEWER,
    "DELETE /registry/subjects/{subject:path}/versions/{version}": Role.ADMIN,
    "GET /registry/subjects/{subject:path}/versions": Role.VIEWER,
    "POST /registry/subjects/{subject:path}/versions": Role.OPERATOR,
    "POST /registry/subjects/{subject:path}": Role.VIEWER,
    "DELETE /registry/subjects/{subject:path}": Role.ADMIN,
    "POST /registry/compatibility/subjects/{subject:path}/versions/{version}": Role.VIEWER,
    "POST /registry/compatibility/subjects/{subject:path}/versions": Role.VIEWER,
    "GET /registry/config": Role.VIEWER,
    "PUT /registry/config": Role.ADMIN,
    "DELETE /registry/config": Role.ADMIN,
    "GET /registry/config/{subject:path}": Role.VIEWER,
    "PUT /registry/config/{subject:path}": Role.ADMIN,
    "DELETE /registry/config/{subject:path}": Role.ADMIN,
    "GET /registry/mode": Role.VIEWER,
    "GET /registry/mode/{subject:path}": Role.VIEWER,
    "GET /registry/": Role.VIEWER,
}
PAGES = {
    "observe": {
        path
        for path in (route.partition(" ")[2] for route in OBSERVE)
        if not path.startswith(("/api", "/open"))
    },
    "manage": {"/", "/new", "/pipes/{pipe}", "/principals", "/audit"},
}
"""Those who are not signed in are led to sign in; others get 401."""
TABLES = {"observe": OBSERVE, "manage": MANAGE}


class State(MagicMock):
    """A state whose principals were read, and which has nothing else."""

    read = True
    fresh = True
    principals = Principals()


for _principal in PRINCIPALS:
    State.principals.take(_principal.name.encode(), _principal.record().value, 0)


def application(name: str) -> Starlette:
    """An application whose handlers find nothing that works: who is let in gets any status but 401 and 403."""
    if name == "manage":
        return manage_api.application(State(), "")
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    answers = MagicMock()
    answers.reports.signed.return_value = b"{}"
    answers.reports.signature.return_value = None
    return observe_api.application(settings, answers, MagicMock(), Gate(State()), AuditLog(AsyncMock()))


def routes(app: Any, prefix: str = "") -> Iterator[str]:
    """Every route of an application as `METHOD PATH`."""
    for route in app.routes:
        if isinstance(route, Mount):
            yield from routes(route.app, prefix + route.path)
        else:
            assert isinstance(route, Route), route
            yield from (f"{method} {prefix}{route.path}" for method in (route.methods or {"any"}) - {"HEAD"})


@asynccontextmanager
async def served(name: str) -> AsyncIterator[str]:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(application(name), sock, drain_s=1):
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def path_of(route: str) -> str:
    return re.sub(r"\{[a-z]+:int\}", "1", re.sub(r"\{[a-z]+(:path)?\}", "x", route.partition(" ")[2]))


@pytest.mark.parametrize("name", TABLES)
def test_each_route_has_a_row(name: str) -> None:
    assert sorted(routes(application(name))) == sorted(TABLES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
async def test_each_route_lets_in_its_roles_and_nobody_else(name: str) -> None:
    violations = []
    connector = aiohttp.TCPConnector(force_close=True)  # a handler that fails ends its connection
    async with served(name) as url, aiohttp.ClientSession(connector=connector) as session:

        async def status(route: str, headers: dict[str, str]) -> tuple[int, str]:
            async with session.request(
                route.partition(" ")[0], url + path_of(route), headers=headers, allow_redirects=False
            ) as answer:
                return answer.status, answer.headers.get("location", "").partition("=")[0]

        for route, required_role in TABLES[name].items():
            if required_role == PUBLIC:
                if route.startswith("GET") and (await status(route, {}))[0] not in (200, 404):
                    violations.append(f"{route} is refused")
                continue
            is_page = route.partition(" ")[2] in PAGES[name]
            refusal = (303, "/sign-in?next") if is_page else (401, "")
            invalid_credentials: tuple[dict[str, str], ...] = (
                {},
                {"authorization": "Bearer wrong"},
                {"cookie": "hifi-session-1=wrong"},
            )
            violations += [
                f"{route} with {headers}: {answered}"
                for headers in invalid_credentials
                if (answered := await status(route, headers)) != refusal
            ]
            violations += [
                f"{route} by {role.value}: {answered}"
                for role in Role
                if ((answered := await status(route, as_principal(role.value)))[0] not in (303, 401, 403))
                is not role.includes(Role(required_role))
            ]
            if "{pipe}" in route and (answered := await status(route, as_principal("other")))[0] != 403:
                violations.append(f"{route} by an operator of other pipes: {answered}")
    assert violations == []


async def test_the_registry_takes_name_and_token_as_basic_authentication() -> None:
    async with served("manage") as url, aiohttp.ClientSession() as session:
        for user, is_allowed in (("viewer", True), ("admin", False)):
            text = base64.b64encode(f"{user}:token-of-viewer".encode()).decode()
            async with session.get(
                url + "/registry/schemas/types", headers={"authorization": f"Basic {text}"}
            ) as answer:
                assert (answer.status == 200) is is_allowed
