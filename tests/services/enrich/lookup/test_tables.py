"""The tables of all pipes: loading, refreshing, expiring."""

import asyncio
import threading
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
from hifi_enrich.settings import EnrichSettings

CSV = 'code,name\nAA,"American, Inc."\nUA,\n'


def lookup(file: Path | str = "/x.csv", **options: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **options}
    )


class Watched:
    """Tables of one pipe with one lookup that is refreshed all the time."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.file = folder / "a.csv"
        self.revision = PipeRevision(
            make_pipe(
                fields={"carrier": "string"},
                lookups={"a": lookup(self.file, refresh=0.01, **options).model_dump(exclude_defaults=True)},
            ),
            0,
        )
        self.health = Health("enrich", "e-1")
        self.tables = LookupTables(folder, self.health)
        self.changes = 0
        self.tables.on_change(self.count_change)

    def count_change(self) -> None:
        self.changes += 1

    async def until_loaded(self) -> None:
        """Load again until the table was read; it is read in the background, for which `load` waits a moment only."""
        async with asyncio.timeout(60):
            while await self.tables.load([self.revision]):
                await asyncio.sleep(0.01)

    def name(self) -> str | None:
        [table] = self.tables.current().values()
        return table.rows["AA"][0]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_missing_file_is_reported_and_found_later(tmp_path: Path) -> None:
    watched_lookup = Watched(tmp_path)
    reasons = await watched_lookup.tables.load([watched_lookup.revision])
    assert "does not exist" in reasons["p"]
    assert "lookup a" in reasons["p"]
    watched_lookup.file.write_text(CSV)
    await watched_lookup.until_loaded()
    await watched_lookup.tables.stop()


async def test_an_error_of_a_database_driver_affects_its_own_pipe_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_lookup = Watched(tmp_path)
    monkeypatch.setattr(lookup_reader, "read_rows", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in (await watched_lookup.tables.load([watched_lookup.revision]))["p"]
    monkeypatch.undo()
    watched_lookup.file.write_text(CSV)
    await watched_lookup.until_loaded()
    await watched_lookup.tables.stop()


async def test_a_table_that_nobody_answers_for_is_given_up_and_keeps_no_other_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    others_file = tmp_path / "b.csv"
    others_file.write_text(CSV)
    silent_revision, other_revision = (
        PipeRevision(
            make_pipe(
                name,
                fields={"carrier": "string"},
                lookups={"a": lookup(file, refresh=60).model_dump(exclude_defaults=True)},
            ),
            0,
        )
        for name, file in (("silent", tmp_path / "a.csv"), ("other", others_file))
    )
    read_rows = lookup_reader.read_rows

    def read(declared_lookup: Lookup, pipe: str, *limits: Any) -> Any:
        if pipe == "silent":
            answers.wait()
        return read_rows(declared_lookup, pipe, *limits)

    monkeypatch.setattr(lookup_reader, "read_rows", read)
    tables = LookupTables(tmp_path, Health("enrich", "e-1"), lookup_reader.ReadLimits(query_s=0.2))
    for reason in ("was not read within 0.2 s", "has not ended"):
        reasons = await tables.load([silent_revision, other_revision])
        assert reason in reasons.pop("silent")
        assert reasons == {}
        assert len(tables.current()) == 1
    (tmp_path / "a.csv").write_text(CSV)
    answers.set()
    async with asyncio.timeout(10):
        while await tables.load([silent_revision, other_revision]):
            await asyncio.sleep(0.01)
    assert len(tables.current()) == 2
    await tables.stop()


async def test_a_table_that_failed_is_read_again_beside_and_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_lookup = Watched(tmp_path)
    answers, announcements = threading.Event(), list[None]()
    read_rows = lookup_reader.read_rows

    def read(*arguments: Any) -> Any:
        answers.wait()
        return read_rows(*arguments)

    tables = watched_lookup.tables
    tables.on_change(lambda: announcements.append(None))
    first_reasons = await tables.load([watched_lookup.revision])
    monkeypatch.setattr(lookup_reader, "read_rows", read)
    watched_lookup.file.write_text(CSV)
    async with asyncio.timeout(60):  # a reading may take 120 s
        assert await tables.load([watched_lookup.revision]) == first_reasons
    assert announcements == []
    answers.set()
    async with asyncio.timeout(60):
        while not announcements:
            await asyncio.sleep(0.01)
    assert await tables.load([watched_lookup.revision]) == {}
    await tables.stop()


@pytest.mark.skipif(not PROGRAMS.exists(), reason="PostgreSQL is not installed")
async def test_a_table_is_not_shared_with_a_pipe_that_may_not_reach_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = {"url": {"env": "DB"}, "query": "select 'AA' as code, 'American' as name"}
    lookups = {"a": {"sql": sql, "key": {"carrier": "code"}, "fields": {"airline": "name"}}}
    fields = {"carrier": "string"}
    pipes = [
        PipeRevision(make_pipe(name, fields=fields, lookups=lookups), 0) for name in ("shop", "crm", "crm-2")
    ]
    with PostgresServer() as server:
        monkeypatch.setenv("DB", server.url.replace("postgresql:", "postgresql+psycopg:"))
        for entry, refused_pipes in (("shop=", {"crm", "crm-2"}), ("crm*=", {"shop"}), ("", set())):
            monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"{entry}database=127.0.0.1:{server.port}")
            tables = LookupTables(tmp_path, Health("enrich", "e-1"))
            for _ in range(2):
                reasons = await tables.load(pipes)
                assert reasons.keys() == refused_pipes
                assert all("to which pipes may not connect" in reason for reason in reasons.values())
                assert len(tables.current()) == 1
            await tables.stop()


async def test_a_refresh_is_announced_when_the_content_changed_and_only_then(tmp_path: Path) -> None:
    watched_lookup = Watched(tmp_path)
    watched_lookup.file.write_text(CSV)
    await watched_lookup.tables.load([watched_lookup.revision])
    first_table = next(iter(watched_lookup.tables.current().values()))
    watched_lookup.file.write_text(CSV.replace("UA", "UB").replace("UB", "UA"))
    await asyncio.sleep(0.1)
    assert watched_lookup.changes == 0
    watched_lookup.file.write_text(CSV.replace("American", "Mexican"))
    await until(lambda: watched_lookup.changes == 1)
    assert watched_lookup.name() == "Mexican, Inc."
    assert first_table.rows["AA"] == ("American, Inc.",)
    await watched_lookup.tables.stop()


async def test_when_a_file_breaks_the_old_copy_is_used_until_it_expires(tmp_path: Path) -> None:
    watched_lookup = Watched(tmp_path, expire=0.5)
    watched_lookup.file.write_text(CSV)
    await watched_lookup.tables.load([watched_lookup.revision])
    watched_lookup.file.write_text("code,name\nAA\n")
    await asyncio.sleep(0.1)
    assert watched_lookup.name() == "American, Inc."
    await until(lambda: not watched_lookup.tables.current())
    assert "expired" in (await watched_lookup.tables.load([watched_lookup.revision]))["p"]
    watched_lookup.file.write_text(CSV)
    await until(lambda: len(watched_lookup.tables.current()) == 1)
    await watched_lookup.tables.stop()


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
    watched_lookup = Watched(tmp_path)
    watched_lookup.file.write_text("code,name\nAA,American\nUA,United\n")
    await watched_lookup.tables.load([watched_lookup.revision])
    assert watched_lookup.health.warnings == {}
    if reloaded is None:
        watched_lookup.file.unlink()
    else:
        watched_lookup.file.write_text(reloaded)
    await until(lambda: reason in watched_lookup.health.warnings.get("lookup p/a", ""))
    assert watched_lookup.name() == "American"
    assert reason in watched_lookup.tables.problems["p/a"]
    assert watched_lookup.tables.problems_changed.is_set()
    watched_lookup.file.write_text("code,name\nAA,Mexican\n")
    await until(lambda: watched_lookup.name() == "Mexican")
    assert watched_lookup.health.warnings == watched_lookup.tables.problems == {}
    await watched_lookup.tables.stop()


async def test_a_declared_bound_lets_a_table_shrink(tmp_path: Path) -> None:
    watched_lookup = Watched(tmp_path, shrink=1)
    watched_lookup.file.write_text(CSV)
    await watched_lookup.tables.load([watched_lookup.revision])
    watched_lookup.file.write_text("code,name\n")
    await until(lambda: next(iter(watched_lookup.tables.current().values())).rows == {})
    assert watched_lookup.health.warnings == {"lookup p/a": "it has no rows"}
    await watched_lookup.tables.stop()


async def test_tables_that_need_more_than_their_share_of_sparks_heap_together_are_not_used(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("code,name\n" + "".join(f"{number},n\n" for number in range(1_000)))
    (tmp_path / "b.csv").write_text("code,name\n" + "".join(f"{number},m\n" for number in range(1_000)))
    revisions = {
        name: PipeRevision(
            make_pipe(
                name,
                fields={"carrier": "string"},
                lookups={name: lookup(tmp_path / f"{name}.csv").model_dump(exclude_defaults=True)},
            ),
            0,
        )
        for name in ("a", "b")
    }
    tables = LookupTables(tmp_path, Health("enrich", "e-1"), most_heap_bytes=300_000)
    assert await tables.load([revisions["a"]]) == {}
    reasons = await tables.load(revisions.values())
    assert list(reasons) == ["b"]
    assert "the lookup b cannot be read: its 1,000 rows need 0.2 MiB of Spark's heap" in reasons["b"]
    assert "HIFI_ENRICH_DRIVER_MEMORY" in reasons["b"]
    tables.retain(set())
    async with asyncio.timeout(10):
        while await tables.load([revisions["b"]]):
            await asyncio.sleep(0.01)
    await tables.stop()


@pytest.mark.parametrize(("text", "size"), [("768m", 768 * 2**20), ("2g", 2 * 2**30)])
def test_the_heap_of_the_driver_is_read_from_its_setting(text: str, size: int) -> None:
    assert EnrichSettings(enrich_driver_memory=text).driver_heap_bytes == size
