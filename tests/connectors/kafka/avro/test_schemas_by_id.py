"""Only what the registry itself says about an id ends in a dead letter; everything else is waited for."""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.support.http.answering_server import answering_server

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Rejected, Retryable
from hifi_kafka.avro.schemas_by_id import SchemasById
from hifi_kafka.avro.wire_format import header, schema_id


def answer(status: int, body: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body if isinstance(body, bytes) else orjson.dumps(body))

    return handle


def schemas_at(url: str, clock: Callable[[], float] = monotonic_s) -> SchemasById:
    return SchemasById(RegistryClient(RegistryAccess(url)), clock)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error_code": 50001, "message": "backend"}),
        (503, b"<html>"),
        (401, {"error_code": 40101, "message": "who?"}),
        (403, {"error_code": 40301, "message": "no"}),
        (429, {"error_code": 42901, "message": "slowly"}),
        (404, b"<html>not here</html>"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (404, {"message": "no route"}),
        (400, {"error_code": 400, "message": "HTTP 400 Bad Request"}),
        (409, {"error_code": 40901, "message": "odd"}),
        (301, b""),
        (200, b"<html>sign in</html>"),
        (200, {"id": 7}),
        (200, [1]),
        (200, {"schema": "{}", "references": [{"name": "x"}]}),
    ],
)
async def test_what_says_nothing_about_the_schema_is_waited_for(status: int, body: Any) -> None:
    async with answering_server(answer(status, body)) as url:
        with pytest.raises(Retryable):
            await schemas_at(url).load([7])


async def test_a_registry_that_is_away_is_waited_for() -> None:
    with pytest.raises(Retryable, match="does not answer"):
        await schemas_at("http://127.0.0.1:1").load([7])


FIELD_TWICE = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}] * 2}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, {"error_code": 40403, "message": "Schema 7 not found"}, "unknown-schema"),
        (200, {"schema": "syntax", "schemaType": "PROTOBUF"}, "not-avro"),
        (200, {"schema": '{"type": "record"}'}, "unusable-schema"),
        (200, {"schema": orjson.dumps(FIELD_TWICE).decode()}, "unusable-schema"),
        (422, {"error_code": 42201, "message": "invalid"}, "unusable-schema"),
    ],
)
async def test_what_the_registry_says_about_the_schema_is_a_reason_of_a_dead_letter(
    status: int, body: Any, reason: str
) -> None:
    async with answering_server(answer(status, body)) as url:
        schemas = schemas_at(url)
        await schemas.load([7])
    with pytest.raises(Rejected) as refused:
        schemas.get(7)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("deeper", "message", "most"), [(0, "refers to itself", 2), (1, "more than 100 others", 101)]
)
async def test_references_without_end_are_a_reason_of_a_dead_letter(
    deeper: int, message: str, most: int
) -> None:
    asked = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        version = deeper * len(asked)
        reference = {"name": "x", "subject": "s", "version": version}
        return web.Response(body=orjson.dumps({"schema": '"string"', "references": [reference]}))

    async with answering_server(handle) as url:
        schemas = schemas_at(url)
        await schemas.load([7])
    with pytest.raises(Rejected, match=message) as refused:
        schemas.get(7)
    assert refused.value.reason == "unusable-schema"
    assert len(asked) <= most


async def test_each_unknown_id_of_a_batch_is_asked_for_once_however_long_all_answers_take() -> None:
    asked, now = [], 0.0

    async def handle(request: web.Request) -> web.Response:
        nonlocal now
        asked.append(int(request.path.rpartition("/")[2]))
        now += 1
        return web.Response(status=404, body=b'{"error_code": 40403, "message": "none"}')

    async with answering_server(handle) as url:
        schemas = schemas_at(url, lambda: now)
        await schemas.load(range(1, 31))
    assert sorted(asked) == [*range(1, 31)]
    for number in range(1, 31):
        with pytest.raises(Rejected, match="none"):
            schemas.get(number)


def test_an_id_that_no_registry_can_have_is_not_avro() -> None:
    assert schema_id(header(2**31 - 1)) == 2**31 - 1
    with pytest.raises(Rejected, match="at most 2147483647"):
        schema_id(header(2**31))


async def test_each_schema_is_asked_for_once_an_unknown_one_again_after_a_while_and_the_copy_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, now = [], 0.0

    async def handle(request: web.Request) -> web.Response:
        asked.append(int(request.path.rpartition("/")[2]))
        if asked[-1] == 404:
            return web.Response(status=404, body=b'{"error_code": 40403, "message": "none"}')
        return web.Response(body=b'{"schema": "\\"string\\""}')

    monkeypatch.setattr("hifi_kafka.avro.schemas_by_id._MOST", 3)
    async with answering_server(handle) as url:
        schemas = schemas_at(url, lambda: now)
        for _ in range(2):
            await schemas.load([1, 2, 404])
        assert sorted(asked) == [1, 2, 404]
        now = 11.0
        await schemas.load([404, 1])
        assert asked[3:] == [404]
        schemas.get(1)
        await schemas.load([3])
        await schemas.load([1, 2])
        assert asked[4:] == [3, 2], "2 was not used for the longest time"
        await schemas.load([1, 2, 3, 4, 5])
        assert [schemas.get(schema_id).tree for schema_id in (1, 2, 3, 4, 5)] == ["string"] * 5, (
            "a batch may have more"
        )
