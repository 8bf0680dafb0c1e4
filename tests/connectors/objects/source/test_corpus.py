"""Hostile objects: each bad row is refused once with its place, rows beside it are read, and the reader lives on."""

from pathlib import Path

import pytest
from tests.support.objects.hostile_objects import MAX_BYTES, Item, corpus

from hifi_objects.source.object_rows import ObjectRows
from hifi_objects.source.row_worker import RowWorker
from hifi_objects.source.rows.row_format import RowFormat
from hifi_objects.source.store import OpenObject

MEMORY_BYTES = 160 * 1024 * 1024
ITEMS = list(corpus())


async def read(rows: ObjectRows, item: Item, path: Path) -> dict[int, tuple[str, str]]:
    """Reason and detail of each row, by its number."""
    path.write_bytes(item.content())
    row_outcomes: dict[int, tuple[str, str]] = {}
    last_number = 0
    with path.open("rb") as file:
        async for batch, _ in rows.batches(OpenObject(file, lambda: None), item.name, 0, None):
            for row in batch:
                assert row.number > last_number, "numbers rise"
                last_number = row.number
                assert bool(row.reason) == bool(row.detail)
                assert len(row.data or b"") <= MAX_BYTES + 1
                row_outcomes[row.number] = row.reason, row.detail
    return row_outcomes


@pytest.mark.parametrize("file_format", ["ndjson", "csv", "avro", "parquet"])
async def test_hostile_objects_refuse_what_is_bad_and_nothing_else(file_format: str, tmp_path: Path) -> None:
    starts = 0

    class CountedWorker(RowWorker):
        def _start(self):
            nonlocal starts
            starts += 1
            return super()._start()

    rows = ObjectRows(RowFormat(file_format, ",", "utf-8", MAX_BYTES), CountedWorker(MEMORY_BYTES))
    mismatches: list[str] = []
    items = [item for item in ITEMS if item.file_format == file_format]
    assert len(items) >= 13
    for item in items:
        row_outcomes = await read(rows, item, tmp_path / "object")
        good_rows = [number for number, (reason, _) in row_outcomes.items() if not reason]
        refused_rows = {number: reason for number, (reason, _) in row_outcomes.items() if reason}
        for number, (reason, detail) in row_outcomes.items():
            if reason and not detail.startswith(f"{item.name}: "):
                mismatches.append(f"{item.name}: row {number} does not name its place: {detail}")
        if item.good is None:
            if not refused_rows:
                mismatches.append(f"{item.name}: nothing of it is refused")
        elif (good_rows, refused_rows) != (item.good, item.refused):
            mismatches.append(f"{item.name}: {good_rows[:10]} {refused_rows}")
    await rows.close()
    assert mismatches == []
    assert starts <= 1 + 2 * sum(
        "unreadable-object" in item.refused.values() or item.good is None for item in items
    )


def test_the_corpus_has_no_item_twice() -> None:
    item_names = [item.name for item in ITEMS]
    assert len(item_names) == len(set(item_names))
