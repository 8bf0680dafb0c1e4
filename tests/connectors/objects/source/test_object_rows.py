"""A worker that a parser ends is started again. An object that ends it repeatedly ends with a row that says so."""

import asyncio
import contextlib
import gzip
import io
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyarrow import parquet

from hifi.runtime.errors import Retryable
from hifi_objects.source.object_rows import ObjectRows
from hifi_objects.source.row_worker import RowWorker
from hifi_objects.source.rows.messages import Rows
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat
from hifi_objects.source.store import OpenObject
from hifi_objects.source.version import ObjectGone

MEMORY_BYTES = 128 * 1024 * 1024
MAX_BYTES = 1024 * 1024


class EndedWorker(RowWorker):
    """A worker that ends when it is about to read row `end_row`, `times` times."""

    def __init__(
        self, end_row: int, times: int, answer_s: float = 60.0, with_signal: str = "SIGKILL"
    ) -> None:
        super().__init__(MEMORY_BYTES, answer_s)
        self._signal = signal.Signals[with_signal]
        self.starts = 0
        self._end_row, self._times, self._row = end_row, times, 0

    def kill_at_row(self) -> None:
        """End the process as a parser or the kernel would."""
        assert self._process is not None
        os.kill(self._process.pid, self._signal)

    def open(self, form: RowFormat, file: Any, path: str, skip: int) -> None:
        super().open(form, file, path, skip)
        self._row, self.starts = skip, self.starts + 1

    def next(self, limit: int, through: int | None) -> Rows:
        if self._times and self._row < self._end_row <= self._row + limit:
            self._times -= 1
            self.kill_at_row()
        answer = super().next(limit, through)
        self._row = answer.rows[-1][0] if answer.rows else self._row
        return answer


@contextlib.asynccontextmanager
async def reader(file_format: str, worker: RowWorker) -> AsyncIterator[ObjectRows]:
    rows = ObjectRows(RowFormat(file_format, ",", "utf-8", MAX_BYTES), worker)
    yield rows
    await rows.close()


async def read(
    rows: ObjectRows, path: Path, row: int = 0, last_row: int | None = None, check: Any = lambda: None
) -> list[list[ObjectRow]]:
    with path.open("rb") as file:
        batches = rows.batches(OpenObject(file, check), path.name, row, last_row)
        return [batch.rows async for batch in batches]


def flat(batches: list[list[ObjectRow]]) -> list[ObjectRow]:
    return [row for batch in batches for row in batch]


def lines(path: Path, count: int) -> Path:
    path.write_bytes(b"".join(b'{"n":%d}\n' % number for number in range(1, count + 1)))
    return path


async def test_rows_are_those_of_the_object_from_any_row_on_and_batches_end_where_they_ended(
    tmp_path: Path,
) -> None:
    path = lines(tmp_path / "a", 5000)
    async with reader("ndjson", RowWorker(MEMORY_BYTES)) as rows:
        batches = await read(rows, path, 100, 130)
        assert [row.number for row in batches[0]] == [*range(101, 131)]
        assert [row.number for row in flat(batches)] == [*range(101, 5001)]
        assert orjson.loads(flat(batches)[-1].data or b"") == {"n": 5000}
        assert [row.number for row in flat(await read(rows, path))] == [*range(1, 5001)]
        assert await read(rows, path, 5000) == []


@pytest.mark.parametrize("end_row", [1, 2, 1999, 2001, 4000, 5000])
async def test_a_worker_that_ends_once_loses_and_repeats_no_row(tmp_path: Path, end_row: int) -> None:
    path = lines(tmp_path / "a", 5000)
    async with reader("ndjson", worker := EndedWorker(end_row, 1)) as rows:
        assert [(row.number, row.reason) for row in flat(await read(rows, path))] == [
            (number, "") for number in range(1, 5001)
        ]
        assert worker.starts == 2


@pytest.mark.parametrize(
    ("end_row", "with_signal"), [(1, "SIGSEGV"), (2, "SIGKILL"), (2001, "SIGABRT"), (5000, "SIGSEGV")]
)
async def test_an_object_that_always_ends_the_worker_has_its_rows_before_and_then_one_that_says_so(
    tmp_path: Path, end_row: int, with_signal: str
) -> None:
    bad_file, good_file = lines(tmp_path / "bad", 5000), lines(tmp_path / "good", 3)
    async with reader("ndjson", worker := EndedWorker(end_row, 1000, with_signal=with_signal)) as rows:
        *rows_before, last_row = flat(await read(rows, bad_file))
        assert [(row.number, row.reason) for row in rows_before] == [
            (number, "") for number in range(1, end_row)
        ]
        assert (last_row.number, last_row.reason, last_row.data) == (end_row, "unreadable-object", None)
        assert (
            last_row.detail
            == f"bad: the object cannot be read after row {end_row - 1}: its reader ended with {with_signal}"
        )
        assert worker.starts <= 3, "it is not started again and again"
        worker._times = 0
        assert [row.number for row in flat(await read(rows, good_file))] == [1, 2, 3]


def too_large_parquet(path: Path) -> Path:
    sink = io.BytesIO()
    table = pa.table({"v": ["x" * (190 * 1024 * 1024)]})
    parquet.write_table(table, sink, compression="brotli", use_dictionary=False, write_statistics=False)
    path.write_bytes(sink.getvalue())
    assert path.stat().st_size < 2000
    return path


async def test_a_few_bytes_that_expand_to_more_than_the_memory_refuse_their_object_alone(
    tmp_path: Path,
) -> None:
    bad_file = too_large_parquet(tmp_path / "bad")
    parquet.write_table(pa.table({"n": [*range(600)]}), good_file := tmp_path / "good")
    async with reader("parquet", RowWorker(MEMORY_BYTES)) as rows:
        (refused_row,) = flat(await read(rows, bad_file))
        assert (refused_row.number, refused_row.reason) == (1, "unreadable-object")
        assert [row.number for row in flat(await read(rows, good_file))] == [*range(1, 601)]


@pytest.mark.parametrize("file_format", ["csv", "ndjson"])
async def test_a_value_of_200_mb_in_a_few_kilobytes_is_refused_alone(
    tmp_path: Path, file_format: str
) -> None:
    value = b"x" * (200 * 1024 * 1024)
    content = (
        b'id,name\n1,a\n2,"' + value + b'"\n3,b\n'
        if file_format == "csv"
        else b'{"id":1}\n{"v":"' + value + b'"}\n{"id":3}\n'
    )
    (path := tmp_path / "bad.gz").write_bytes(gzip.compress(content, 1))
    async with reader(file_format, RowWorker(MEMORY_BYTES)) as rows:
        read_rows = flat(await read(rows, path))
    assert [row.reason for row in read_rows] == ["", "too-large", ""]


async def test_a_row_that_takes_too_long_ends_its_object_and_not_the_next_one(tmp_path: Path) -> None:
    bad_file, good_file = lines(tmp_path / "bad", 10), lines(tmp_path / "good", 3)
    async with reader("ndjson", worker := EndedWorker(5, 1000, 3.0, "SIGSTOP")) as rows:
        *rows_before, last_row = flat(await read(rows, bad_file))
        assert [row.number for row in rows_before] == [1, 2, 3, 4]
        assert (
            last_row.detail
            == "bad: the object cannot be read after row 4: its reader took longer than 3 s for a row"
        )
        worker._times = 0
        assert [row.number for row in flat(await read(rows, good_file))] == [1, 2, 3]


@pytest.mark.parametrize("program", ["/bin/false", "/nonexistent"])
async def test_a_worker_that_cannot_be_started_is_no_fault_of_the_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    path = lines(tmp_path / "a", 3)
    async with reader("ndjson", RowWorker(MEMORY_BYTES)) as rows:
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(Retryable, match="the process that reads objects"):
            await read(rows, path)
        monkeypatch.undo()
        assert [row.number for row in flat(await read(rows, path))] == [1, 2, 3]


async def test_a_changed_object_ends_without_its_rows(tmp_path: Path) -> None:
    def check() -> None:
        raise ObjectGone("changed")

    async with reader("ndjson", RowWorker(MEMORY_BYTES)) as rows:
        with pytest.raises(ObjectGone):
            await read(rows, lines(tmp_path / "a", 3), check=check)


async def test_a_reader_that_is_cancelled_ends_its_worker(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_bytes(gzip.compress(b"x" * 300_000_000, 1))
    async with reader("ndjson", worker := RowWorker(MEMORY_BYTES)) as rows:
        read_task = asyncio.create_task(read(rows, path))
        while worker._process is None:
            await asyncio.sleep(0.01)
        read_task.cancel()
        began_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await read_task
        assert time.monotonic() - began_s < 10
