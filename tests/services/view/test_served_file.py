"""Which file of a view is read: of its declaration, and the one that is open for writing."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.view.followed_views import followed
from tests.support.view.row_records import LOGS, NOW_US, view

from hifi.runtime.http.problem import Problem
from hifi_view.read import followed_view
from hifi_view.store.row_file import Logs, RowFile
from hifi_view.web.read_pool import ReadPool


def build(database: sqlite3.Connection) -> Any:
    return database.execute("SELECT value FROM hifi_meta WHERE name = 'build'").fetchone()[0]


async def test_no_read_gets_the_rows_of_another_declaration(tmp_path: Path) -> None:
    path = tmp_path / "flights-now.sqlite"
    row_file = RowFile(path, view(), LOGS)
    row_file.close()
    unopened = followed(tmp_path)
    with pytest.raises(Problem):
        await ReadPool(unopened, 1).read(build)
    unopened.admit_file()
    assert await ReadPool(unopened, 1).read(build) == row_file.build
    changed = followed(tmp_path, keep="1h")
    changed.admit_file()
    assert not path.exists()
    with pytest.raises(Problem):
        await ReadPool(changed, 1).read(build)


async def test_no_read_gets_rows_of_raw_after_the_right_to_raw_was_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"from": {"pipe": "flights", "at": "raw"}}
    path = tmp_path / "flights-now.sqlite"
    row_file = RowFile(path, view(**changes), LOGS)
    row_file.close()
    monkeypatch.setenv("HIFI_PIPES_RAW_VIEWS", "flights-now")
    allowed_view = followed(tmp_path, **changes)
    allowed_view.admit_file()
    assert await ReadPool(allowed_view, 1).read(build) == row_file.build
    monkeypatch.setenv("HIFI_PIPES_RAW_VIEWS", "others")
    refused_view = followed(tmp_path, **changes)
    refused_view.admit_file()
    assert not path.exists()
    with pytest.raises(Problem):
        await ReadPool(refused_view, 1).read(build)


async def test_readers_leave_a_file_that_is_replaced_while_they_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_file = RowFile(tmp_path / "flights-now.sqlite", view(), LOGS)
    old_file.close()
    view_in_use = followed(tmp_path)
    view_in_use.admit_file()
    pool, loop = ReadPool(view_in_use, 1), asyncio.get_running_loop()

    def opened_late(*arguments: Any) -> RowFile:
        read = asyncio.run_coroutine_threadsafe(pool.read(build), loop)
        assert read.result(10) == old_file.build
        return RowFile(*arguments)

    monkeypatch.setattr(followed_view, "RowFile", opened_late)
    await view_in_use._open(Logs("c" * 32, "d" * 32))
    try:
        assert await pool.read(build) == view_in_use.build != old_file.build
    finally:
        await view_in_use._in_thread(view_in_use._close)


async def test_rows_expire_in_a_file_that_is_not_open(tmp_path: Path) -> None:
    path = tmp_path / "flights-now.sqlite"
    RowFile(path, view(), LOGS).close()
    table = f'"{view().table}"'
    with sqlite3.connect(path) as database:
        names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        for flight, accepted_us in (("old", NOW_US), ("new", 2**60)):
            values = {"flight": flight, "hifi_accepted_us": accepted_us}
            places = ", ".join("?" * len(names))
            database.execute(
                f"INSERT INTO {table} VALUES ({places})",
                [values.get(name, 0 if name.startswith("hifi_") else None) for name in names],
            )
    database.close()
    await followed(tmp_path)._expire_while_waiting()
    with sqlite3.connect(path) as database:
        assert database.execute(f"SELECT flight FROM {table}").fetchall() == [("new",)]
    database.close()
