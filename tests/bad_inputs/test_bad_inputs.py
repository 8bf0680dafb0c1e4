"""Each bad input is refused with the status and the message of table.txt, by the services over HTTP.

`HIFI_RENEW=1 pytest tests/bad_inputs` writes the table anew: read what changed in it.
"""

import io
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import aiohttp
import orjson
import pytest
from tests.bad_inputs.requests_to_ingest import bad_requests
from tests.bad_inputs.rows_of_objects import bad_objects
from tests.bad_inputs.texts_of_pipes import PIPE, bad_texts
from tests.support.ingest.ingest_app import app
from tests.support.ingest.ingest_harness import KEY, FakeProducer
from tests.support.observe_principal import PRINCIPALS, VIEWER, as_principal

from hifi.control.principals.principal import Principals
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_manage.web import api as manage_api
from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.row_format import RowFormat
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings
from hifi_observe.web.pipe_answers import PipeAnswers

TABLE = Path(__file__).parent / "table.txt"
LEAST = 300
ROW_BYTES = 500
HEAD = """\
# Bad inputs

What the services answer to each input of this folder; test_bad_inputs.py makes this table and compares it.

| Where | Input | Status | Message |
|---|---|---|---|
"""


class Refusal(NamedTuple):
    """The answer that the sender of an input gets."""

    interface: str
    name: str
    status: str
    message: str

    def row(self) -> str:
        """A line of the table."""
        cells = (re.sub(r"[\n\r]+", " ", cell).replace("|", "\\|") for cell in self)
        return (
            "| "
            + " | ".join(cell.encode("unicode_escape").decode().replace("\\\\", "\\") for cell in cells)
            + " |"
        )


def table() -> dict[str, list[str]]:
    """Interface to its rows, as the file has them."""
    rows: dict[str, list[str]] = {}
    for line in TABLE.read_text("utf-8").splitlines() if TABLE.exists() else ():
        if line.startswith("| ") and not line.startswith("| Where"):
            rows.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)
    return rows


def require(interface: str, refusals: list[Refusal]) -> None:
    """Fail unless the table has exactly these rows of an interface, and each message helps."""
    rows = [refusal.row() for refusal in refusals]
    if os.environ.get("HIFI_RENEW"):
        rows_by_interface = {**table(), interface: rows}
        TABLE.write_text(
            HEAD
            + "".join(f"{row}\n" for name in sorted(rows_by_interface) for row in rows_by_interface[name]),
            "utf-8",
        )
    assert len({(refusal.interface, refusal.name) for refusal in refusals}) == len(refusals), "a name twice"
    unhelpful = [
        refusal
        for refusal in refusals
        if len(refusal.message) < 10
        or re.search(r"Traceback|object at 0x|<class|\bNone\b|Exception|\bException\(", refusal.message)
    ]
    assert unhelpful == []
    assert rows == table().get(interface, [])


@asynccontextmanager
async def served(application: Any, **options: Any) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """An application on a port, and a client."""
    sock = server.listen("127.0.0.1", 0)
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        server.serve(application, sock, drain_s=1, **options),
        aiohttp.ClientSession(connector=connector) as client,
    ):
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", client


@pytest.mark.slow
async def test_requests_to_ingest() -> None:
    refusals = []
    asgi_app = app(FakeProducer({}))
    async with served(asgi_app, gate=asgi_app.refuse) as (url, client):
        for bad_request in bad_requests():
            key = f"{KEY}2" if "/orders/" in bad_request.path else KEY
            headers = {"authorization": f"Bearer {key}"} | bad_request.headers
            async with client.request(
                bad_request.method,
                url + bad_request.path,
                data=bad_request.body,
                headers=headers,
                skip_auto_headers=["content-type"],
            ) as answer:
                body = await answer.json(content_type=None)
                assert 400 <= answer.status < 500, (bad_request, answer.status, body)
                assert answer.content_type == "application/problem+json"
            first_event = (body.get("events") or [{}])[0]
            locations = "".join(
                f"; event {first_event[name]}" if name == "index" else f", {name} {first_event[name]}"
                for name in ("index", "line", "pointer")
                if first_event.get(name) not in (None, "")
            )
            detail = first_event.get("detail", "")
            message = f"{body['detail']}{locations}" + (
                f": {detail}" if detail and detail not in body["detail"] else ""
            )
            refusals.append(Refusal("ingest", bad_request.name, str(answer.status), message))
    require("ingest", refusals)


class State(MagicMock):
    """A state of manage with principals and no pipe."""

    read = True
    fresh = True
    principals = Principals()


for _principal in PRINCIPALS:
    State.principals.take(_principal.name.encode(), _principal.record().value, 0)


@pytest.mark.slow
async def test_texts_of_pipes() -> None:
    state = State()
    state.registry.all.return_value, state.registry.coloured, state.declared.newest = [], False, {}
    refusals = []
    async with served(manage_api.application(state, "")) as (url, client):

        async def problems(text: bytes) -> list[dict[str, Any]]:
            async with client.post(f"{url}/api/v1/check", data=text, headers=as_principal("admin")) as answer:
                assert answer.status == 200, (text, await answer.text())
                body: list[dict[str, Any]] = (await answer.json())["problems"]
                return body

        assert await problems(orjson.dumps(PIPE)) == []
        for name, text in bad_texts():
            found_problems = await problems(text)
            assert found_problems, f"{name} is accepted"
            first_problem = found_problems[0]
            location = f"{first_problem['line']}:{first_problem['column']}" + (
                f" {first_problem['where']}" if first_problem["where"] else ""
            )
            refusals.append(Refusal("pipe", name, "problem", f"{location}: {first_problem['message']}"))
    require("pipe", refusals)


OBSERVE = [
    ("GET", "/api/v1/pipes/none", None),
    ("GET", "/api/v1/pipes/none/minutes", None),
    ("GET", "/api/v1/pipes/none/dead", None),
    ("GET", "/api/v1/pipes/none/minutes/1", None),
    ("GET", "/api/v1/pipes/p/minutes?last=0", None),
    ("GET", "/api/v1/pipes/p/minutes?last=x", None),
    ("GET", "/api/v1/pipes/p/minutes?last=1e9", None),
    ("GET", "/api/v1/pipes/p/minutes?last=99999999999999999999", None),
    ("GET", "/api/v1/pipes/p/minutes?from=x", None),
    ("GET", "/api/v1/pipes/p/minutes?to=2026-13-01T00:00", None),
    ("GET", "/api/v1/pipes/p/minutes/x", None),
    ("GET", "/api/v1/pipes/p/series?last=-1", None),
    ("GET", "/api/v1/pipes/p/dead?limit=0", None),
    ("GET", "/api/v1/pipes/p/dead?limit=99999999", None),
    ("GET", "/api/v1/watermarks/none", None),
    ("GET", "/api/v1/watermarks?colour=blue", None),
    ("GET", "/api/v1/watermarks/p?colour=", None),
    ("POST", "/api/v1/silences", b""),
    ("POST", "/api/v1/silences", b"[]"),
    ("POST", "/api/v1/silences", b'{"reason": "x"}'),
    ("POST", "/api/v1/silences", b'{"reason": "x", "seconds": 0}'),
    ("POST", "/api/v1/silences", b'{"reason": "x", "seconds": 1e300}'),
    ("POST", "/api/v1/silences", b'{"reason": "x", "seconds": "x"}'),
    ("POST", "/api/v1/silences", b'{"reason": "x", "seconds": 1, "kind": "x"}'),
    ("POST", "/api/v1/silences", b'{"reason": [], "seconds": 1}'),
    ("POST", "/api/v1/pipes/p/dead/replay", b"x"),
    ("POST", "/api/v1/pipes/p/dead/replay", b'{"limit": 0}'),
    ("POST", "/api/v1/pipes/p/dead/replay", b'{"ids": []}'),
    ("POST", "/api/v1/pipes/p/dead/replay", b'{"ids": [1]}'),
    ("POST", "/api/v1/pipes/p/dead/replay", b'{"other": 1}'),
]


async def test_calls_of_observe(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer(ObserveSettings(kafka="127.0.0.1:1", stream="s"), Health("observe", "i"))
    monkeypatch.setattr(TopicCopy, "read", True)
    monkeypatch.setattr(TopicCopy, "fresh", True)
    require_pipe = PipeAnswers.require
    monkeypatch.setattr(
        PipeAnswers, "require", lambda them, name: name if name == "p" else require_pipe(them, name)
    )
    for principal in PRINCIPALS:
        observer.principals.principals.take(principal.name.encode(), principal.record().value, 0)
    refusals = []
    async with served(observer.application()) as (url, client):
        for method, path, body in OBSERVE:
            headers = VIEWER if method == "GET" else as_principal("admin")
            async with client.request(method, url + path, data=body, headers=headers) as answer:
                problem = await answer.json(content_type=None)
                assert 400 <= answer.status < 500, (path, problem)
            name = f"{method} {path}" + (f" {body.decode()}" if body is not None else "")
            refusals.append(Refusal("observe", name, str(answer.status), problem["detail"]))
    require("observe", refusals)


def test_rows_of_objects() -> None:
    refusals = []
    for file_format, name, content in bad_objects():
        batches = RowBatches(
            RowFormat(file_format, ",", "utf-8", ROW_BYTES), io.BytesIO(content), f"a.{file_format}", 0
        )
        refused_rows = [row for row in batches.next(1000) if row.reason]
        if refused_rows:
            refusals.append(
                Refusal("objects", f"{file_format}: {name}", refused_rows[0].reason, refused_rows[0].detail)
            )
    require("objects", refusals)


def test_the_table_is_long_enough() -> None:
    assert sum(map(len, table().values())) >= LEAST
