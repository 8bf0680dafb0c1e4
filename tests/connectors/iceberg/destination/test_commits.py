"""Commits of two logs of a stream to one table, on a real catalog: neither fences the other or loses its progress."""

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile

from hifi.pipe.model import SqlType
from hifi.runtime.errors import Fenced
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.commits import TableCommits
from hifi_iceberg.destination.file_store import FileStore
from hifi_iceberg.destination.progress import (
    OFFSETS,
    SETTLED_UNTIL,
    WRITER,
    PartitionProgress,
    TableOwner,
    TableProgress,
)

BLUE, GREEN = "0b" * 16, "0e" * 16


@pytest.fixture
def declared(tmp_path: Path) -> LakeTable:
    settings = IcebergSettings(warehouse=str(tmp_path / "lake"), table="shop.orders", partition="none")
    return LakeTable("p", "lake", settings, {"id": SqlType.INT})


def owner(log: str, pipe: str = "p") -> TableOwner:
    return TableOwner(log, pipe, "lake")


def commits(declared: LakeTable, log: str, pipe: str = "p", topic: str = "") -> TableCommits:
    return TableCommits(open_table(declared), owner(log, pipe), uuid.uuid4().hex, 10, topic=topic)


def file_with(declared: LakeTable, log: str, offsets: range, **columns: object) -> list[str]:
    """A data file as Spark writes one, also with further columns, and its URL."""
    count = len(offsets)
    rows = {
        **columns,
        "id": pa.array(offsets, pa.int32()),
        "hifi_accepted": pa.array([datetime.now(UTC)] * count, pa.timestamp("us", "UTC")),
        "hifi_seq": [f"{log}:{offset}" for offset in offsets],
        "hifi_log": [log] * count,
        "hifi_partition": pa.array([0] * count, pa.int32()),
        "hifi_offset": pa.array(offsets, pa.int64()),
    }
    folder = Path(declared.settings.warehouse) / f"shop/orders/data/hifi-{log}-p.lake.w"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{uuid.uuid4().hex}.parquet"
    parquet.write_table(pa.table(rows), file)
    return [file.as_uri()]


def progress(next_offset: int) -> TableProgress:
    return TableProgress({0: PartitionProgress(next_offset, next_offset - 1)})


@pytest.mark.slow
def test_two_logs_commit_in_turns_and_each_keeps_its_progress(declared: LakeTable) -> None:
    blue, green = commits(declared, BLUE), commits(declared, GREEN)
    for round_number in range(3):
        offsets = range(round_number * 10, round_number * 10 + 10)
        blue.append(file_with(declared, BLUE, offsets), progress(offsets.stop))
        green.append(file_with(declared, GREEN, offsets), progress(offsets.stop))
    green.append(file_with(declared, GREEN, range(30, 35)), progress(35))
    # The next writer of a log finds its progress, although the newest snapshots are of the other log.
    assert commits(declared, BLUE).progress == progress(30)
    assert commits(declared, GREEN).progress == progress(35)
    assert commits(declared, BLUE).progress_at({0: 25}) == progress(20)
    rows = open_table(declared).scan().to_arrow().to_pylist()
    assert sorted((row["hifi_log"], row["hifi_offset"]) for row in rows) == sorted(
        [*((BLUE, offset) for offset in range(30)), *((GREEN, offset) for offset in range(35))]
    )


def test_a_text_whose_bound_cannot_be_cut_is_committed_with_all_of_it(declared: LakeTable) -> None:
    named = replace(declared, columns={"id": SqlType.INT, "name": SqlType.STRING})
    text = "a" * 15 + "\ud7ff" + "z" * 10
    writer = commits(named, BLUE)
    writer.append(file_with(named, BLUE, range(1), name=[text]), progress(1))
    writer.replace(writer.data_files(), file_with(named, BLUE, range(1), name=[text]), progress(1))
    assert writer.table.scan(row_filter=EqualTo(term="name", value=text)).to_arrow()["name"].to_pylist() == [
        text
    ]


def test_a_new_owner_fences_the_old_one_of_its_log_alone(declared: LakeTable) -> None:
    blue, green = commits(declared, BLUE), commits(declared, GREEN)
    newer = commits(declared, BLUE)
    with pytest.raises(Fenced):
        blue.append(file_with(declared, BLUE, range(5)), progress(5))
    green.append(file_with(declared, GREEN, range(5)), progress(5))
    newer.append(file_with(declared, BLUE, range(5)), progress(5))
    assert open_table(declared).scan().to_arrow().num_rows == 10


@pytest.mark.slow
def test_progress_of_a_log_outlives_the_snapshots_of_its_commits(declared: LakeTable) -> None:
    commits(declared, BLUE).append(file_with(declared, BLUE, range(5)), progress(5))
    green = commits(declared, GREEN)
    for round_number in range(12):
        green.append(
            file_with(declared, GREEN, range(round_number, round_number + 1)), progress(round_number + 1)
        )
    assert green.expire(keep=3, keep_s=0) > 5
    assert commits(declared, BLUE).progress == progress(5)


def test_files_of_the_other_log_are_deleted_only_when_no_batch_can_use_them(
    declared: LakeTable, tmp_path: Path
) -> None:
    blue = commits(declared, BLUE)
    blue.append(file_with(declared, BLUE, range(5)), progress(5))
    for log in (BLUE, GREEN):
        file_with(declared, log, range(5, 10))
    (old_file,) = file_with(declared, GREEN, range(10, 15))
    two_days_ago_s = time.time() - 2 * 86400
    os.utime(old_file.removeprefix("file://"), (two_days_ago_s, two_days_ago_s))
    blue.table.refresh()
    store = FileStore(blue.table, owner(BLUE), "w", tmp_path)
    assert store.delete_unreferenced(blue.require_ownership) == 2
    remaining_folders = sorted(file.parent.name for file in (tmp_path / "lake").rglob("*.parquet"))
    assert remaining_folders == [f"hifi-{log}-p.lake.w" for log in (BLUE, GREEN)]


def test_a_snapshot_states_until_when_it_is_settled_and_others_do_not_repeat_it(declared: LakeTable) -> None:
    times: list[str | None] = [None, "2026-11-27T12:00:00.000000Z", "2026-11-27T12:00:05.000000Z", None]
    remaining_times = list(times)
    blue = TableCommits(open_table(declared), owner(BLUE), "w", 10, lambda: remaining_times.pop(0))
    for number in range(3):
        blue.append(file_with(declared, BLUE, range(number, number + 1)), progress(number + 1))
    green = commits(declared, GREEN)
    green.append(file_with(declared, GREEN, range(1)), progress(1))
    summaries = [snapshot.summary for snapshot in open_table(declared).snapshots()]
    stated = [summary and summary.additional_properties.get(SETTLED_UNTIL + BLUE) for summary in summaries]
    assert stated == [*times, None, None]


def before_the_next_commit(
    monkeypatch: pytest.MonkeyPatch, writer: TableCommits, act: Callable[[], object]
) -> None:
    """Let another writer act once, between the moment when `writer` reads the table and its commit."""
    acts = [act]
    data_file = writer._data_file

    def describe(path: str) -> DataFile:
        if acts:
            acts.pop()()
        return data_file(path)

    monkeypatch.setattr(writer, "_data_file", describe)


def ids(declared: LakeTable) -> list[int]:
    return sorted(open_table(declared).scan().to_arrow()["id"].to_pylist())


def test_a_commit_that_meets_one_of_another_log_keeps_the_progress_of_that(
    declared: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue, green = commits(declared, BLUE), commits(declared, GREEN)
    green_files = file_with(declared, GREEN, range(10, 15))
    before_the_next_commit(monkeypatch, blue, lambda: green.append(green_files, progress(15)))
    blue.append(file_with(declared, BLUE, range(5)), progress(5))
    assert commits(declared, GREEN).progress == progress(15)
    assert commits(declared, BLUE).progress == progress(5)
    assert ids(declared) == [*range(5), *range(10, 15)]


def test_a_commit_that_meets_a_take_over_is_not_made(
    declared: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = commits(declared, BLUE)
    before_the_next_commit(monkeypatch, blue, lambda: commits(declared, BLUE))
    with pytest.raises(Fenced):
        blue.append(file_with(declared, BLUE, range(5)), progress(5))
    assert ids(declared) == []


def test_a_commit_that_the_catalog_made_and_reported_as_failed_is_made_once(
    declared: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue = commits(declared, BLUE)
    catalog, commit_table, answers = blue.table.catalog, blue.table.catalog.commit_table, ["lost"]

    def commit_and_refuse(*args: Any) -> Any:
        response = commit_table(*args)
        if answers:
            answers.pop()
            raise CommitFailedException("409")
        return response

    monkeypatch.setattr(catalog, "commit_table", commit_and_refuse)
    blue.append(file_with(declared, BLUE, range(5)), progress(5))
    blue.append(file_with(declared, BLUE, range(5, 10)), progress(10))
    assert ids(declared) == [*range(10)]
    assert commits(declared, BLUE).progress == progress(10)


def test_a_former_writer_deletes_no_file_of_its_successor(declared: LakeTable, tmp_path: Path) -> None:
    old = commits(declared, BLUE)
    store = FileStore(old.table, owner(BLUE), "w", tmp_path)
    new = commits(declared, BLUE)
    new.append(file_with(declared, BLUE, range(5)), progress(5))
    with pytest.raises(Fenced):
        store.delete_unreferenced(old.require_ownership)
    assert ids(declared) == [*range(5)]


def test_two_destinations_of_one_table_have_progress_files_and_writers_of_their_own(
    declared: LakeTable, tmp_path: Path
) -> None:
    first, second = commits(declared, BLUE), commits(declared, BLUE, "q")
    first.append(file_with(declared, BLUE, range(5)), progress(5))
    assert second.progress == TableProgress()
    second.append(file_with(declared, BLUE, range(5)), progress(3))
    first.append(file_with(declared, BLUE, range(5, 10)), progress(10))
    assert commits(declared, BLUE, "q").progress == progress(3)
    assert commits(declared, BLUE, "q").progress_at({0: 4}) == progress(3)
    assert commits(declared, BLUE).progress == progress(10)
    file_with(declared, BLUE, range(10, 15))
    third = commits(declared, BLUE, "q")
    store = FileStore(third.table, owner(BLUE, "q"), "w", tmp_path)
    assert store.delete_unreferenced(third.require_ownership) == 0


def test_progress_of_an_earlier_release_is_that_of_whoever_commits_next(
    declared: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def earlier_properties(
        self: TableOwner, progress: TableProgress, writer: str, _topic: str
    ) -> dict[str, str]:
        return {OFFSETS + self.log: progress.dump(), WRITER + self.log: writer}

    with monkeypatch.context() as patch:
        patch.setattr(TableOwner, "properties", earlier_properties)
        patch.setattr(
            TableOwner,
            "is_written_by",
            lambda self, writer, properties: properties[WRITER + self.log] == writer,
        )
        earlier = commits(declared, BLUE)
        earlier.append(file_with(declared, BLUE, range(5)), progress(5))
        earlier_writer = earlier._writer
    owned = commits(declared, BLUE)
    assert owned.progress == progress(5)
    newest = owned._newest_properties()
    assert newest[WRITER + BLUE] != earlier_writer  # which the earlier release compares with its own
    assert commits(declared, BLUE, "q").progress == TableProgress()
    owned.append(file_with(declared, BLUE, range(5, 10)), progress(10))
    assert commits(declared, BLUE).progress_at({0: 7}) == progress(5)
    # Back to the earlier release, which copies the properties that it does not know.
    with monkeypatch.context() as patch:
        patch.setattr(TableOwner, "properties", earlier_properties)
        patch.setattr(
            TableOwner,
            "is_written_by",
            lambda self, writer, properties: properties[WRITER + self.log] == writer,
        )
        commits(declared, BLUE).append(file_with(declared, BLUE, range(10, 15)), progress(15))
    with pytest.raises(Fenced):
        owned.append(file_with(declared, BLUE, range(15, 20)), progress(20))
    assert commits(declared, BLUE).progress == progress(15)


def test_offsets_of_a_topic_that_was_made_again_are_not_decided_but_copies_are_told(
    declared: LakeTable,
) -> None:
    commits(declared, BLUE, topic="a").append(file_with(declared, BLUE, range(5)), progress(5))
    assert commits(declared, BLUE, topic="a").progress == progress(5)
    anew = TableProgress({0: PartitionProgress(0, 4)})
    again = commits(declared, BLUE, topic="b")
    assert again.progress == anew
    assert again.progress_at({0: 2}) == anew
