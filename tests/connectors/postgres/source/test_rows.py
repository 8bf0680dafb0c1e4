"""Rows of a real PostgreSQL in pages, and the same rows again."""

import asyncio
import base64
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import psycopg
import pytest
from tests.support.postgres.pgbouncer import pool_of
from tests.support.postgres.polled_table import PolledTable
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer

from hifi.runtime import exact_json
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_cli.reference.value_types import POSTGRES
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.progress import SortKey
from hifi_postgres.source.rows import Page, PostgresRows, postgres_rows


def source(polled: PolledTable, /, **overrides: Any) -> SqlSource:
    sql_source = polled.pipe(**overrides).source
    assert isinstance(sql_source, SqlSource)
    return sql_source


async def every_row(rows: PostgresRows, upper_bound: str, limit: int) -> list[int]:
    ids, last_sort_key = list[int](), None
    while True:
        page = await rows.page(last_sort_key, upper_bound, limit)
        ids += [orjson.loads(row.data or b"")["id"] for row in page.rows]
        if page.following is None:
            return ids
        last_sort_key = page.rows[-1].sort_key


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_have_each_row_once_in_order_though_many_have_equal_values(
    table: PolledTable, limit: int
) -> None:
    table.add(range(1, 22), "timestamptz '2026-01-01' + (n / 5) * interval '1 ms'")
    async with postgres_rows(source(table), "test", 1000, "shop") as rows:
        upper_bound = (await rows.mark()).value
        assert upper_bound == "2026-01-01 00:00:00.004+00"
        assert await every_row(rows, upper_bound, limit) == [*range(1, 22)]
        page = await rows.page(None, upper_bound, 3)
        assert page.following == ("2026-01-01 00:00:00+00", "4")
        assert await rows.estimate(page.rows[-1].sort_key, upper_bound) >= 1


async def test_a_page_is_bounded_in_bytes(table: PolledTable) -> None:
    table.execute("INSERT INTO {} (name) SELECT repeat('x', 1500000) FROM generate_series(1, 9)")
    async with postgres_rows(source(table, column="id", key=[]), "test", 2_000_000, "shop") as rows:
        page = await rows.page(None, "9", 500)
        assert [row.sort_key for row in page.rows] == [("1",), ("2",)]
        assert page.following == ("3",)
        assert await every_row(rows, "9", 500) == [*range(1, 10)]


async def test_the_same_rows_are_found_again_and_those_that_changed_are_not(table: PolledTable) -> None:
    table.add(range(1, 6), "'2026-01-01'")
    async with postgres_rows(source(table, partition_key="name"), "test", 1000, "shop") as rows:
        page = await rows.page(None, "2026-01-02", 4)
        table.execute("UPDATE {} SET updated = '2026-01-03' WHERE id = 2")
        table.execute("UPDATE {} SET name = 'other' WHERE id = 3")
        table.execute("DELETE FROM {} WHERE id = 4")
        table.execute("INSERT INTO {} VALUES (0, 'new', 1, '2026-01-01')")
        found_rows = await rows.named([row.sort_key for row in page.rows])
        assert [key[1] for key in sorted(found_rows)] == ["1", "3"]
        assert found_rows["2026-01-01 00:00:00+00", "3"].key == "other"


async def test_rows_of_a_query_with_a_time_without_time_zone(table: PolledTable) -> None:
    table.add(range(1, 4), "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 s'")
    query = (
        f'SELECT id AS "select", id, updated AT TIME ZONE \'UTC\' AS "at" FROM {table.name} WHERE id % 2 = 1'
    )
    async with postgres_rows(
        source(table, query=query, column="at", key=["select"]), "test", 1000, "shop"
    ) as rows:
        assert (await rows.mark()).value == "2026-01-01 00:00:03"
        page = await rows.page(("2026-01-01 00:00:01", "1"), "2026-01-01 00:00:03", 10)
        assert [row.sort_key for row in page.rows] == [("2026-01-01 00:00:03", "3")]
        assert list(await rows.named([("2026-01-01 00:00:01", "1")])) == [("2026-01-01 00:00:01", "1")]


async def test_a_mark_tells_which_transactions_run(table: PolledTable) -> None:
    async with postgres_rows(source(table, column="id", key=[]), "test", 1000, "shop") as rows:
        writer = table.connect(autocommit=False)
        table.execute("INSERT INTO {} (name) VALUES ('late')", writer)
        table.execute("INSERT INTO {} (name) VALUES ('early')")
        mark_before = await rows.mark()
        assert mark_before.value == "2"
        assert mark_before.oldest_transaction < mark_before.next_transaction
        writer.commit()
        writer.close()
        assert (await rows.mark()).oldest_transaction >= mark_before.next_transaction


async def test_a_mark_tells_of_transactions_behind_the_newest_one_that_has_ended(table: PolledTable) -> None:
    async with postgres_rows(source(table, column="id", key=[]), "test", 1000, "shop") as rows:
        early_writer, late_writer = (table.connect(autocommit=False) for _ in range(2))
        early_writer.execute("SELECT txid_current()")
        table.execute("INSERT INTO {} (name) VALUES ('late')", late_writer)
        table.execute("INSERT INTO {} (name) VALUES ('early')", early_writer)
        early_writer.commit()
        mark_before = await rows.mark()
        assert mark_before.value == "2"
        assert (await rows.mark()).oldest_transaction < mark_before.next_transaction
        late_writer.commit()
        assert (await rows.mark()).oldest_transaction >= mark_before.next_transaction
        early_writer.close()
        late_writer.close()


class StandbyRows(PostgresRows):
    """Rows of a server whose answer to a mark is known."""

    def __init__(self, *, is_standby: bool) -> None:
        self._statements: Any = SimpleNamespace(mark=lambda: "")
        self._is_standby = is_standby

    async def _all(self, *_: Any) -> list[tuple[Any, ...]]:
        return [("7", 9, 8, self._is_standby)]


async def test_a_standby_gives_no_mark() -> None:
    assert await StandbyRows(is_standby=False).mark() == ("7", 9, 8)
    with pytest.raises(Misconfigured, match=r"the server is a standby.*name the primary server"):
        await StandbyRows(is_standby=True).mark()


@pytest.mark.slow
async def test_a_server_that_is_a_standby_is_refused_though_its_rows_can_be_read(tmp_path: Path) -> None:
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server:
        table = PolledTable(server, tmp_path)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {table.name} (id bigint, updated timestamptz)")
        server.become_standby()
        async with postgres_rows(source(table), "test", 1000, "shop") as rows:
            assert await rows.page(None, "2100-01-01", 1) == Page([], None)
            with pytest.raises(Misconfigured, match="the server is a standby"):
                await rows.mark()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"column": "none"}, "no column none"),
        ({"key": ["nokey"]}, "no column nokey"),
        ({"column": "name"}, "neither an integer nor a timestamp"),
        ({"table": "no_table"}, 'relation "no_table" does not exist'),
        ({"query": "SELEC 1"}, "syntax error"),
    ],
)
async def test_what_cannot_be_read_is_told(
    table: PolledTable, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(Misconfigured, match=message):
        async with postgres_rows(source(table, **overrides), "test", 1000, "shop"):
            pass


async def test_a_query_changes_nothing(table: PolledTable) -> None:
    table.execute(
        "CREATE FUNCTION {}_f() RETURNS bigint LANGUAGE sql AS 'INSERT INTO {} (name) VALUES (1) RETURNING id'"
    )
    writing = source(table, query=f"SELECT {table.name}_f() AS id", column="id", key=[])
    async with postgres_rows(writing, "test", 1000, "shop") as rows:
        with pytest.raises(Misconfigured, match="read-only transaction"):
            await rows.mark()
    assert table.rows() == {}
    table.execute("DROP FUNCTION {}_f")


async def test_a_wrong_password_is_told(table: PolledTable) -> None:
    sql_source = source(table)
    assert sql_source.database.password_file is not None
    sql_source.database.password_file.write_text("wrong")
    with pytest.raises(Retryable, match="password authentication failed"):
        async with postgres_rows(sql_source, "test", 1000, "shop"):
            pass
    sql_source.database.password_file.unlink()
    with pytest.raises(Misconfigured, match="cannot be read"):
        async with postgres_rows(sql_source, "test", 1000, "shop"):
            pass


async def test_values_do_not_depend_on_the_settings_of_the_role(table: PolledTable) -> None:
    values = {
        "b bytea": "'\\x00ff'::bytea || repeat('x', 90)::bytea", "m money": "1234.5::numeric::money",
        "l money[]": "array[1234.5::numeric::money, null]",
        "i interval": "'1 day 2.5 s'",
        "f float8": "0.1::float8 + 0.2", "n float8": "'NaN'", "t timestamptz": "'2026-07-01 12:00+02'",
        "d date": "'infinity'",
        "a numeric[]": "'{1.10,NaN}'", "j jsonb": "'{\"a\": 1.10}'", "e numeric": "1e30", "z bytea": "''",
    }  # fmt: skip
    type_names = [name.partition(" ")[0] for name in values]
    for column in values:
        table.execute(f"ALTER TABLE {{}} ADD {column}")
    table.execute(f"INSERT INTO {{}} (name, {','.join(type_names)}) SELECT 'x', {','.join(values.values())}")
    for setting in (
        "IntervalStyle = 'sql_standard'", "extra_float_digits = 0", "bytea_output = 'escape'",
        "TimeZone = 'Asia/Tokyo'", "DateStyle = 'German'",
    ):  # fmt: skip
        table.execute(f"ALTER ROLE postgres SET {setting}")
    try:
        async with postgres_rows(source(table, column="id", key=[]), "test", 1000, "shop") as rows:
            (row,) = (await rows.page(None, "9", 10)).rows
    finally:
        table.execute("ALTER ROLE postgres RESET ALL")
    data = exact_json.loads(row.data or b"")
    assert {name: data[name] for name in type_names} == {
        "b": base64.b64encode(b"\x00\xff" + b"x" * 90).decode(), "m": "1234.50", "i": "P1DT2.5S",
        "l": ["1234.50", None],
        "f": Decimal("0.30000000000000004"), "n": "NaN", "t": "2026-07-01T10:00:00+00:00", "d": "infinity",
        "a": [Decimal("1.10"), "NaN"], "j": {"a": Decimal("1.10")}, "e": "1" + "0" * 30, "z": "",
    }  # fmt: skip


async def test_the_table_of_types_is_true(table: PolledTable) -> None:
    for declared in POSTGRES:
        table.execute(f"TRUNCATE {{}}; ALTER TABLE {{}} DROP COLUMN IF EXISTS v, ADD v {declared.declared}")
        for value, _ in declared.reads:
            table.execute(f"INSERT INTO {{}} (name, v) VALUES ('x', {value})")
        async with postgres_rows(source(table, column="id", key=[]), "test", 1000, "shop") as rows:
            page = await rows.page(None, "99", 10)
        for row, (_, text) in zip(page.rows, declared.reads, strict=True):
            assert exact_json.loads(row.data or b"")["v"] == exact_json.loads(text or ""), declared.types


async def test_through_a_pool_each_transaction_has_the_settings_whatever_others_have_left(
    table: PolledTable, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    table.execute("ALTER TABLE {} ADD span interval, ADD bytes bytea")
    table.execute(
        "INSERT INTO {} (name, updated, span, bytes) "
        "SELECT 'n', timestamptz '2026-01-01' + n * interval '1 s', '1 day 2:03', 'ab\\000' "
        "FROM generate_series(1, 40) n"
    )
    with pool_of(postgres_server.port, tmp_path) as port:
        url = postgres_server.url.replace(str(postgres_server.port), str(port))
        await _leave_settings_in_both_connections(url)
        direct = source(table)
        pooled = direct.model_copy(update={"database": direct.database.model_copy(update={"port": port})})
        async with (
            postgres_rows(pooled, "test", 1000, "shop") as first_rows,
            postgres_rows(pooled, "test", 1000, "shop") as second_rows,
            postgres_rows(direct, "test", 1000, "shop") as unpooled,
        ):
            upper_bound = (await unpooled.mark()).value or ""
            expected = _content(await unpooled.page(None, upper_bound, 50))
            for _ in range(12):  # psycopg prepares what it has run five times
                high_water_marks = await asyncio.gather(first_rows.mark(), second_rows.mark())
                pages = await asyncio.gather(
                    first_rows.page(None, upper_bound, 50), second_rows.page(None, upper_bound, 50)
                )
                assert [high_water_mark.value for high_water_mark in high_water_marks] == [
                    upper_bound,
                    upper_bound,
                ]
                assert [_content(page) for page in pages] == [expected, expected]


def _content(page: Page) -> list[tuple[SortKey, bytes | None]]:
    return [(row.sort_key, row.data) for row in page.rows]


async def _leave_settings_in_both_connections(url: str) -> None:
    """Change the session of each connection of a pool of two, as another of its clients might."""
    async with asyncio.timeout(30):
        while True:
            try:
                connections = [await psycopg.AsyncConnection.connect(url) for _ in range(2)]
                break
            except psycopg.OperationalError:  # the pool does not listen yet
                await asyncio.sleep(0.1)
    servers = set()
    for connection in connections:  # both transactions are open at the same time
        await connection.execute("SET TimeZone = 'Asia/Tokyo'")
        await connection.execute("SET DateStyle = 'German'")
        await connection.execute("SET IntervalStyle = 'postgres'")
        await connection.execute("SET bytea_output = 'escape'")
        cursor = await connection.execute("SELECT pg_backend_pid()")
        servers.add(await cursor.fetchone())
    for connection in connections:
        await connection.commit()
        await connection.close()
    assert len(servers) == 2
