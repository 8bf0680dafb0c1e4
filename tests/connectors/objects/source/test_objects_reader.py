"""One object that cannot be read holds no other up, and every row has one id, without a Kafka."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import _AsyncGeneratorContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import SourceContext, SourceTurn
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import Retryable
from hifi_objects.declaration import ObjectsSource, S3Settings
from hifi_objects.source import bucket, catalog
from hifi_objects.source.bucket import ReadableBucket
from hifi_objects.source.catalog import KnownObject
from hifi_objects.source.folder import ReadableFolder
from hifi_objects.source.objects_reader import ObjectsReader
from hifi_objects.source.row_events import ObjectRowEvents
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.store import OpenObject
from hifi_objects.source.version import ObjectGone, ObjectRefused, ObjectUnreadable, ObjectVersion


class Turn(SourceTurn):
    """Keeps everything in memory, as JSON."""

    def __init__(self, entries: dict[str, Any] | None = None) -> None:
        self.kept: dict[str, Any] = entries or {}
        self.written: list[SourceEvent] = []
        self.warnings: dict[str, str] = {}
        self.positions: dict[str, int] = {}
        """The last one of each source partition."""
        self._over = asyncio.Event()

    @property
    def entries(self) -> Mapping[str, Any]:
        return self.kept

    def over(self) -> bool:
        return self._over.is_set()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.05))

    async def keep(self, entries: Mapping[str, Any]) -> None:
        for name, value in entries.items():
            if value is None:
                self.kept.pop(name, None)
            else:
                self.kept[name] = orjson.loads(orjson.dumps(value))

    async def write(
        self,
        partition: str,
        events: Sequence[SourceEvent],
        accepted_us: int,  # noqa: ARG002
        remaining: int | None = None,  # noqa: ARG002
    ) -> None:
        assert events[0].position > self.positions.get(partition, -1), "positions rise"
        self.positions[partition] = events[-1].position
        self.written += events

    def warn(self, subject: str, reason: str | None) -> None:
        if reason is None:
            self.warnings.pop(subject, None)
        else:
            self.warnings[subject] = reason

    def works(self) -> None:
        pass

    def numbers(self) -> list[int]:
        """Of the rows that were written."""
        return [orjson.loads(event.data or b"")["n"] for event in self.written]

    async def until_written(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.written) < count:
                await asyncio.sleep(0.02)


class GuardedFolder(ReadableFolder):
    """A folder with files that may not be read for now, or whose names cannot be used."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.guarded: set[str] = set()
        self.unusable: set[str] = set()
        self.broken: set[str] = set()
        self.ends_early: Callable[[str], bool] = lambda _: False
        """Whether reading a file fails from now on."""

    def refusal(self, version: ObjectVersion) -> str | None:
        return "rename it" if version.path in self.unusable else None

    def opened(self, version: ObjectVersion) -> _AsyncGeneratorContextManager[OpenObject]:
        if version.path in self.guarded:
            raise ObjectRefused(f"the file {version.path} cannot be read: Permission denied")
        return self._broken() if version.path in self.broken else self._ending(version)

    @asynccontextmanager
    async def _ending(self, version: ObjectVersion) -> AsyncIterator[OpenObject]:
        async with super().opened(version) as open_object:

            def check() -> None:
                open_object.check()
                if self.ends_early(version.path):
                    raise OSError(errno.EIO, "Input/output error")

            yield open_object._replace(check=check)

    @asynccontextmanager
    async def _broken(self) -> AsyncIterator[OpenObject]:
        """A file whose reading fails with EIO, as that of a damaged disk."""
        with Path("/proc/self/mem").open("rb", buffering=0) as file:
            yield OpenObject(file, lambda: None)


class FolderThatIsAway(ReadableFolder):
    """A folder that is unmounted after the first listing, until `is_away` ends."""

    is_away = True
    listings = 0

    async def listed(self) -> list[ObjectVersion]:
        self.listings += 1
        return await super().listed() if self.listings == 1 or not self.is_away else []

    def opened(self, version: ObjectVersion) -> _AsyncGeneratorContextManager[OpenObject]:
        if self.is_away:
            raise ObjectGone(f"the file {version.path} was removed")
        return super().opened(version)


def objects_reader(store: ReadableFolder, folder: Path) -> ObjectsReader:
    source = ObjectsSource.model_validate(
        {"kind": "objects", "format": "ndjson", "folder": str(folder), "settle": "0s", "interval": "100ms"}
    )
    return ObjectsReader(source, store, SourceContext("s", "p", 1000, None, 128 * 1024 * 1024))


def write_object(folder: Path, name: str, number: int) -> None:
    (folder / name).write_bytes(b'{"n":%d}\n' % number)
    os.utime(folder / name, (number, number))


async def read_until(reader: ObjectsReader, turn: Turn, count: int) -> None:
    task = asyncio.create_task(reader.read(turn))
    await turn.until_written(count)
    turn._over.set()
    await task


async def read_again(reader: ObjectsReader, turn: Turn) -> None:
    """Read, again whenever the store cannot be read, as collect does."""
    while not turn.over():
        try:
            await reader.read(turn)
        except Retryable:
            await turn.pause(0)


async def test_an_object_that_may_not_be_read_is_read_later_and_others_need_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "POSTPONE_S", 1.0)
    for number, name in enumerate("abc", 1):
        write_object(tmp_path, name, number)
    store, turn = GuardedFolder(tmp_path), Turn()
    store.guarded.add("b")
    task = asyncio.create_task(objects_reader(store, tmp_path).read(turn))
    await turn.until_written(2)
    assert turn.numbers() == [1, 3]
    assert turn.warnings == {
        "object b": "the file b cannot be read: Permission denied; it is tried again, and others are read"
    }
    write_object(tmp_path, "d", 4)
    await turn.until_written(3)
    store.guarded.clear()
    await turn.until_written(4)
    turn._over.set()
    await task
    assert turn.numbers() == [1, 3, 4, 2]
    assert turn.warnings == {}
    assert len({dict(event.headers)["ce_id"] for event in turn.written}) == 4

    second_turn = Turn(turn.kept)
    write_object(tmp_path, "e", 5)
    await read_until(objects_reader(store, tmp_path), second_turn, 1)
    assert second_turn.numbers() == [5], "the next reader reads nothing again"


async def test_an_object_whose_entry_alone_was_committed_is_not_replaced_by_another_one(
    tmp_path: Path,
) -> None:
    for number, name in enumerate("abc", 1):
        write_object(tmp_path, name, number)
    store = GuardedFolder(tmp_path)
    [first_version, *_] = sorted(await store.listed())
    turn = Turn({"o/0": first_version.entry()})
    await read_until(objects_reader(store, tmp_path), turn, 3)
    assert turn.numbers() == [1, 2, 3]


async def test_an_object_whose_reading_fails_is_read_later_and_others_need_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "POSTPONE_S", 1.0)
    for number, name in enumerate("abcd", 1):
        write_object(tmp_path, name, number)
    store, turn = GuardedFolder(tmp_path), Turn()
    store.broken |= {"b", "c"}
    task = asyncio.create_task(read_again(objects_reader(store, tmp_path), turn))
    await turn.until_written(2)
    assert turn.numbers() == [1, 4]
    problem = "cannot be read: [Errno 5] Input/output error; it is tried again, and others are read"
    assert turn.warnings == {f"object {name}": f"the object {name} {problem}" for name in "bc"}
    write_object(tmp_path, "e", 5)
    await turn.until_written(3)
    store.broken.clear()
    await turn.until_written(5)
    turn._over.set()
    await task
    assert turn.numbers()[:3] == [1, 4, 5]
    assert sorted(turn.numbers()) == [1, 2, 3, 4, 5]
    assert turn.warnings == {}


async def test_objects_that_are_away_before_they_are_read_are_read_when_they_are_back(tmp_path: Path) -> None:
    for number, name in enumerate("abc", 1):
        write_object(tmp_path, name, number)
    store, turn = FolderThatIsAway(tmp_path), Turn()
    task = asyncio.create_task(objects_reader(store, tmp_path).read(turn))
    async with asyncio.timeout(60):
        while store.listings < 3:
            await asyncio.sleep(0.02)
    assert turn.written == []
    store.is_away = False
    await turn.until_written(3)
    turn._over.set()
    await task
    assert turn.numbers() == [1, 2, 3]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_an_object_whose_reading_fails_after_some_rows_is_read_on_later_and_others_need_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    monkeypatch.setattr(catalog, "POSTPONE_S", 0.2)
    rows = 20_000
    (tmp_path / "a").write_bytes(b"".join(b'{"n":%d}\n' % number for number in range(rows)))
    os.utime(tmp_path / "a", (1, 1))
    write_object(tmp_path, "b", rows + 1)
    write_object(tmp_path, "c", rows + 2)
    store, turn = GuardedFolder(tmp_path), Turn()
    store.ends_early = lambda path: path == "a" and bool(turn.written)
    task = asyncio.create_task(read_again(objects_reader(store, tmp_path), turn))
    async with asyncio.timeout(60):
        while not {rows + 1, rows + 2} <= set(turn.numbers()):
            await asyncio.sleep(0.02)
    problem = (
        "the object a cannot be read: [Errno 5] Input/output error; it is tried again, and others are read"
    )
    assert turn.warnings == {"object a": problem}
    read_before = len(turn.written) - 2
    assert 0 < read_before < rows
    turn._over.set()
    await task

    second_turn = Turn(turn.kept)
    second_turn.positions = turn.positions
    write_object(tmp_path, "d", rows + 3)
    if is_replaced:
        write_object(tmp_path, "a", rows + 4)
    store.ends_early = lambda _: False
    await read_until(
        objects_reader(store, tmp_path), second_turn, 2 if is_replaced else rows - read_before + 1
    )
    assert second_turn.warnings == {}
    numbers = turn.numbers() + second_turn.numbers()
    numbers_of_a = [number for number in numbers if number < rows]
    assert numbers_of_a == list(range(read_before if is_replaced else rows)), "in order, and once"
    later_numbers = [rows + 1, rows + 2, rows + 3, *([rows + 4] if is_replaced else [])]
    assert sorted(number for number in numbers if number > rows) == later_numbers
    assert len({dict(event.headers)["ce_id"] for event in turn.written + second_turn.written}) == len(numbers)
    assert not [name for name in second_turn.kept if name.startswith("h/")]


@pytest.mark.parametrize("status", [400, 409, 412, 500, 501])
async def test_an_object_of_a_bucket_that_the_server_does_not_give_holds_no_other_up(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(catalog, "POSTPONE_S", 1.0)
    monkeypatch.setenv("TEST_KEY", "k")
    modified, failing_keys = datetime(2026, 1, 2, tzinfo=UTC), {"b"}

    async def listing(_: web.Request) -> web.Response:
        keys = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{modified:%Y-%m-%dT%H:%M:%SZ}</LastModified>"
            f"<ETag>e</ETag><Size>8</Size></Contents>"
            for key in "abc"
        )
        return web.Response(text=f"<ListBucketResult>{keys}</ListBucketResult>")

    async def content(request: web.Request) -> web.Response:
        key = request.match_info["key"]
        headers = {"ETag": "e", "Last-Modified": f"{modified:%a, %d %b %Y %H:%M:%S} GMT"}
        if key in failing_keys:
            return web.Response(status=status)
        return web.Response(body=b'{"n":%d}\n' % (ord(key) - 96), headers=headers)

    application = web.Application()
    application.router.add_get("/lake", listing)
    application.router.add_get("/lake/{key}", content)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    key = {"env": "TEST_KEY"}
    s3 = {"bucket": "lake", "endpoint": f"http://127.0.0.1:{runner.addresses[0][1]}"}
    source = ObjectsSource.model_validate(
        {
            "kind": "objects",
            "format": "ndjson",
            "interval": "100ms",
            "s3": {**s3, "access_key": key, "secret_key": key},
        }
    )
    assert source.s3 is not None
    context = SourceContext("s", "p", 1000, None, 128 * 1024 * 1024)
    turn = Turn()
    reader = ObjectsReader(source, ReadableBucket(source.s3, "shop", None), context)
    task = asyncio.create_task(read_again(reader, turn))
    await turn.until_written(2)
    assert turn.numbers() == [1, 3]
    assert "the object b: " in turn.warnings["object b"]
    failing_keys.clear()
    await turn.until_written(3)
    turn._over.set()
    await task
    assert turn.numbers() == [1, 3, 2]
    assert turn.warnings == {}
    await runner.cleanup()


@pytest.mark.parametrize("stalls", [False, True])
async def test_an_object_may_take_long_as_long_as_it_comes(
    monkeypatch: pytest.MonkeyPatch, stalls: bool
) -> None:
    monkeypatch.setattr(bucket, "_TIMEOUT_S", 1.0)
    monkeypatch.setenv("TEST_KEY", "k")
    modified, chunks = datetime(2026, 1, 2, tzinfo=UTC), [b"x" * bucket._CHUNK_BYTES] * 4
    may_end = asyncio.Event()

    async def content(request: web.Request) -> web.StreamResponse:
        headers = {"ETag": "e", "Last-Modified": f"{modified:%a, %d %b %Y %H:%M:%S} GMT"}
        answer = web.StreamResponse(headers=headers)
        answer.content_length = sum(map(len, chunks))
        await answer.prepare(request)
        for chunk in chunks:
            await answer.write(chunk)
            await asyncio.wait_for(may_end.wait(), 60) if stalls else await asyncio.sleep(0.4)
        return answer

    application = web.Application()
    application.router.add_get("/lake/{key}", content)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    key = {"env": "TEST_KEY"}
    endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    settings = S3Settings.model_validate(
        {"bucket": "lake", "endpoint": endpoint, "access_key": key, "secret_key": key}
    )
    version = bucket._version("a", modified, "e", answer_bytes := sum(map(len, chunks)))
    store = ReadableBucket(settings, "shop", None)
    if stalls:
        with pytest.raises(ObjectUnreadable):
            async with store.opened(version):
                pass
    else:
        async with store.opened(version) as open_object:
            assert len(open_object.file.read()) == answer_bytes
    may_end.set()
    await runner.cleanup()


async def test_a_name_that_cannot_be_used_is_one_dead_letter_and_a_warning(tmp_path: Path) -> None:
    for number, name in enumerate("abc", 1):
        write_object(tmp_path, name, number)
    store, turn = GuardedFolder(tmp_path), Turn()
    store.unusable.add("b")
    await read_until(objects_reader(store, tmp_path), turn, 3)
    refusals = [dict(event.headers).get(REFUSED) for event in turn.written]
    assert [None if refusal is None else parse_refusal(refusal) for refusal in refusals] == [
        None,
        ("unreadable-object", "b: rename it"),
        None,
    ]
    assert turn.warnings == {"names": "b: rename it"}
    second_turn = Turn(turn.kept)
    write_object(tmp_path, "d", 4)
    await read_until(objects_reader(store, tmp_path), second_turn, 1)
    assert second_turn.numbers() == [4]


async def test_objects_of_a_folder_that_cannot_be_listed_are_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "FORGET_S", 0.2)
    (tmp_path / "closed").mkdir()
    write_object(tmp_path, "closed/a", 1)
    write_object(tmp_path, "b", 2)

    class Closing(ReadableFolder):
        closed = False

        async def listed(self) -> list[ObjectVersion]:
            versions = await super().listed()
            if not self.closed:
                return versions
            self.problems = ["the folder closed cannot be listed"]
            return [version for version in versions if not version.path.startswith("closed")]

    store, turn = Closing(tmp_path), Turn()
    task = asyncio.create_task(objects_reader(store, tmp_path).read(turn))
    await turn.until_written(2)
    store.closed = True
    while "listing" not in turn.warnings:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.6)  # three times as long as objects are remembered
    store.closed = False
    write_object(tmp_path, "c", 3)
    await turn.until_written(3)
    turn._over.set()
    await task
    assert turn.numbers() == [1, 2, 3], "what was read is not read again"


@pytest.mark.parametrize("seconds", [-1_000_000_000, 0, 200_000_000_000])
async def test_the_time_of_a_file_may_be_any(tmp_path: Path, seconds: int) -> None:
    write_object(tmp_path, "a", 1)
    os.utime(tmp_path / "a", (seconds, seconds))
    turn = Turn()
    await read_until(objects_reader(ReadableFolder(tmp_path), tmp_path), turn, 1)
    (event,) = turn.written
    assert ("ce_time" in dict(event.headers)) == (seconds >= 0)


def test_ids_of_long_paths_are_bounded_different_and_end_with_the_row() -> None:
    source = ObjectsSource.model_validate({"kind": "objects", "format": "ndjson", "folder": "/x"})
    ids = set()
    for path in ("x" * 1000, "x" * 999 + "y", "ä" * 500, "x"):
        version = KnownObject(0, ObjectVersion(path, "1-2", 3, 4))
        rows = [ObjectRow(number, b"{}") for number in (1, 2**32 - 1)]
        for row, event in zip(rows, ObjectRowEvents(source, "file:///x").of(version, rows), strict=True):
            identifier = dict(event.headers)["ce_id"]
            assert identifier.endswith(b"/%d" % row.number)
            assert len(identifier) <= 512
            assert event.key == identifier
            ids.add(identifier)
    assert len(ids) == 8
    assert b"x/1-2/1" in ids
