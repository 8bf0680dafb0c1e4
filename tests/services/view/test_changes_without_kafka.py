"""A stream of changes lacks no row from before the time that it names, nor one that was changed while it was away."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from starlette.requests import Request
from tests.support.view.followed_views import apply, closed, opened
from tests.support.view.row_records import NOW_US, file_of

from hifi.record.cloudevents.timestamps import format_us
from hifi_view.read.completeness import Cut
from hifi_view.read.followed_view import FollowedView
from hifi_view.settings import ViewSettings
from hifi_view.store import row_file
from hifi_view.store.row_queries import RowQueries
from hifi_view.views import Views
from hifi_view.web.api import COMPLETE_UNTIL, ViewApi
from hifi_view.web.read_keys import ReadKeys

FLIGHTS = [f"UA{number:03}" for number in range(600)]
UNTIL = format_us(NOW_US).decode()


def api_of(view_in_use: FollowedView) -> ViewApi:
    name = view_in_use.view.view
    keys = SimpleNamespace(views_of=lambda _: frozenset({name}))
    views = SimpleNamespace(by_name={name: view_in_use})
    return ViewApi(ViewSettings(), cast(Views, views), cast(ReadKeys, keys), asyncio.Event())


async def sent(view_in_use: FollowedView, last_id: str | None = None, before_read: Any = None) -> list[Any]:
    """What a stream sends until it names a time: flight and delay of rows, `reset`, the time; the last id at the end.

    Args:
        view_in_use: that is read.
        last_id: `Last-Event-ID` of the request.
        before_read: called before each read of the file with its number, from 0.
    """
    api = api_of(view_in_use)
    served = api._views[view_in_use.view.view]
    read, reads = served.reads.rows.read, 0

    async def counted(operation: Callable[[sqlite3.Connection], Any]) -> Any:
        nonlocal reads
        if before_read is not None:
            before_read(reads)
        reads += 1
        return await read(operation)

    served.reads.rows.read = counted  # type: ignore[method-assign]  # for the test
    answer: list[Any] = []
    stream = api._events(served, [], last_id)
    try:
        async with asyncio.timeout(20):
            async for block in stream:
                fields = dict(line.split(b": ", 1) for line in block.strip().split(b"\n"))
                last_id = fields[b"id"].decode() if b"id" in fields else last_id
                kind, content = fields.get(b"event", b"").decode(), orjson.loads(fields.get(b"data", b"null"))
                if kind == "row":
                    answer.append((content["flight"], content["delay"]))
                elif kind == "reset":
                    answer.append(kind)
                elif kind == "complete-until":
                    return [*answer, content, last_id]
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
        await read(lambda database: database.close())
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("notes", [True, False], ids=["applied", "just committed"])
async def test_a_stream_names_a_time_once_all_rows_from_before_were_sent(
    tmp_path: Path, *, notes: bool
) -> None:
    view_in_use = await opened(tmp_path)
    try:
        next_offset = apply(view_in_use, FLIGHTS, 0, delay=1)
        view_in_use.add_cut(Cut(NOW_US, {0: next_offset}))

        def change_all(read: int) -> None:
            if read == 1:
                apply(view_in_use, FLIGHTS, next_offset, notes=notes, delay=2)

        answer = await sent(view_in_use, before_read=change_all)
        assert answer[0] == "reset"
        assert answer[-2] == UNTIL
        assert {flight for flight, _ in answer[1:-2]} == set(FLIGHTS)
        assert dict(answer[1:-2]) == dict.fromkeys(FLIGHTS, 2)
    finally:
        await closed(view_in_use)


async def test_a_stream_names_no_time_that_was_withdrawn_while_it_sent_rows(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    try:
        view_in_use.add_cut(Cut(NOW_US, {0: apply(view_in_use, FLIGHTS, 0, delay=1)}))

        def withdraw(read: int) -> None:
            if read == 1:
                view_in_use.complete.forget()

        assert (await sent(view_in_use, before_read=withdraw))[-2] == "none"
    finally:
        await closed(view_in_use)


async def test_changes_are_read_as_of_one_moment(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)

    class Interposed(sqlite3.Connection):
        """All rows change before the statement that reads them."""

        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if "INDEXED BY" in sql:
                apply(view_in_use, FLIGHTS[:9], 9, delay=2)
            return super().execute(sql, *arguments)

    database = sqlite3.connect(file_of(tmp_path), isolation_level=None, factory=Interposed)
    try:
        apply(view_in_use, FLIGHTS[:9], 0, delay=1)
        changes = RowQueries(view_in_use.view).changed(database, [], 0, 500, 60)
        assert [row["flight"] for _, row in changes.rows] == FLIGHTS[:9]
        assert (changes.last_change, changes.is_last) == (9, True)
        assert not database.in_transaction
    finally:
        database.close()
        await closed(view_in_use)


async def test_a_stream_begins_anew_if_its_last_change_was_lost(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    apply(view_in_use, ["UA1"], 0, delay=0)
    await closed(view_in_use)
    copy = tmp_path / "copy"
    shutil.copy(file_of(tmp_path), copy)
    await view_in_use._open(view_in_use._logs)  # type: ignore[arg-type]  # it was open
    for offset in range(1, 5):
        apply(view_in_use, ["UA2" if offset == 1 else "UA1"], offset, delay=offset)
    *_, last_id = await sent(view_in_use)
    await closed(view_in_use)
    shutil.copy(copy, file_of(tmp_path))
    restored = await opened(tmp_path)
    try:
        # The same records in one batch: of each key one change.
        apply(restored, ["UA2", "UA1", "UA1", "UA1"], 1, delay=9)
        assert last_id == f"{restored.build}:{restored.change + 2}"
        answer = await sent(restored, last_id)
        assert answer[:-2] == ["reset", ("UA2", 9), ("UA1", 9)]
    finally:
        await closed(restored)


async def test_changes_are_numbered_anew_after_a_start_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot"
    boot.write_text("first\n")
    monkeypatch.setattr(row_file, "_BOOT_ID", boot)
    builds = []
    for boot_id in ("first", "first", "second", "second"):
        boot.write_text(boot_id)
        view_in_use = await opened(tmp_path)
        builds.append(view_in_use.build)
        *answer, last_id = await sent(view_in_use, f"{builds[0]}:0")
        assert answer == ["none"] if boot_id == "first" else ["reset", "none"]
        assert last_id == f"{view_in_use.build}:0"
        await closed(view_in_use)
    assert (builds[0], builds[2]) == (builds[1], builds[3])
    assert builds[0] != builds[2]


async def test_changes_are_numbered_anew_in_a_copy_of_the_file(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    await closed(view_in_use)
    path = file_of(tmp_path)
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    restored = await opened(tmp_path)
    assert restored.build != view_in_use.build
    await closed(restored)


async def test_the_time_of_an_answer_is_read_after_the_request(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    try:
        view_in_use.add_cut(Cut(NOW_US, {0: apply(view_in_use, ["UA1"], 0)}))
        name = view_in_use.view.view

        async def receive() -> dict[str, Any]:
            view_in_use.complete.forget()  # as for a file that is made anew
            return {"type": "http.request", "body": b'{"sql": "SELECT 1"}', "more_body": False}

        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        api = api_of(view_in_use)
        answer = await api.of_view("sql", api.sql)(Request({**scope, "path_params": {"name": name}}, receive))
        assert answer.status_code == 200
        assert answer.headers[COMPLETE_UNTIL] == "none"
    finally:
        await closed(view_in_use)
