"""A page of another site cannot use a console or API through a browser."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hifi.runtime.http.trusted_hosts import TrustedHosts


async def _answer(_: Request) -> Response:
    return PlainTextResponse("data")


APP = Starlette(
    routes=[Route("/", _answer, methods=["GET", "POST"])],
    middleware=[Middleware(TrustedHosts, names=["https://Console.example:8443/x", "other.example"])],
)


async def _ask(method: str, *headers: tuple[str, str]) -> tuple[int, bytes]:
    """Status and body of the app, which is also reached as console.example."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    encoded_headers = [(name.encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": method, "path": "/", "query_string": b"", "headers": encoded_headers}
    await APP(scope, receive, send)
    return messages[0]["status"], b"".join(message.get("body", b"") for message in messages)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8090", 200),
        ("[::1]:8090", 200),
        ("10.1.2.3", 200),
        ("localhost:8090", 200),
        ("observe:9200", 200),
        ("console.example:8443", 200),
        ("CONSOLE.example.", 200),
        ("other.example", 200),
        ("rebind.attacker.example:8090", 421),
        ("127.0.0.1.attacker.example", 421),
        ("console.example.attacker.example", 421),
        ("127.0.0.1@attacker.example", 421),
        ("", 421),
        ("[::1", 421),
    ],
)
async def test_a_name_that_is_not_the_servers_is_refused(host: str, status: int) -> None:
    answer_status, body = await _ask("GET", ("host", host))
    assert answer_status == status
    assert (body == b"data") == (status == 200)


async def test_a_request_with_two_hosts_is_refused() -> None:
    assert (await _ask("GET", ("host", "localhost"), ("host", "attacker.example")))[0] == 421


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://127.0.0.1:8090", 200),
        ("http://127.0.0.1:8091", 403),
        ("https://attacker.example", 403),
        ("null", 403),
        ("http://127.0.0.1:8090.attacker.example", 403),
    ],
)
async def test_a_change_comes_from_a_page_of_the_same_server(origin: str | None, status: int) -> None:
    headers = [("host", "127.0.0.1:8090"), *([] if origin is None else [("origin", origin)])]
    assert (await _ask("POST", *headers))[0] == status
    assert (await _ask("GET", *headers))[0] == 200
