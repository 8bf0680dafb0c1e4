"""The connector that hifi declares to Kafka Connect. Kafka Connect is a stand-in."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source import connector as connector_module
from hifi_debezium.source.connector import Connector, slot_name

names = st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True)


@given(st.lists(st.tuples(names, names), min_size=2, max_size=20, unique=True))
def test_each_pipe_has_a_slot_of_its_own(pipes: list[tuple[str, str]]) -> None:
    slots = [slot_name(stream, pipe) for stream, pipe in pipes]
    assert len(set(slots)) == len(slots)
    assert all(re.fullmatch(r"hifi_[a-z0-9_]{1,58}", slot) for slot in slots)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("shop", "eu-orders"), ("shop-eu", "orders")),
        (("shop", "a" * 60), ("shop", "a" * 59 + "b")),
        (("shop", "eu-orders"), ("shop-eu-orders", "x")),
    ],
)
def test_pipes_with_similar_names_have_different_slots(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    assert slot_name(*first) != slot_name(*second)


def test_a_plain_name_stays_readable() -> None:
    assert slot_name("hifi", "flights") == "hifi_hifi_flights"


class KafkaConnect:
    """Keeps configurations."""

    def __init__(self) -> None:
        self.configs: dict[str, Any] = {}
        self.wants_login = self.is_busy = False
        self.app = web.Application(middlewares=[self._require_login])
        self.app.router.add_get("/connectors", self._list)
        self.app.router.add_get("/connectors/{name}/config", self._get)
        self.app.router.add_put("/connectors/{name}/config", self._put)

    @web.middleware
    async def _require_login(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse a request without login as Kafka Connect does: with a text that it calls JSON."""
        if self.wants_login and "Authorization" not in request.headers:
            return web.Response(
                status=401, body=b"User cannot access the resource.", content_type="application/json"
            )
        return await handler(request)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(
            {name: {"info": {"config": config}} for name, config in self.configs.items()}
        )

    async def _get(self, request: web.Request) -> web.Response:
        config = self.configs.get(request.match_info["name"])
        if self.is_busy:
            return web.json_response({"message": "a rebalance is in progress"}, status=409)
        return web.json_response(config or {"message": "none"}, status=200 if config else 404)

    async def _put(self, request: web.Request) -> web.Response:
        self.configs[request.match_info["name"]] = await request.json()
        return web.json_response({}, status=201)


@pytest.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[KafkaConnect, DebeziumSource]]:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "loopback,database=db:5432,database=another:5432")
    connect = KafkaConnect()
    async with TestServer(connect.app) as server:
        yield (
            connect,
            DebeziumSource.model_validate(
                {
                    "kind": "debezium",
                    "connect": f"http://127.0.0.1:{server.port}",
                    "bootstrap": "127.0.0.1:9092",
                    "topic": "changes.flights",
                    "database": {
                        "host": "db",
                        "name": "shop",
                        "user": "hifi",
                        "password_file": "/etc/hifi/shop",
                    },
                    "tables": ["public.flights"],
                }
            ),
        )


async def test_tables_that_are_added_to_a_connector_are_known_before_it_is_changed(
    connect: tuple[KafkaConnect, DebeziumSource],
) -> None:
    stand_in, source = connect
    first_connector = Connector(
        "s", "p", source.model_copy(update={"tables": ["public.flights", "public.a_b"]})
    )
    assert await first_connector.added_tables() == [], "there is none yet"
    await first_connector.declare()
    tables = ["PUBLIC.flights", "public.others", "public.a_b"]
    both = Connector("s", "p", source.model_copy(update={"tables": tables}))
    assert await both.added_tables() == ["public.others"]
    await both.declare()
    assert await both.added_tables() == []
    assert await first_connector.added_tables() == []
    stand_in.is_busy = True
    with pytest.raises(Retryable):
        await both.added_tables()


@pytest.mark.parametrize("host", ["db", "10.1.2.3", "169.254.169.254"])
async def test_a_database_that_the_pipe_may_not_reach_is_not_declared(
    connect: tuple[KafkaConnect, DebeziumSource], monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    connect_server, source = connect
    database = source.database.model_copy(update={"host": host})
    source = source.model_copy(update={"database": database})
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"connect=loopback,flights=database={host}:5432")
    with pytest.raises(Misconfigured, match=f"add orders=database={host}:5432"):
        await Connector("hifi", "orders", source).declare()
    assert connect_server.configs == {}
    await Connector("hifi", "flights", source).declare()
    assert list(connect_server.configs) == ["hifi.flights"]


async def test_a_slot_that_belongs_to_another_connector_is_refused(
    connect: tuple[KafkaConnect, DebeziumSource],
) -> None:
    connect_server, source = connect
    connector = Connector("hifi", "flights", source)
    connect_server.configs["other.flights"] = connector.config()
    with pytest.raises(
        Misconfigured, match=r"slot hifi_hifi_flights .* belongs to the connector other\.flights"
    ):
        await connector.declare()
    assert list(connect_server.configs) == ["other.flights"]
    connect_server.configs["other.flights"]["database.hostname"] = "another"
    await connector.declare()
    await connector.declare()
    assert connect_server.configs["hifi.flights"] == connector.config()


async def test_without_a_login_that_kafka_connect_wants_the_operator_learns_which_setting_has_it(
    connect: tuple[KafkaConnect, DebeziumSource], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect_server, source = connect
    connect_server.wants_login = True
    connector = Connector("hifi", "flights", source)
    with pytest.raises(Misconfigured, match="put them into HIFI_CONNECT_CREDENTIALS_FILE of collect"):
        await connector.declare()
    (tmp_path / "login").write_text(f"{source.connect} hifi secret\n")
    monkeypatch.setenv("HIFI_CONNECT_CREDENTIALS_FILE", str(tmp_path / "login"))
    await connector.declare()
    assert list(connect_server.configs) == ["hifi.flights"]


async def test_a_connector_is_watched_on_after_any_error(
    connect: tuple[KafkaConnect, DebeziumSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = connect
    connector = Connector("hifi", "orders", source)
    answers: list[Exception | None] = [
        Misconfigured("the file is being written"),
        KeyError("connector"),
        None,
    ]
    warnings: list[str | None] = []
    is_watched = asyncio.Event()

    async def failure() -> str | None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return None

    def warn(_: str, reason: str | None) -> None:
        warnings.append(reason)
        if not answers:
            is_watched.set()

    monkeypatch.setattr(connector_module, "_WATCH_S", 0)
    monkeypatch.setattr(connector, "_failure", failure)
    watching = asyncio.create_task(connector.watch(warn))
    await asyncio.wait_for(is_watched.wait(), 10)
    watching.cancel()
    assert [reason is not None for reason in warnings[:3]] == [True, True, False]
    assert "the file is being written" in str(warnings[0])
