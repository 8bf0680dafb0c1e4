"""The HTTP interface of view: who may read what, filters, SQL of others, changes, and hostile requests and content."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from starlette.routing import Route
from tests.support.view.changes import Changes
from tests.support.view.row_records import view
from tests.support.view.view_stream import KEY, OTHER_KEY, OTHER_VIEW, VIEW, ViewStream, viewing

from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.health import Health
from hifi_view.settings import ViewSettings
from hifi_view.views import Views
from hifi_view.web.api import application
from hifi_view.web.read_keys import ReadKeys

NAME = "/v1/views/flights-now"
BOTH = f"{VIEW}---{OTHER_VIEW}"
ACCESS = {
    # Answers without a key, with a wrong one, with that of another view, with that of the view.
    "GET /": (200, 200, 200, 200),  # the page without data
    "GET /static/{file}": (404, 404, 404, 404),  # there is no such file
    "GET /openapi.json": (200, 200, 200, 200),
    "GET /v1/views": (401, 401, 200, 200),
    "GET /v1/views/{name}": (401, 401, 404, 200),
    "GET /v1/views/{name}/rows": (401, 401, 404, 200),
    "GET /v1/views/{name}/rows/{key:rest}": (401, 401, 404, 404),  # there is no such row
    "POST /v1/views/{name}/sql": (401, 401, 404, 200),
    "GET /v1/views/{name}/changes": (401, 401, 404, 200),
    "GET /v1/views/{name}/accounts": (401, 401, 404, 200),
}


def test_each_route_has_a_row_of_the_access_table(tmp_path: Path) -> None:
    health = Health("view", "view")
    settings = ViewSettings(view_data=tmp_path)
    registry = PipeRegistry("127.0.0.1:9", Topics("s"), health)
    views = Views(settings, [], registry, health)
    app = application(settings, views, ReadKeys([], health), asyncio.Event())
    routes = {
        f"{method} {route.path}"
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert routes == set(ACCESS)


async def test_a_key_opens_its_views_and_no_others(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path, BOTH) as (client, _):
        await client.rows()
        for route, expected in ACCESS.items():
            method, path = route.replace("{name}", "flights-now").replace("{key:rest}", "UA2").split()
            statuses = []
            for key in (None, "wrong", OTHER_KEY, KEY):
                headers = {"authorization": f"Bearer {key}"} if key else {}
                body: dict[str, Any] = {"json": {"sql": "SELECT 1"}} if method == "POST" else {}
                async with (
                    aiohttp.ClientSession() as session,
                    session.request(method, client.url + path, headers=headers, **body) as answer,
                ):
                    statuses.append(answer.status)
            assert tuple(statuses) == expected, route
        _, body, _ = await client.ask("/v1/views", OTHER_KEY)
        assert [view["view"] for view in body["views"]] == ["late"]
        for header in ("Basic " + KEY, KEY, "Bearer", "Bearer  ", "bearer \u00ff", "Bearer " + KEY + "x"):
            status, _, _ = await client.ask(NAME, None, headers={"authorization": header})
            assert status == 401, header
        assert (await client.ask(NAME, None, headers={"authorization": f"bEARER  {KEY} "}))[0] == 200


async def test_names_that_are_not_its_own_and_pages_of_other_sites_are_refused(
    stream: ViewStream, tmp_path: Path
) -> None:
    declaration = VIEW.replace("sql: true", "sql: true, origins: ['https://shop.example']")
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path, declaration, view_hosts="views.example, ") as (client, _):
        await client.rows()
        for host, status in (
            ("rebound.attacker.example", 421),
            ("views.example.attacker.example", 421),
            ("views.example:8092", 200),
            ("view:9400", 200),
            ("127.0.0.1", 200),
        ):
            for path in ("/", "/openapi.json", "/v1/views", NAME):
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(
                        client.url + path, headers={"host": host, "authorization": f"Bearer {KEY}"}
                    ) as answer,
                ):
                    assert answer.status == status, (host, path)
        for origin, status in (
            ("https://attacker.example", 403),
            ("null", 403),
            ("https://shop.example", 200),
            (client.url, 200),
        ):
            sql_answer = await client.ask(
                f"{NAME}/sql", method="POST", json={"sql": "SELECT 1"}, headers={"origin": origin}
            )
            assert sql_answer[0] == status, origin
            assert (await client.ask(NAME, headers={"origin": origin}))[0] == 200


async def test_a_key_that_cannot_be_read_closes_its_view_and_says_so(
    stream: ViewStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEST_VIEW_KEY")
    async with viewing(stream, tmp_path, BOTH) as (client, service):
        assert (await client.ask(NAME))[0] == 401
        assert (await client.ask("/v1/views/late", OTHER_KEY))[0] == 200
        assert "TEST_VIEW_KEY" in service.health.warnings["read key 0 of flights-now"]


async def fill(stream: ViewStream) -> None:
    await stream.events(
        *(
            {"flight": f"UA{number:03}", "carrier": "UA" if number % 2 else "DL", "delay": number}
            for number in range(200)
        )
    )


async def test_filters_and_pages(stream: ViewStream, tmp_path: Path) -> None:
    await fill(stream)
    await stream.events({"flight": "a/b ?%&=é", "carrier": "é", "cancelled": True, "speed": 0.5})
    async with viewing(stream, tmp_path) as (client, _):
        assert len(await client.rows()) == 201
        rows = await client.rows(**{"carrier": "UA", "delay.min": "190", "delay.max": "195"})
        assert [row["delay"] for row in rows] == [191, 193, 195]
        assert [row["flight"] for row in await client.rows(cancelled="true")] == ["a/b ?%&=é"]
        assert (await client.ask(f"{NAME}/rows/a%2Fb%20%3F%25&=%C3%A9"))[1]["speed"] == 0.5
        flights: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(4):
            _, body, _ = await client.ask(
                f"{NAME}/rows", params={"limit": "70", "carrier.min": "A", **cursor}
            )
            flights += [row["flight"] for row in body["rows"]]
            if body["next"] is None:
                break
            cursor = {"after": body["next"]}
        assert len(flights) == len(set(flights)) == 201
        for invalid_params in (
            {"nothing": "1"},
            {"delay.around": "1"},
            {"delay": "x"},
            {"delay": str(2**64)},
            {"delay": "٣"},
            {"cancelled": "1"},
            {"speed": "fast"},
            {"limit": "0"},
            {"limit": "99999"},
            {"limit": "-1"},
            {"after": "UA1"},
            {"after": '["a","b"]'},
            {"after": "[null]"},
            {"at_least": "yesterday"},
            {"at_least": "0000-00-00T00:00:00Z"},
        ):
            status, body, _ = await client.ask(f"{NAME}/rows", params=invalid_params)
            assert (status, body["status"]) == (400, 400), invalid_params
        many_filters = "&".join(["delay=1"] * 51)
        assert (await client.ask(f"{NAME}/rows?{many_filters}"))[0] == 400


async def test_keys_of_several_fields(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(
        {"carrier": "UA", "delay": 1, "note": "first"},
        {"carrier": "UA", "delay": 1, "note": "second"},
        {"carrier": "UA", "delay": 2, "note": "third"},
        {"carrier": "UA", "delay": "2", "note": "no key"},
    )
    async with viewing(stream, tmp_path, BOTH) as (client, _):
        await client.rows()
        async with asyncio.timeout(20):
            while (await client.ask("/v1/views/late", OTHER_KEY))[1]["state"] != "live":
                await asyncio.sleep(0.05)
        status, row, _ = await client.ask("/v1/views/late/rows/UA/1", OTHER_KEY)
        assert (status, row["note"]) == (200, "second")
        assert row["hifi"]["time"] == row["hifi"]["accepted"]
        assert (await client.ask("/v1/views/late/rows/UA", OTHER_KEY))[0] == 400
        assert (await client.ask("/v1/views/late/rows/UA/x", OTHER_KEY))[0] == 400
        assert (await client.ask("/v1/views/late/sql", OTHER_KEY, method="POST", json={"sql": "SELECT 1"}))[
            0
        ] == 403


async def test_sql_reads_the_view_and_nothing_else(stream: ViewStream, tmp_path: Path) -> None:
    await fill(stream)
    async with viewing(stream, tmp_path) as (client, _):
        await client.rows()
        status, body = await client.sql(
            "WITH late AS (SELECT * FROM flights_now WHERE delay > 100) "
            "SELECT carrier, count(*) n, max(delay) worst FROM late GROUP BY 1 ORDER BY 1"
        )
        assert (status, body) == (
            200,
            {"columns": ["carrier", "n", "worst"], "rows": [["DL", 49, 198], ["UA", 50, 199]], "more": False},
        )
        for allowed_sql in (
            "SELECT a.flight FROM flights_now a JOIN flights_now b ON a.delay = b.delay + 1",
            "SELECT rank() OVER (ORDER BY delay) FROM flights_now",
            "SELECT count(*) FROM flights_now",
            "VALUES (1)",
            "SELECT x'00ff', 1e999, -0.0, NULL",
        ):
            assert (await client.sql(allowed_sql))[0] == 200, allowed_sql
        for refused_sql in (
            "",
            ";",
            "SELECT",
            "SELECT 1; SELECT 2",
            "DELETE FROM flights_now",
            "UPDATE flights_now SET delay = 0",
            "INSERT INTO flights_now (flight) VALUES ('x')",
            "DROP TABLE flights_now",
            "CREATE TABLE x (a)",
            "CREATE TEMP TABLE x (a)",
            "BEGIN",
            "COMMIT",
            "VACUUM INTO 'stolen'",
            "ATTACH 'other' AS other",
            "PRAGMA journal_mode = DELETE",
            "PRAGMA table_info(flights_now)",
            "SELECT * FROM pragma_table_info('flights_now')",
            "SELECT * FROM sqlite_master",
            "SELECT * FROM sqlite_schema",
            "SELECT * FROM hifi_refusals",
            "SELECT (SELECT count(*) FROM hifi_offsets) FROM flights_now",
            "SELECT load_extension('x')",
            "SELECT randomblob(100000000)",
            "SELECT zeroblob(100000000)",
            "SELECT printf('%.*c', 100000000, 'x')",
            "SELECT readfile('/etc/passwd')",
            "SELECT fts3_tokenizer('x')",
            "SELECT group_concat(flight) FROM flights_now",
            "SELECT json_group_array(flight) FROM flights_now",
            "SELECT replace(flight, 'U', flight) FROM flights_now",
            "SELECT * FROM json_each('[1]')",
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
            "SELECT * FROM flights_now WHERE flight LIKE '" + "%a" * 60 + "'",
            "SELECT " + "(" * 200 + "1" + ")" * 200,
            "SELECT '" + "x" * 20_000 + "'",
            " UNION ALL ".join(["SELECT 1"] * 30),
            "SELECT \x00 1",
        ):
            status, body = await client.sql(refused_sql)
            assert (status, "title" in body) == (400, True), refused_sql
        assert len(await client.rows()) == 200
        assert not (tmp_path / "stolen").exists()


async def test_sql_is_bounded_in_time_rows_and_bytes(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(*({"flight": f"UA{number:03}", "carrier": "x" * 60_000} for number in range(400)))
    async with viewing(stream, tmp_path, view_sql_s=0.3, view_sql_rows=100) as (client, _):
        await client.ask(f"{NAME}/rows/UA000", params={})
        async with asyncio.timeout(30):
            while (await client.sql("SELECT count(*) FROM flights_now"))[1]["rows"] != [[400]]:
                await asyncio.sleep(0.05)
        slow_sql = (
            "SELECT count(*) FROM flights_now a, flights_now b, flights_now c "
            "WHERE a.flight || b.flight < c.flight"
        )
        slow_queries = asyncio.gather(*(client.sql(slow_sql) for _ in range(4)))
        assert (await client.ask(f"{NAME}/rows/UA001"))[0] == 200
        for status, body in await slow_queries:
            assert status == 422
            assert "takes longer than 0.3 s" in body["detail"]
        status, body = await client.sql("SELECT flight FROM flights_now ORDER BY 1")
        assert (status, len(body["rows"]), body["more"]) == (200, 100, True)
        large_sql = (
            "SELECT a.carrier || b.carrier || a.carrier || b.carrier FROM flights_now a, flights_now b"
        )
        assert (await client.sql(large_sql))[0] == 422
        long_sql = "SELECT " + " || ".join(["carrier"] * 50) + " FROM flights_now"
        assert (await client.sql(long_sql))[0] in {
            400,
            422,
        }  # the text is too long, or its time is over before


async def test_hostile_requests_are_refused(stream: ViewStream, tmp_path: Path) -> None:
    await fill(stream)
    async with viewing(stream, tmp_path) as (client, _):
        await client.rows()
        post = f"{NAME}/sql"
        for body in (
            b"",
            b"{",
            b"[]",
            b'"x"',
            b"{}",
            b'{"sql": 1}',
            b'{"sql": "SELECT 1", "more": 1}',
            b"\xff",
            b"[" * 9999,
        ):
            status, _, _ = await client.ask(post, method="POST", data=body)
            assert status == 400, body
        status, _, _ = await client.ask(post, method="POST", data=b'{"sql": "' + b" " * 70_000 + b'"}')
        assert status == 413

        async def endless() -> Any:
            while True:
                yield b" " * 10_000

        try:
            status, _, _ = await client.ask(post, method="POST", data=endless())
        except aiohttp.ClientError:  # the server closes the connection while the client writes
            status = 413
        assert status == 413
        for path in (
            "/v1/views/../../etc/passwd",
            "/v1/views/%2e%2e/rows",
            f"{NAME}/rows/" + "x" * 20_000,
            f"{NAME}/rows/%00",
            f"{NAME}/rows/%ff%fe",
            f"{NAME}/rows/' OR 1=1 --",
            f"{NAME}/nothing",
            "/v1/views/a/b",
            "/static/../console.py",
            "/static/%2e%2e%2fconsole.py",
        ):
            async with (
                aiohttp.ClientSession() as session,
                session.get(client.url + path, headers={"authorization": f"Bearer {KEY}"}) as answer,
            ):
                assert answer.status in (400, 404), path
        for method in ("PUT", "DELETE", "PATCH", "POST"):
            assert (await client.ask_status(method, f"{NAME}/rows")) == 405
        assert len(await client.rows()) == 200


async def test_hostile_content_becomes_rows_or_refusals(stream: ViewStream, tmp_path: Path) -> None:
    deep_data = b'{"flight": "deep", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}"
    texts = [
        "'; DROP TABLE flights_now; --",
        "\x00",
        "\U0001f6eb",
        "a" * 4096,
        "\n",
        "../..",
        '"',
        "NULL",
        " ",
    ]
    await stream.events(
        *({"flight": text, "carrier": text} for text in texts),
        {"flight": "b" * 4097},
        {"flight": "long", "carrier": "c" * 65_537},
        b'{"flight": "big", "delay": %d, "speed": %d}' % (2**63, 2**70),
        {"flight": "small", "delay": -(2**63), "speed": -0.0},
        {"flight": "types", "carrier": {"a": 1}, "delay": True, "cancelled": "true", "speed": "1"},
        {"flight": 12, "carrier": 34},
        b'{"flight": %d, "carrier": 1%s, "delay": 1e999, "speed": 1e999, "other": 1e999}'
        % (2**70, b"0" * 1000),
        b'{"flight": "wide", "carrier": 1.5, "speed": 1%s}' % (b"0" * 400),
        b'{"flight": 1e999}',
        {"flight": True},
        {"flight": ["UA1"]},
        deep_data,
        b"",
        b"{",
        b"null",
        b'{"flight": "\\ud800"}',
        b'{"flight": "twice", "delay": 1, "delay": 2}',
        b'{"flight": "nan", "delay": NaN}',
        b"\xff\xfe",
    )
    await stream.events({"flight": "far", "delay": 1}, accepted_us=253_402_300_799_999_999, partition=1)
    async with viewing(stream, tmp_path) as (client, _):
        rows = {row["flight"]: row for row in await client.rows()}
        assert rows.pop("far")["hifi"]["accepted"] == "9999-12-31T23:59:59.999999Z"
        for text in texts:
            status, row, _ = await client.ask(f"{NAME}/rows/{quote(text, safe='')}")
            assert (status, row.get("carrier")) == (200, text), text
        _, body, _ = await client.ask(f"{NAME}/accounts")
    assert set(rows) == {*texts, "long", "big", "small", "types", "12", "twice", str(2**70), "wide"}
    assert all(rows[text]["carrier"] == text for text in texts)
    assert rows["long"]["carrier"] is None
    assert (rows["big"]["delay"], rows["big"]["speed"]) == (None, float(2**70))
    assert rows["small"]["delay"] == -(2**63)
    assert {rows["types"][name] for name in ("carrier", "delay", "cancelled", "speed")} == {None}
    vast_row = rows[str(2**70)]
    assert (vast_row["carrier"], vast_row["delay"], vast_row["speed"]) == ("1" + "0" * 1000, None, None)
    assert (rows["wide"]["carrier"], rows["wide"]["speed"]) == (None, None)
    assert (rows["12"]["carrier"], rows["twice"]["delay"]) == ("34", 2)
    reasons = sorted(refusal["reason"] for refusal in body["refused"])
    assert reasons == ["long-key", "no-key", "no-key", "no-key", *["not-json"] * 7]


async def test_changes_are_sent_and_go_on_where_they_ended(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events({"flight": "UA1", "delay": 1}, {"flight": "UA2", "delay": 2})
    async with viewing(stream, tmp_path, view_streams=2) as (client, _):
        await client.rows()
        async with Changes(client) as changes:
            assert await changes.rows(2) == {"UA1": 1, "UA2": 2}
            await stream.events({"flight": "UA1", "delay": 3})
            assert await changes.rows(1) == {"UA1": 3}
            last_id = changes.last_id
            complete_until = await changes.complete()
            assert complete_until.startswith("20")
        await stream.events({"flight": "UA2", "delay": 4})
        await client.rows()  # once it is applied: else the second stream begins with the row before
        async with Changes(client, last_id) as changes, Changes(client, "000000000000:99") as reset_changes:
            assert await changes.rows(1) == {"UA2": 4}
            assert changes.resets == 0
            assert await reset_changes.rows(2) == {"UA1": 3, "UA2": 4}
            assert reset_changes.resets == 1
            assert (await client.ask(f"{NAME}/changes"))[0] == 503


async def test_fifty_readers_see_the_same_rows(stream: ViewStream, tmp_path: Path) -> None:
    await fill(stream)
    async with viewing(stream, tmp_path) as (client, _):
        await client.rows()
        async with contextlib.AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(Changes(client)) for _ in range(50)]
            first_rows = await asyncio.gather(*(reader.rows(200) for reader in readers))
            assert first_rows == [{f"UA{number:03}": number for number in range(200)}] * 50
            await stream.events(*({"flight": f"UA{number:03}", "delay": 1000} for number in range(20)))
            changed_rows = await asyncio.gather(*(reader.rows(20) for reader in readers))
            assert changed_rows == [{f"UA{number:03}": 1000 for number in range(20)}] * 50
            assert (await client.ask(f"{NAME}/rows/UA001"))[1]["delay"] == 1000


async def test_streams_of_changes_end_when_view_stops(
    stream: ViewStream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with viewing(stream, tmp_path) as (client, service), Changes(client) as changes:
        await changes.complete()
        service.stop()
        await changes.end()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_changes_of_a_part_of_the_key(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(*({"carrier": "UA" if delay % 2 else "DL", "delay": delay} for delay in range(20)))
    async with viewing(stream, tmp_path, BOTH) as (client, _):
        for invalid_params in (
            {"note": "x"},
            {"carrier": "UA", "note.min": "x"},
            {"delay": "x"},
            {"gate": "1"},
        ):
            assert (await client.ask("/v1/views/late/changes", OTHER_KEY, params=invalid_params))[0] == 400, (
                invalid_params
            )
        filters = {"view": "late", "key": OTHER_KEY, "carrier": "UA", "delay.min": "13"}
        async with Changes(client, **filters) as changes:
            assert [(await changes.row())["delay"] for _ in range(4)] == [13, 15, 17, 19]
            await stream.events({"carrier": "UA", "delay": 1}, {"carrier": "DL", "delay": 14})
            id_before = changes.last_id
            async with asyncio.timeout(30):
                while changes.last_id == id_before:  # it tells how far it has looked, although nothing fits
                    await changes.complete()
            await stream.events({"carrier": "UA", "delay": 17, "note": "again"})
            row = await changes.row()
            assert (row["delay"], row["note"]) == (17, "again")
        await stream.events({"carrier": "UA", "delay": 99})
        async with Changes(client, changes.last_id, **filters) as changes:
            assert (await changes.row())["delay"] == 99
            assert changes.resets == 0


async def test_pages_of_declared_origins_may_read(stream: ViewStream, tmp_path: Path) -> None:
    origin = "https://shop.example"
    await stream.events({"flight": "UA1", "delay": 1})
    for declaration, is_allowed in (
        (VIEW, False),
        (VIEW.replace("sql: true", f"origins: ['{origin}/']"), True),
    ):
        folder = tmp_path / str(is_allowed)
        folder.mkdir()
        async with viewing(stream, folder, declaration) as (client, _):
            preflight_headers = {
                "origin": origin,
                "access-control-request-method": "GET",
                "access-control-request-headers": "authorization,last-event-id",
            }
            async with (
                aiohttp.ClientSession() as session,
                session.options(client.url + f"{NAME}/changes", headers=preflight_headers) as preflight,
            ):
                assert (preflight.status == 200) is is_allowed
                assert ("access-control-allow-origin" in preflight.headers) is is_allowed
            for key, status in ((KEY, 200), ("wrong", 401)):
                for page in (origin, "https://other.example", "null"):
                    answer = await client.ask(NAME, key, headers={"origin": page})
                    allowed_origin = answer[2].get("access-control-allow-origin")
                    assert (answer[0], allowed_origin) == (
                        status,
                        origin if is_allowed and page == origin else None,
                    )
            _, _, headers = await client.ask(f"{NAME}/rows", headers={"origin": origin})
            assert ("hifi-complete-until" in headers.get("access-control-expose-headers", "")) is is_allowed


def test_what_a_view_declares_is_checked() -> None:
    assert view(fields={"flight": "int"}).columns == {"flight": "int"}
    for changes, message in (
        ({"key": ["carrier"], "fields": {"carrier": "double"}}, "must be text or int"),
        ({"fields": {"delay": "int", "Delay": "int"}}, "tell apart"),
        ({"fields": {"hifi_offset": "int"}}, "reserved"),
        ({"view": "sqlite-x"}, "must not begin"),
        ({"keep": "8d"}, "less than or equal"),
        ({"serve": {"keys": []}}, "at least 1"),
        ({"serve": {"keys": [{"env": "K"}], "origins": ["shop.example"]}}, "no origin"),
        ({"key": []}, "at least 1"),
        ({"order": "any"}, "offset"),
    ):
        with pytest.raises(ValueError, match=message):
            view(**changes)
