"""Values in the columns of a real PostgreSQL: exact, or refused with the column, whatever the role has set."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from tests.support.egest.egest_stream import (
    EgestStream,
    connector_destination,
    outcomes,
    pipe_to,
    running_egest,
    texts,
)
from tests.support.postgres.pgbouncer import pool_of
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer
from tests.support.postgres.postgres_table import PostgresTable

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.record.headers import DETAIL
from hifi.runtime.errors import Missing, Rejected, RejectedEvents, Retryable
from hifi_postgres.destination.writer import PostgresWriter
from hifi_postgres.value_table import VALUES

GERMAN = "de_DE.UTF-8"
HAS_GERMAN = Path("/usr/share/i18n/locales/de_DE").exists()
"""The locale can be built: this machine has its source."""
LOG, OTHER_LOG = "0a" * 16, "0b" * 16
COLUMNS_OF_V = {"columns": {"key": "key", "number": "number", "v": "v"}}


def writer(postgres: PostgresTable, timeout_s: float = 10.0, **settings: Any) -> DestinationWriter:
    kind, kind_settings = read_settings(
        connector_destination(pipe_to("flights", postgres.declared(settings=COLUMNS_OF_V | settings)))
    )
    return kind.open(kind_settings, WriterContext("s", "flights", "d", 16, timeout_s))


def event(offset: int, value: str | None, key: str | None = None, **other_fields: Any) -> OutboundEvent:
    """An event with the JSON text of `v`; None: without `v`."""
    members = orjson.dumps({"key": key or f"k{offset}", "number": offset} | other_fields).decode()[:-1]
    body = members + ("}" if value is None else f',"v":{value}}}')
    return OutboundEvent(body.encode(), "application/json", {}, b"k", LOG, 0, offset, 0)


EXACT = [
    ("numeric", "1560704964.331047", "1560704964.331047"),
    ("numeric", "18446744073709551616", "18446744073709551616"),
    ("numeric", "123456789012.3456", "123456789012.3456"),
    ("numeric", '"NaN"', "NaN"),
    ("numeric", "1e30", "1" + "0" * 30),
    ("text", "1000000000000000000000000000000", "1" + "0" * 30),
    ("text", "1e30", "1" + "0" * 30),
    ("text", "0.1000", "0.1000"),
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("numeric(6, 2)", "2.345", "2.35"),
    ("jsonb", '"abc"', '"abc"'),
    ("jsonb", '"123"', '"123"'),
    ("jsonb", '"null"', '"null"'),
    ("jsonb", "null", None),
    ("jsonb", "5", "5"),
    ("jsonb", "true", "true"),
    ("jsonb", "[1.10, 18446744073709551616]", "[1.10, 18446744073709551616]"),
    ("json", '{"a": 0.1}', '{"a":0.1}'),
    ("timestamptz", '"2026-07-01 12:00"', "2026-07-01 12:00:00+00"),
    ("timestamptz", '"2026-07-01T12:00:00+02:00"', "2026-07-01 10:00:00+00"),
    ("timestamp", '"2026-07-01T12:00:00+02:00"', "2026-07-01 10:00:00"),
    ("timestamp", '"2026-07-01 12:00"', "2026-07-01 12:00:00"),
    ("timestamp(3)", '"2026-07-01T12:00:00.123Z"', "2026-07-01 12:00:00.123"),
    ("timestamp", '"infinity"', "infinity"),
    ("date", '"0044-03-15 BC"', "0044-03-15 BC"),
    ("interval", '"P1Y2M-3DT4H5M6.789S"', "1 year 2 mons -3 days +04:05:06.789"),
    ("interval year to month", '"P1Y2M"', "1 year 2 mons"),
    ("interval year", '"P2Y0M0DT0.0S"', "2 years"),
    ("interval day to hour", '"P1Y2M1W-3DT4H"', "1 year 2 mons 4 days 04:00:00"),
    ("interval minute", '"PT4H5M"', "04:05:00"),
    ("interval day to second(3)", '"P1DT6.789S"', "1 day 00:00:06.789"),
    ("interval month[]", '["P1Y", null]', '{"1 year",NULL}'),
    ("bytea", '"AP8="', "\\x00ff"),
    ("text[]", '["a", null, "NULL", "{\\""]', '{a,NULL,"NULL","{\\""}'),
    ("int[]", "[[1, 2], [3, 4]]", "{{1,2},{3,4}}"),
    ("numeric[]", '[1.10, "NaN"]', "{1.10,NaN}"),
    ("jsonb[]", '["x", [1]]', '{"\\"x\\"",[1]}'),
    ("box[]", '["(1,1),(0,0)"]', "{(1,1),(0,0)}"),
    ("box[]", '[["(1,1),(0,0)"], ["(3,3),(2,2)"]]', "{{(1,1),(0,0)};{(3,3),(2,2)}}"),
    ("box", '"(1,1),(0,0)"', "(1,1),(0,0)"),
    ("varchar(3)", '"ab "', "ab "),
    ("name", f'"{"x" * 63}"', "x" * 63),
    ('"char"', '"a"', "a"),
    ("bit(8)", '"10100001"', "10100001"),
    ("varbit", '"00101"', "00101"),
    ("timetz", '"12:00:00+02"', "12:00:00+02"),
    ("timestamp[]", '["2026-07-01T12:00:00+02:00", null]', '{"2026-07-01 10:00:00",NULL}'),
    ("timestamp[]", '"{2026-07-01T12:00:00+02:00}"', '{"2026-07-01 10:00:00"}'),
    ("timestamp(0)[]", '[["2026-07-01T12:00:00.6+02:00"]]', '{{"2026-07-01 10:00:01"}}'),
    ("date", '"20260701"', "2026-07-01"),
    ("date", '"12026-07-01"', "12026-07-01"),
    ("date", '"2026-07-01T00:00:00.000Z"', "2026-07-01"),
    ("date[]", '"[0:1]={2026-07-01,NULL}"', "[0:1]={2026-07-01,NULL}"),
    ("time", '"12:00:00.5Z"', "12:00:00.5"),
    ("daterange", '"[2026-07-01,2026-08-01)"', "[2026-07-01,2026-08-01)"),
    ("tstzrange", '"(\\"2026-07-01 12:00:00+02\\",)"', '("2026-07-01 10:00:00+00",)'),
    ("daterange", '"empty"', "empty"),
    ("text[]", '"{a,NULL}"', "{a,NULL}"),
    ("text", '"1 €"', "1 €"),
    ("money", "-1234.5", "-$1,234.50"),
    ("money[]", '["1234.50", 2]', '{"$1,234.50",$2.00}'),
    ("real", "1.6777216e7", "1.6777216e+07"),
    ("real", "1e23", "1e+23"),
    ("double precision", "1e23", "9.999999999999999e+22"),
    ("double precision", '"9007199254740994"', "9.007199254740994e+15"),
    ("double precision", '"-Infinity"', "-Infinity"),
]


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that has a locale which writes 1234.50 as 1.234,50."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer(locale=GERMAN if HAS_GERMAN else "") as server:
        yield server


@pytest.fixture
def foreign_role(postgres: PostgresTable) -> Iterator[None]:
    """The role has another time zone, other styles, another locale and another encoding."""
    for setting in (
        "TimeZone = 'America/New_York'",
        "DateStyle = 'German'",
        "IntervalStyle = 'sql_standard'",
        f"lc_monetary = '{GERMAN if HAS_GERMAN else 'C'}'",
        "array_nulls = off",
        "xmloption = document",
        "quote_all_identifiers = on",
        "client_encoding = 'LATIN1'",
    ):
        postgres.execute(f"ALTER ROLE postgres SET {setting}")
    yield
    postgres.execute("ALTER ROLE postgres RESET ALL")


async def test_values_are_exact_whatever_the_role_has(postgres: PostgresTable, foreign_role: None) -> None:
    differences = []
    for column_type, value, text in EXACT:
        postgres.execute(f"ALTER TABLE {postgres.name} DROP COLUMN IF EXISTS v, ADD v {column_type}")
        postgres_writer = writer(postgres)
        await postgres_writer.write([event(1, value), event(2, value)])
        await postgres_writer.write([event(3, value)])
        await postgres_writer.close()
        with psycopg.connect(postgres.url) as connection:
            connection.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'")
            connection.execute("SET lc_monetary = 'C'; SET client_encoding = 'UTF8'")
            rows = connection.execute(f"SELECT v::text FROM {postgres.name} ORDER BY number").fetchall()
        if rows != [(text,)] * 3:
            differences.append((column_type, value, rows))
        postgres.execute(f"TRUNCATE {postgres.name}")
    assert differences == []


@pytest.mark.parametrize(
    ("setting", "effective"),
    [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply", "remote_apply")],
)
async def test_what_is_delivered_is_on_the_disk_whatever_the_role_has(
    postgres: PostgresTable, setting: str, effective: str
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text DEFAULT current_setting('synchronous_commit')")
    postgres.execute(f"ALTER ROLE postgres SET synchronous_commit = '{setting}'")
    try:
        postgres_writer = writer(postgres, columns={"key": "key", "number": "number"})
        await postgres_writer.write([event(1, "0")])
        await postgres_writer.close()
    finally:
        postgres.execute("ALTER ROLE postgres RESET ALL")
    assert postgres.execute(f"SELECT v FROM {postgres.name}") == [(effective,)]


async def test_arrays_of_a_domain_and_keys_have_the_values_of_their_type(postgres: PostgresTable) -> None:
    domain = f"{postgres.name}_moment"
    postgres.execute(f"CREATE DOMAIN {domain}_base AS timestamp")
    postgres.execute(f"CREATE DOMAIN {domain} AS {domain}_base CHECK (value > '2000-01-01')")
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v {domain}[], ADD w timestamp[], ADD UNIQUE (key, w)")
    columns = {"key": "key", "number": "number", "v": "v", "w": "v"}
    postgres_writer = writer(postgres, columns=columns, key=["key", "w"])
    for offset in (1, 2):
        await postgres_writer.write([event(offset, '["2026-07-01T12:00:00+02:00"]', "a")])
    with pytest.raises(Rejected, match="the value is no date or time in ISO 8601"):
        await postgres_writer.write([event(3, '["today"]', "a")])
    await postgres_writer.close()
    rows = postgres.execute(f"SELECT number, v::text, w::text FROM {postgres.name}")
    assert rows == [(2, '{"2026-07-01 10:00:00"}', '{"2026-07-01 10:00:00"}')]


async def test_the_table_of_values_is_true(postgres: PostgresTable) -> None:
    for row in VALUES:
        column = "text" if row.column == "any type" else row.column
        postgres.execute("CREATE EXTENSION IF NOT EXISTS hstore")
        postgres.execute(f"ALTER TABLE {postgres.name} DROP COLUMN IF EXISTS v, ADD v {column}")
        postgres_writer = writer(postgres)
        if row.outcome == "refused":
            with pytest.raises(Rejected, match="column v"):
                await postgres_writer.write([event(1, row.example)])
        else:
            await postgres_writer.write([event(1, row.example)])
            with psycopg.connect(postgres.url) as connection:
                connection.execute("SET TimeZone = 'UTC'; SET lc_monetary = 'C'")
                stored_rows = connection.execute(f"SELECT v::text FROM {postgres.name}").fetchall()
            assert stored_rows == [(row.stored,)], row
        await postgres_writer.close()
        postgres.execute(f"TRUNCATE {postgres.name}")


REFUSED = [
    ("integer", "1.5", "the column v has the type integer, and the value is a number with a fraction"),
    (
        "integer",
        "2147483648",
        "the value of the column v does not fit its type integer: NumericValueOutOfRange",
    ),
    ("integer", '"abc"', "the value of the column v does not fit its type integer"),
    ("real", "16777217", "the column v has the type real"),
    ("boolean", "1", "the column v has the type boolean, and the value is a number"),
    ("varchar(5)", '"abcdef"', "the value of the column v does not fit its type character varying(5)"),
    ("numeric(4, 2)", "123", "the value of the column v does not fit its type numeric(4,2)"),
    (
        "timestamptz",
        '"02/03/2026"',
        "the column v has the type timestamp with time zone, and the value is no date or time in ISO 8601",
    ),
    ("timestamp", '"2026-02-30 12:00"', "the value of the column v does not fit its type timestamp"),
    ("date", '"2026-02-30"', "the value of the column v does not fit its type date"),
    ("date", '"02/03/04"', "the column v has the type date, and the value is no date"),
    ("date[]", '["today"]', "the column v has the type date[], and the value is no date"),
    ("date[]", '"{today}"', "the column v has the type date[], and the value is no date"),
    ("daterange", '"[02/03/04,today)"', "the column v has the type daterange, and the value is no date"),
    ("date", '"2026-07-01T12:00:00Z"', "the column v has the type date, and the value is no date"),
    ("timestamptz", '"now"', "the column v has the type timestamp with time zone, and the value is no date"),
    ("time", '"12:00:00+02"', "the column v has the type time without time zone, and the value is no time"),
    ("real", '"16777217"', "the column v has the type real"),
    ("real", "16777217.0", "the column v has the type real"),
    ("real", "1.6777217e7", "the column v has the type real"),
    ("real[]", '"{16777217}"', "the column v has the type real[]"),
    ("double precision", '"9007199254740993"', "the column v has the type double precision"),
    ("money", '"1.234,50"', "the column v has the type money"),
    ("money", '"99999999999999999999"', "the value of the column v does not fit its type money"),
    ("uuid", '"x"', "the value of the column v does not fit its type uuid"),
    ("text", '"a\\u0000"', "the column v has the type text"),
    ("jsonb", '{"a": "\\u0000"}', "the value of the column v does not fit its type jsonb"),
    ("varchar(2)", '"ab    "', "the column v has the type character varying(2)"),
    ("varchar(2)[]", '["ab    "]', "the column v has the type character varying(2)[]"),
    ("varchar(2)[]", '["abc"]', "the value of the column v does not fit its type character varying(2)[]"),
    ("name", f'"{"x" * 64}"', "the column v has the type name"),
    ("name[]", f'["{"x" * 64}"]', "the column v has the type name[]"),
    ('"char"', '"abcde"', 'the column v has the type "char"'),
    ("bit(3)", '"10101"', "the value of the column v does not fit its type bit(3)"),
    (
        "interval year to month",
        '"P1Y2M3D"',
        "the column v has the type interval year to month, and the value has",
    ),
    ("interval year", '"P14M"', "the column v has the type interval year, and the value has a part"),
    ("interval month", '"PT1S"', "the column v has the type interval month, and the value has a part"),
    ("interval day", '"PT24H"', "the column v has the type interval day, and the value has a part"),
    ("interval hour", '"PT90M"', "the column v has the type interval hour, and the value has a part"),
    (
        "interval day to minute",
        '"PT0.5S"',
        "the column v has the type interval day to minute, and the value has",
    ),
    ("interval year", '"P1.5Y"', "the column v has the type interval year, and the value is no interval"),
    ("interval month[]", '["P1D"]', "the column v has the type interval month[], and the value has a part"),
    (
        "interval month[]",
        '"{P1M,P1D}"',
        "the column v has the type interval month[], and the value has a part",
    ),
    ("oid", "-1", "the column v has the type oid, and the value is a number below 0"),
]


async def test_one_bad_value_of_a_batch_is_refused_by_number_and_column(postgres: PostgresTable) -> None:
    for column_type, value, message in REFUSED:
        postgres.execute(f"ALTER TABLE {postgres.name} DROP COLUMN IF EXISTS v, ADD v {column_type}")
        postgres_writer = writer(postgres)
        batch = [event(offset, value if offset == 37 else "null") for offset in range(100)]
        with pytest.raises(RejectedEvents) as caught:
            await postgres_writer.write(batch)
        assert list(caught.value.events) == [37]
        assert caught.value.events[37].reason == "value"
        assert caught.value.events[37].detail.startswith(message)
        with pytest.raises(Rejected) as single_refusal:
            await postgres_writer.write([batch[37]])
        assert single_refusal.value.detail == caught.value.detail
        if len(value) > 4:
            assert value.strip('"') not in single_refusal.value.detail
        await postgres_writer.write([batch_event for batch_event in batch if batch_event is not batch[37]])
        await postgres_writer.close()
        assert len(await postgres.rows()) == 99
        postgres.execute(f"TRUNCATE {postgres.name}")


@pytest.mark.parametrize(
    ("base", "value", "fitting_value", "stored_text"),
    [
        ("varchar(2)", '"abcdef"', '"ab"', "ab"),
        ("varchar(2)", '"ab    "', '"ab"', "ab"),
        ("char(2)", '"abcdef"', '"ab"', "ab"),
        ("bit(3)", '"10101"', '"101"', "101"),
        ("varbit(3)", '"10101"', '"101"', "101"),
        ("varchar(2)[]", '["abcdef"]', '["ab"]', "{ab}"),
        ("interval year", '"P1Y1M"', '"P1Y"', "1 year"),
        ("interval year[]", '["P1Y1M"]', '["P1Y"]', '{"1 year"}'),
    ],
)
async def test_a_domain_cuts_no_value(
    postgres: PostgresTable, base: str, value: str, fitting_value: str, stored_text: str
) -> None:
    domain = f"{postgres.name}_domain"
    postgres.execute(f"DROP DOMAIN IF EXISTS {domain}, {domain}_base CASCADE")
    postgres.execute(f"CREATE DOMAIN {domain}_base AS {base}")
    postgres.execute(f"CREATE DOMAIN {domain} AS {domain}_base")
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v {domain}")
    postgres_writer = writer(postgres)
    for batch in ([event(1, value)], [event(1, value), event(2, fitting_value)]):
        with pytest.raises(RejectedEvents, match=f"the column v .*{domain}"):
            await postgres_writer.write(batch)
    await postgres_writer.write([event(2, fitting_value)])
    await postgres_writer.close()
    assert postgres.execute(f"SELECT v::text FROM {postgres.name}") == [(stored_text,)]


async def test_bad_rows_do_not_delay_the_others_of_their_batch(
    postgres: PostgresTable, stream: EgestStream
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v integer")
    batch = {"size": 100, "wait": "500ms"}
    async with running_egest(
        stream, pipe_to("flights", postgres.declared(settings=COLUMNS_OF_V, batch=batch))
    ):
        bad_values = {3: "x", 50: 2**40, 51: 1.5, 52: [], 99: True}
        records = [
            stream.record(
                key=f"k{number}",
                data={"key": f"k{number}", "number": number, "v": bad_values.get(number, number)},
            )
            for number in range(100)
        ]
        await stream.enriched(*records)
        receipts = await stream.receipts(100)
        letters = await stream.read(stream.topics.dead_letter)
    assert sorted(outcomes(receipts)) == ["dead-letter"] * 5 + ["delivered"] * 95
    assert sorted(letter.key.decode() for letter in letters) == sorted(f"k{number}" for number in bad_values)
    assert all("the column v" in texts(letter)[DETAIL] for letter in letters)


CONSTRAINTS = [
    ("v integer GENERATED ALWAYS AS IDENTITY", "5", "schema", ['column "v"', "OVERRIDING"]),
    ("v integer NOT NULL DEFAULT 1", "null", "constraint", ['column "v"', "23502"]),
    ("v integer CONSTRAINT positive CHECK (v > 0)", "-5", "constraint", ["positive", "23514"]),
    ("v mood", '"angry"', "value", ["column v", "mood", "22P02"]),
    ("v positive", "-5", "constraint", ["positive", "column v"]),
]


@pytest.mark.parametrize(("column", "value", "reason", "expected_texts"), CONSTRAINTS)
async def test_a_constraint_names_the_column_and_the_hint_of_the_database(
    postgres: PostgresTable, column: str, value: str, reason: str, expected_texts: list[str]
) -> None:
    postgres.execute(f"CREATE SCHEMA {postgres.name}_types")
    postgres.execute(f"ALTER ROLE postgres SET search_path = public, {postgres.name}_types")
    try:
        postgres.execute(f"CREATE TYPE {postgres.name}_types.mood AS ENUM ('sad', 'ok')")
        postgres.execute(f"CREATE DOMAIN {postgres.name}_types.positive AS integer CHECK (value > 0)")
        postgres.execute(f"ALTER TABLE {postgres.name} ADD {column}")
        postgres_writer = writer(postgres)
        with pytest.raises(Rejected) as caught:
            await postgres_writer.write([event(1, value)])
        await postgres_writer.close()
    finally:
        postgres.execute("ALTER ROLE postgres RESET ALL")
    assert caught.value.reason == reason
    for text in expected_texts:
        assert text in caught.value.detail
    if value.strip('"') == "angry":
        assert "angry" not in caught.value.detail


async def test_a_missing_partition_is_named(postgres: PostgresTable) -> None:
    partitioned_table = f"{postgres.name}_parts"
    postgres.execute(
        f"CREATE TABLE {partitioned_table} (key text, number integer, v integer, hifi_log uuid, hifi_partition integer,"
        " hifi_offset bigint, hifi_accepted timestamptz, PRIMARY KEY (key, number)) PARTITION BY RANGE (number)"
    )
    postgres_writer = writer(postgres, table=partitioned_table, key=["key", "number"])
    with pytest.raises(Rejected) as caught:
        await postgres_writer.write([event(1, "1")])
    await postgres_writer.close()
    assert caught.value.reason == "constraint"
    assert f'no partition of relation "{partitioned_table}"' in caught.value.detail


async def test_a_value_that_a_trigger_raises_is_not_in_the_detail(postgres: PostgresTable) -> None:
    postgres.execute(
        f"CREATE FUNCTION {postgres.name}_raises() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'refused %', NEW.key USING ERRCODE = '23514'; END $$"
    )
    postgres.execute(
        f"CREATE TRIGGER raises BEFORE INSERT ON {postgres.name} FOR EACH ROW"
        f" EXECUTE FUNCTION {postgres.name}_raises()"
    )
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text")
    postgres_writer = writer(postgres)
    with pytest.raises(Rejected) as caught:
        await postgres_writer.write([event(1, "1", key="secret")])
    await postgres_writer.close()
    assert caught.value.reason == "refused"
    assert "secret" not in caught.value.detail


# Columns that stay as they are


@pytest.fixture
def keeping(postgres: PostgresTable) -> DestinationWriter:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text, ADD hifi_unchanged jsonb")
    return writer(postgres, absent="keep")


async def test_an_absent_column_stays_as_it_is(postgres: PostgresTable, keeping: DestinationWriter) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER v SET NOT NULL")
    await keeping.write([event(1, '"long"', "a"), event(2, None, "a"), event(3, '"b"', "b")])
    await keeping.write([event(4, None, "a")])
    await keeping.write([event(5, None, "b"), event(6, None, "a")])
    await keeping.close()
    rows = postgres.execute(f"SELECT key, number, v, hifi_offset FROM {postgres.name} ORDER BY key")
    assert rows == [("a", 6, "long", 6), ("b", 5, "b", 5)]


async def test_a_change_waits_whose_table_has_lost_a_column_that_is_copied(
    postgres: PostgresTable, keeping: DestinationWriter
) -> None:
    def change(number: int, op: str, gone_columns: list[str], **row: Any) -> OutboundEvent:
        change_values = {"op": op, "table": "public.orders", "key": {"key": "a"}, "gone": gone_columns}
        data = orjson.dumps({"key": "a", "number": number, **row, "change": change_values})
        return event(number, None, "a")._replace(data=data)

    await keeping.write([change(1, "insert", [], v="x")])
    for op in ("snapshot", "insert", "update"):
        with pytest.raises(Missing, match="has no column v any more") as caught:
            await keeping.write([change(2, op, ["v"])])
        assert caught.value.what == "column v of the source table public.orders"
    await keeping.write([change(2, "update", ["other"], v="y")])
    await keeping.close()
    assert postgres.execute(f"SELECT number, v FROM {postgres.name}") == [(2, "y")]


async def test_declared_types_add_and_widen_columns_and_anything_else_waits(postgres: PostgresTable) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER number TYPE smallint")
    declared = writer(postgres, types={"v": "numeric(6,2)", "number": "bigint"})
    await declared.write([event(1, "1.25")])
    assert postgres.execute(f"SELECT number, v::text FROM {postgres.name}") == [(1, "1.25")]
    await declared.close()
    narrower = writer(postgres, types={"v": "numeric(5,2)"})
    with pytest.raises(Missing, match=r"the column v .* has the type numeric\(6,2\)"):
        await narrower.write([event(2, "1.25")])
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER v TYPE numeric(5,2)")
    await narrower.write([event(2, "1.25")])
    await narrower.close()
    wider = writer(postgres, types={"v": "numeric"})
    await wider.write([event(3, "123456.789")])
    await wider.close()
    assert postgres.execute(f"SELECT v::text FROM {postgres.name} ORDER BY number DESC LIMIT 1") == [
        ("123456.789",)
    ]


async def test_an_update_waits_for_the_row_that_has_the_columns_it_leaves(
    postgres: PostgresTable, keeping: DestinationWriter
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER v SET NOT NULL")
    with pytest.raises(Retryable, match="column v"):
        await keeping.write([event(2, None, "a")])
    await keeping.write([event(1, '"long"', "a")])
    await keeping.write([event(2, None, "a")])
    await keeping.close()
    assert postgres.execute(f"SELECT number, v FROM {postgres.name}") == [(2, "long")]


async def test_in_any_order_and_repeated_the_newest_value_of_each_column_stands(
    postgres: PostgresTable, keeping: DestinationWriter
) -> None:
    events = [event(1, '"one"', "a"), event(2, None, "a"), event(3, '"three"', "a"), event(4, None, "a")]
    for order in itertools.permutations(events):
        for sent_event in order:
            await keeping.write([sent_event])
        await keeping.write([order[0], order[0]])
        assert postgres.execute(f"SELECT number, v, hifi_offset FROM {postgres.name}") == [(4, "three", 4)], (
            order
        )
        postgres.execute(f"TRUNCATE {postgres.name}")
    await keeping.close()


async def test_a_column_that_another_log_set_keeps_the_value_that_was_accepted_last(
    postgres: PostgresTable, keeping: DestinationWriter
) -> None:
    """The key went to the other log and came back while an event of it waited for its repetition."""
    first_event = event(5, '"first"', "a")._replace(accepted_us=1)
    late_event = event(6, '"late"', "a")._replace(accepted_us=2)
    foreign_event = event(1, '"other"', "a")._replace(log=OTHER_LOG, accepted_us=3)
    partial = event(2, None, "a")._replace(log=OTHER_LOG, accepted_us=4)
    older_event = event(7, None, "a")._replace(accepted_us=5)
    for before, value in (([foreign_event, partial], "other"), ([partial], "late"), ([], "late")):
        await keeping.write([first_event])
        for sent_event in (*before, older_event, late_event):
            await keeping.write([sent_event])
        assert postgres.execute(f"SELECT number, v FROM {postgres.name}") == [(7, value)]
        with pytest.raises(Rejected, match="superseded"):
            await keeping.write([foreign_event])
        await keeping.write([event(8, '"newest"', "a")._replace(log=OTHER_LOG, accepted_us=6)])
        with pytest.raises(RejectedEvents) as caught:
            await keeping.write([event(1, '"x"', "b"), late_event])
        assert {index: refusal.reason for index, refusal in caught.value.events.items()} == {1: "superseded"}
        assert postgres.execute(f"SELECT key, number, v FROM {postgres.name}") == [("a", 8, "newest")]
        postgres.execute(f"TRUNCATE {postgres.name}")
    await keeping.close()


@pytest.mark.parametrize("seed", range(4))
async def test_partial_events_of_two_logs_in_any_order_leave_the_newest_value_of_each_column(
    postgres: PostgresTable, seed: int
) -> None:
    """Of those that are written: an event is refused if the row has a later one of the other log."""
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text, ADD w text, ADD hifi_unchanged jsonb")
    names = ("key", "number", "v", "w")
    merging_writer = writer(postgres, absent="keep", columns={name: name for name in names})
    rng = random.Random(seed)
    events, log = list[OutboundEvent](), LOG
    for number in range(200):
        if rng.random() < 0.1:
            log = OTHER_LOG if log == LOG else LOG
        second_column = {"w": f"w{number}"} if rng.random() < 0.3 else {}
        value = f'"v{number}"' if rng.random() < 0.3 else None
        partial = event(number, value, rng.choice("abc"), **second_column)
        events.append(partial._replace(log=log, accepted_us=number))
    waiting, written_offsets, refusal_reasons = list(events), set[int](), list[str]()
    while waiting:
        sent_event = waiting.pop(min(int(rng.expovariate(0.3)), len(waiting) - 1))
        try:
            await merging_writer.write([sent_event])
        except Rejected as rejection:
            refusal_reasons.append(rejection.reason)
        else:
            written_offsets.add(sent_event.offset)
            if rng.random() < 0.1:  # written again, now or later
                waiting.insert(rng.randrange(len(waiting) + 1), sent_event)
    await merging_writer.close()
    newest: dict[str, dict[str, Any]] = {}
    for sent_event in events:
        data = orjson.loads(sent_event.data)
        if sent_event.offset in written_offsets:
            newest.setdefault(data["key"], {}).update(data)
    rows = postgres.execute(f"SELECT key, number, v, w FROM {postgres.name}")
    assert sorted(rows) == sorted(tuple(row.get(name) for name in names) for row in newest.values())
    assert set(refusal_reasons) == {"superseded"}


async def test_without_the_column_that_it_needs_a_partial_event_is_refused(postgres: PostgresTable) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text")
    postgres_writer = writer(postgres, absent="keep")
    await postgres_writer.write([event(1, '"x"', "a")])
    with pytest.raises(Rejected, match="hifi_unchanged"):
        await postgres_writer.write([event(2, None, "a")])
    await postgres_writer.close()


async def test_a_column_that_was_mended_is_written_without_a_restart(postgres: PostgresTable) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v date")
    postgres_writer = writer(postgres)
    await postgres_writer.write([event(1, '"2026-07-01"')])
    with pytest.raises(Rejected, match="date"):
        await postgres_writer.write([event(2, '"2026-07-01T12:00:00Z"')])
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER v TYPE timestamptz")
    await postgres_writer.write([event(2, '"2026-07-01T12:00:00Z"')])
    await postgres_writer.close()
    assert postgres.execute(f"SELECT count(*) FROM {postgres.name}") == [(2,)]


# Concurrent writers


@pytest.fixture
def deleting(postgres: PostgresTable) -> dict[str, Any]:
    postgres.execute(
        f"CREATE TABLE {postgres.name}_gone (key text PRIMARY KEY, hifi_log uuid, hifi_partition integer,"
        " hifi_offset bigint, hifi_accepted timestamptz)"
    )
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text")
    return {"delete_when": {"op": "d"}, "tombstones": f"{postgres.name}_gone"}


async def test_a_late_create_and_the_delete_of_its_key_at_the_same_time_leave_no_row(
    postgres: PostgresTable, deleting: dict[str, Any]
) -> None:
    """The insert is held by a trigger after it has looked for tombstones, while the delete comes."""
    postgres.execute(
        f"CREATE FUNCTION {postgres.name}_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_sleep(0.5); RETURN NEW; END $$"
    )
    postgres.execute(
        f"CREATE TRIGGER slow BEFORE INSERT ON {postgres.name} FOR EACH ROW EXECUTE FUNCTION {postgres.name}_slow()"
    )
    creating, removing = writer(postgres, **deleting), writer(postgres, **deleting)
    create_write = asyncio.create_task(creating.write([event(1, '"x"', "a")]))
    await asyncio.sleep(0.25)
    await removing.write([event(2, '"x"', "a", op="d")])
    await create_write
    await creating.close()
    await removing.close()
    assert await postgres.rows() == {}


async def test_two_pipes_that_write_the_same_rows_in_opposite_order_never_wait_for_each_other(
    postgres: PostgresTable, deleting: dict[str, Any]
) -> None:
    first, second = writer(postgres, **deleting), writer(postgres, **deleting)
    keys = [f"k{number}" for number in range(50)]

    def batch(round_number: int, order: list[str]) -> list[OutboundEvent]:
        events = [
            event(round_number * 100 + index, '"x"', key, op="d" if index % 7 == 0 else "u")
            for index, key in enumerate(order)
        ]
        return events + [
            event(round_number * 100 + 50 + index, '"y"', key) for index, key in enumerate(order[::3])
        ]

    for round_number in range(30):
        await asyncio.gather(
            first.write(batch(round_number, keys)), second.write(batch(round_number, keys[::-1]))
        )
    await first.close()
    await second.close()


async def test_a_transaction_whose_writer_is_frozen_is_ended_by_the_database(postgres: PostgresTable) -> None:
    """The rows that it has locked can be written by others then."""
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v text")
    frozen, other_writer = writer(postgres, timeout_s=0.6), writer(postgres)
    assert isinstance(frozen, PostgresWriter)
    connection = await frozen._connect()
    await frozen._write(connection, frozen._table.changes([event(1, '"x"', "a")]))
    await other_writer.write([event(2, '"y"', "a")])
    assert await postgres.rows() == {"a": 2}
    await connection.close()
    await other_writer.close()


# Pools of connections


@pytest.fixture
def pooled(postgres: PostgresTable, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[str]:
    """URL of the database through PgBouncer in transaction mode, with two connections to the server."""
    with pool_of(postgres_server.port, tmp_path) as port:
        yield postgres_server.url.replace(str(postgres_server.port), str(port))


async def test_writers_share_the_connections_of_a_pool_and_leave_no_settings(
    postgres: PostgresTable, pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v jsonb")
    postgres.execute(f"CREATE TABLE {postgres.name}_other (LIKE {postgres.name} INCLUDING ALL)")
    monkeypatch.setenv(PostgresTable.VARIABLE, pooled)
    writers = [writer(postgres), writer(postgres, table=f"{postgres.name}_other")]
    async with asyncio.timeout(30):
        while True:
            try:
                await writers[0].write([event(0, "1", "first")])
                break
            except Retryable:  # the pool does not listen yet
                await asyncio.sleep(0.1)
    for round_number in range(1, 30):
        batches = [
            [
                event(round_number * 10 + number, "[1.5]", f"k{number}")
                for number in range(1 + round_number % 7)
            ]
            for _ in range(8)
        ]
        await asyncio.gather(*(writers[index % 2].write(batch) for index, batch in enumerate(batches)))
    with psycopg.connect(pooled, autocommit=True) as connection:
        counts = connection.execute(
            "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),"
            " (SELECT count(*) FROM pg_prepared_statements)"
        ).fetchall()
    for postgres_writer in writers:
        await postgres_writer.close()
    assert counts == [("0", "0", 0)]
    assert len(await postgres.rows()) == 8
