"""A query reads and changes nothing, ends in time, and says what is wrong with it."""

import sqlite3
from collections.abc import Iterator

import pytest

from hifi.kafka.topics import Topics
from hifi.runtime.errors import Misconfigured
from hifi_cli.query.read_only_sql import select, tables_read
from hifi_cli.query.record_tables import NAMES, create_tables, topics_of
from hifi_cli.query.record_tables import TABLES as ALL_TABLES

TABLES = ["raw", "enriched", "receipts"]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    create_tables(connection, TABLES)
    connection.execute("INSERT INTO receipts (pipe, appended_us) VALUES ('a', 1), ('b', 2), ('c', 3)")
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("sql", "expected_tables"),
    [
        ("select 1 from raw", ["raw"]),
        ("SELECT count(*) FROM Receipts", ["receipts"]),
        ("with r as (select * from enriched) select r.pipe from r join receipts using (event)", TABLES[1:]),
        ("select pipe from receipts where reason = 'raw'", ["receipts"]),
        ("select value ->> '$.raw' from enriched -- and raw", ["enriched"]),
        ("select pipe from raw where event not in (select event from receipts)", ["raw", "receipts"]),
    ],
)
def test_tables_are_those_that_the_query_reads(sql: str, expected_tables: list[str]) -> None:
    assert tables_read(sql, TABLES) == expected_tables


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select absent from raw", "no such column: absent"),
        ("select * from orders", "no such table: orders; there are the tables raw, enriched, receipts"),
        ("selec 1", "syntax error"),
        ("", "incomplete input"),
        ("select 1", "reads no table"),
        ("select 1 from raw; select 2 from raw", "one statement"),
        ("delete from raw", "only reads"),
        ("insert into raw select * from raw", "only reads"),
        ("drop table raw", "only reads"),
        ("attach '/tmp/other' as other", "only reads"),
        ("pragma user_version = 1", "only reads"),
        ("vacuum into '/tmp/other'", "reads no table"),
        ("create table other as select * from raw", "only reads"),
        ("select \x00 from raw", "cannot be read"),
        ("explain select 1 from raw", "syntax error"),
    ],
)
def test_what_is_no_query_is_refused_with_its_reason(sql: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        tables_read(sql, TABLES)


def test_the_first_rows_come_with_their_columns_and_whether_there_are_more(
    database: sqlite3.Connection,
) -> None:
    result = select(database, "select pipe, appended_us n from receipts order by n", rows=2, within_s=10)
    assert result == (["pipe", "n"], [("a", 1), ("b", 2)], True)
    assert select(database, "select pipe from receipts", rows=3, within_s=10).more is False
    assert select(database, "select * from receipts", rows=1, within_s=10).columns == list(NAMES)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "with recursive n(i) as (select 1 union all select i from n) select count(*) from n",
            "longer than 0.2 s",
        ),
        ("select load_extension('/tmp/other') from receipts", "not authorized"),
        ("select length(zeroblob(1000000000)) from receipts", "too big"),
        ("select value ->> '$.a' from (select '{' value from receipts)", "malformed JSON"),
        ("select abs(-9223372036854775808) from receipts", "integer overflow"),
    ],
)
def test_a_query_that_fails_or_does_not_end_says_so(
    database: sqlite3.Connection, sql: str, message: str
) -> None:
    with pytest.raises(Misconfigured, match=message):
        select(database, sql, rows=10, within_s=0.2)


def test_each_table_has_the_topics_of_its_stream() -> None:
    topics = Topics("s")
    existing = [topic.name for topic in topics.all()] + ["s.retry-in.7s", "other.retry-in.5s"]
    table_topics = [name for table in ALL_TABLES for name in topics_of(table, topics, existing)]
    assert set(table_topics) <= set(existing)
    assert len(table_topics) == len(ALL_TABLES) + len(topics.tiers)
    assert "s.retry-in.7s" in table_topics
