"""Lookups: every source, every way to be wrong, keys, refresh and expiry."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from enriching import make_pipe
from hypothesis import given
from hypothesis import strategies as st

from hifi.errors import Misconfigured
from hifi.pipe.model import Lookup, SqlType
from hifi.pipe.registry import PipeVersion
from hifi_enrich.lookup import load
from hifi_enrich.lookup.key import key_text, table_id, typed
from hifi_enrich.lookup.load import read
from hifi_enrich.lookup.table import build
from hifi_enrich.lookup.tables import Tables

CSV = 'code,name\nAA,"American, Inc."\nUA,\n'


def lookup(file: Path | str = "/x.csv", **more: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **more}
    )


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"code": ["AA", "UA"], "name": ["American, Inc.", None], "other": [1, 2]}), path)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a.csv": lambda path: path.write_text(CSV),
    "bom.csv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode()),
    "a.json": lambda path: path.write_text(
        '[{"code":"AA","name":"American, Inc."},{"code":"UA","name":null}]'
    ),
    "lines.json": lambda path: path.write_text(
        '{"code":"AA","name":"American, Inc."}\n\n{"code":"UA","name":null}\n'
    ),
    "a.ndjson": lambda path: path.write_text(
        '{"code":"AA","name":"American, Inc."}\n{"code":"UA","name":null}'
    ),
    "a.parquet": parquet,
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    SOURCES[name](tmp_path / name)
    one = lookup(tmp_path / name)
    assert build("airlines", one, read(one)).rows == {"AA": ("American, Inc.",), "UA": (None,)}


def test_a_sql_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("create table airlines (code text, name text, size int)")
        database.executemany(
            "insert into airlines values (?, ?, ?)", [("AA", "American", 9), ("UA", None, None)]
        )
    monkeypatch.setenv("DB", f"sqlite:///{tmp_path / 'db'}")
    sql = {"url": {"env": "DB"}, "query": "select * from airlines"}
    one = Lookup.model_validate(
        {"sql": sql, "key": {"c": "code"}, "fields": {"n": "name", "s": "size"}, "types": {"size": "int"}}
    )
    assert build("airlines", one, read(one)).rows == {"AA": ("American", "9"), "UA": (None, None)}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", None, "does not exist"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"code,name\nAA\n", "line 2"),
        ("a.csv", b"code,name\nAA,b,c\n", "line 2"),
        ("a.csv", b"code,title\nAA,b\n", "no column name; it has code, title"),
        ("a.csv", b"broken", "no column code, name; it has broken"),
        ("a.csv", b"code,name\n\xff,b\n", "not UTF-8"),
        ("a.csv", b'code,name\n"AA,b\n', "cannot be read"),
        ("a.json", b"[{]", "cannot be read"),
        ("a.json", b"[1]", "array of objects"),
        ("a.ndjson", b'{"code":"AA","name":"x"}\n{', "line 2 is not JSON"),
        ("a.ndjson", b"3\n", "line 1 is not a JSON object"),
        ("a.parquet", b"PAR1 not really", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(Misconfigured, match=told) as caught:
        read(lookup(tmp_path / name))
    assert name in str(caught.value)


def test_a_parquet_file_without_rows_must_have_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"title": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(Misconfigured, match="no column code, name; it has title"):
        read(lookup(tmp_path / "a.parquet"))


def test_a_driver_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", "cockroachdb+psycopg2cffi://host/db")
    one = Lookup.model_validate(
        {"sql": {"url": {"env": "DB"}, "query": "select 1"}, "key": {"c": "c"}, "fields": {"n": "n"}}
    )
    with pytest.raises(Misconfigured, match="the query of the SQL table"):
        read(one)
    monkeypatch.setenv("DB", "mysql+mysqldb://host/db")
    with pytest.raises(Misconfigured, match="driver that is not installed"):
        read(one)


def test_of_equal_keys_the_last_counts_and_null_keys_are_left_out() -> None:
    rows = [{"code": "A", "name": "1"}, {"code": None, "name": "2"}, {"code": "A", "name": "3"}]
    assert build("x", lookup(), rows).rows == {"A": ("3",)}


def test_equal_content_is_an_equal_table_and_other_content_is_not() -> None:
    tables = [build("x", lookup(), [{"code": "A", "name": name}]) for name in ("1", "1", "2")]
    assert tables[0] == tables[1] != tables[2]


@given(st.lists(st.lists(st.text(max_size=4), min_size=2, max_size=2), min_size=2, max_size=2))
def test_different_composite_keys_never_look_alike(keys: list[list[str]]) -> None:
    assert (key_text(keys[0]) == key_text(keys[1])) == (keys[0] == keys[1])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("7", "int", 7), (7.0, "bigint", 7), (" ", "int", None), (float("nan"), "double", None), ("T", "boolean", True),
        ("2024-02-29", "date", "2024-02-29"),
        ("2024-02-29T01:00:00+01:00", "timestamp", "2024-02-29T00:00:00.000000+00:00"),
        (3, "string", "3"), (True, "string", "true"),
    ],
)  # fmt: skip
def test_values_are_read_as_their_types(value: Any, kind: str, expected: Any) -> None:
    assert typed(value, SqlType(kind)) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("7.5", "int"), (2**31, "int"), ("inf", "bigint"), ("NA", "int"), ("2", "boolean"), ("x", "date"),
        ("9999-12-31T23:59:59-05:00", "timestamp"),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_type_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(ValueError):
        typed(value, SqlType(kind))


def test_a_table_is_shared_only_by_lookups_that_hold_the_same(tmp_path: Path) -> None:
    assert table_id(lookup()) == table_id(lookup(miss="dead-letter"))
    others = [
        lookup(fields={"airline": "title"}),
        lookup("/y.csv"),
        lookup(key={"carrier": "name"}),
        lookup(types={"name": "int"}),
        lookup(refresh=1),
    ]
    assert len({table_id(one) for one in (lookup(), *others)}) == 6


class Watched:
    """Tables of one pipe with one lookup that is refreshed all the time."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.file = folder / "a.csv"
        self.known = PipeVersion(
            make_pipe(
                fields={"carrier": "string"},
                lookups={"a": lookup(self.file, refresh=0.01, **more).model_dump(exclude_defaults=True)},
            ),
            0,
        )
        self.tables = Tables(folder)
        self.changes = 0
        self.tables.on_change(self.note)

    def note(self) -> None:
        self.changes += 1

    def name(self) -> str | None:
        [table] = self.tables.current().values()
        return table.rows["AA"][0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_missing_file_is_told_and_found_later(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    reasons = await watched.tables.load([watched.known])
    assert "does not exist" in reasons["p"]
    assert "lookup a" in reasons["p"]
    watched.file.write_text(CSV)
    assert await watched.tables.load([watched.known]) == {}
    await watched.tables.stop()


async def test_what_a_driver_raises_is_told_for_its_pipe_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    monkeypatch.setattr(load, "read", lambda _: 1 / 0)
    assert "ZeroDivisionError" in (await watched.tables.load([watched.known]))["p"]
    monkeypatch.undo()
    watched.file.write_text(CSV)
    assert await watched.tables.load([watched.known]) == {}
    await watched.tables.stop()


async def test_a_refresh_is_announced_when_the_content_changed_and_only_then(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.file.write_text(CSV)
    await watched.tables.load([watched.known])
    before = next(iter(watched.tables.current().values()))
    watched.file.write_text(CSV.replace("UA", "UB").replace("UB", "UA"))
    await asyncio.sleep(0.1)
    assert watched.changes == 0
    watched.file.write_text(CSV.replace("American", "Mexican"))
    await until(lambda: watched.changes == 1)
    assert watched.name() == "Mexican, Inc."
    assert before.rows["AA"] == ("American, Inc.",)
    await watched.tables.stop()


async def test_a_file_that_breaks_leaves_the_old_copy_in_force_until_it_expires(tmp_path: Path) -> None:
    watched = Watched(tmp_path, expire=0.5)
    watched.file.write_text(CSV)
    await watched.tables.load([watched.known])
    watched.file.write_text("code,name\nAA\n")
    await asyncio.sleep(0.1)
    assert watched.name() == "American, Inc."
    await until(lambda: not watched.tables.current())
    assert "expired" in (await watched.tables.load([watched.known]))["p"]
    watched.file.write_text(CSV)
    await until(lambda: len(watched.tables.current()) == 1)
    await watched.tables.stop()
