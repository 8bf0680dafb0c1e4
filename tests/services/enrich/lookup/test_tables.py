"""The tables of all pipes: loading, refreshing, expiring."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.enrich.spark_bench import make_pipe
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer

from hifi.pipe.model import Lookup
from hifi.pipe.revision import PipeRevision
from hifi.runtime.health import Health
from hifi.spark import lookup_reader
from hifi_enrich.lookup.tables import LookupTables

CSV = 'code,name\nAA,"American, Inc."\nUA,\n'


def lookup(file: Path | str = "/x.csv", **more: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **more}
    )


class Watched:
    """Tables of one pipe with one lookup that is refreshed all the time."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.file = folder / "a.csv"
        self.revision = PipeRevision(
            make_pipe(
                fields={"carrier": "string"},
                lookups={"a": lookup(self.file, refresh=0.01, **more).model_dump(exclude_defaults=True)},
            ),
            0,
        )
        self.health = Health("enrich", "e-1")
        self.tables = LookupTables(folder, self.health)
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


async def test_a_missing_file_is_reported_and_found_later(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    reasons = await watched.tables.load([watched.revision])
    assert "does not exist" in reasons["p"]
    assert "lookup a" in reasons["p"]
    watched.file.write_text(CSV)
    assert await watched.tables.load([watched.revision]) == {}
    await watched.tables.stop()


async def test_an_error_of_a_database_driver_affects_its_own_pipe_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path)
    monkeypatch.setattr(lookup_reader, "read_rows", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in (await watched.tables.load([watched.revision]))["p"]
    monkeypatch.undo()
    watched.file.write_text(CSV)
    assert await watched.tables.load([watched.revision]) == {}
    await watched.tables.stop()


@pytest.mark.skipif(not PROGRAMS.exists(), reason="PostgreSQL is not installed")
async def test_a_table_is_not_shared_with_a_pipe_that_may_not_reach_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = {"url": {"env": "DB"}, "query": "select 'AA' as code, 'American' as name"}
    declared = {"a": {"sql": sql, "key": {"carrier": "code"}, "fields": {"airline": "name"}}}
    fields = {"carrier": "string"}
    pipes = [
        PipeRevision(make_pipe(name, fields=fields, lookups=declared), 0) for name in ("shop", "crm", "crm-2")
    ]
    with PostgresServer() as server:
        monkeypatch.setenv("DB", server.url.replace("postgresql:", "postgresql+psycopg:"))
        for entry, refused in (("shop=", {"crm", "crm-2"}), ("crm*=", {"shop"}), ("", set())):
            monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"{entry}database=127.0.0.1:{server.port}")
            tables = LookupTables(tmp_path, Health("enrich", "e-1"))
            for _ in range(2):
                reasons = await tables.load(pipes)
                assert reasons.keys() == refused
                assert all("to which pipes may not connect" in reason for reason in reasons.values())
                assert len(tables.current()) == 1
            await tables.stop()


async def test_a_refresh_is_announced_when_the_content_changed_and_only_then(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.file.write_text(CSV)
    await watched.tables.load([watched.revision])
    before = next(iter(watched.tables.current().values()))
    watched.file.write_text(CSV.replace("UA", "UB").replace("UB", "UA"))
    await asyncio.sleep(0.1)
    assert watched.changes == 0
    watched.file.write_text(CSV.replace("American", "Mexican"))
    await until(lambda: watched.changes == 1)
    assert watched.name() == "Mexican, Inc."
    assert before.rows["AA"] == ("American, Inc.",)
    await watched.tables.stop()


async def test_when_a_file_breaks_the_old_copy_is_used_until_it_expires(tmp_path: Path) -> None:
    watched = Watched(tmp_path, expire=0.5)
    watched.file.write_text(CSV)
    await watched.tables.load([watched.revision])
    watched.file.write_text("code,name\nAA\n")
    await asyncio.sleep(0.1)
    assert watched.name() == "American, Inc."
    await until(lambda: not watched.tables.current())
    assert "expired" in (await watched.tables.load([watched.revision]))["p"]
    watched.file.write_text(CSV)
    await until(lambda: len(watched.tables.current()) == 1)
    await watched.tables.stop()


@pytest.mark.parametrize(
    ("reloaded", "reason"),
    [
        ("code,name\n", "it has 0 rows instead of 2"),
        ("code,name\nAA,\nUA,\n", "0 values of the field airline instead of 2"),
        ("", "it is empty"),
        ("code,name\nAA\n", "line 2"),
        (None, "does not exist"),
    ],
)
async def test_a_reload_that_would_empty_or_null_a_table_is_not_taken_over(
    tmp_path: Path, reloaded: str | None, reason: str
) -> None:
    watched = Watched(tmp_path)
    watched.file.write_text("code,name\nAA,American\nUA,United\n")
    await watched.tables.load([watched.revision])
    assert watched.health.warnings == {}
    if reloaded is None:
        watched.file.unlink()
    else:
        watched.file.write_text(reloaded)
    await until(lambda: reason in watched.health.warnings.get("lookup p/a", ""))
    assert watched.name() == "American"
    assert reason in watched.tables.problems["p/a"]
    assert watched.tables.problems_changed.is_set()
    watched.file.write_text("code,name\nAA,Mexican\n")
    await until(lambda: watched.name() == "Mexican")
    assert watched.health.warnings == watched.tables.problems == {}
    await watched.tables.stop()


async def test_a_declared_bound_lets_a_table_shrink(tmp_path: Path) -> None:
    watched = Watched(tmp_path, shrink=1)
    watched.file.write_text(CSV)
    await watched.tables.load([watched.revision])
    watched.file.write_text("code,name\n")
    await until(lambda: next(iter(watched.tables.current().values())).rows == {})
    assert watched.health.warnings == {"lookup p/a": "it has no rows"}
    await watched.tables.stop()
