"""The service lake on a real Kafka and Spark: each event becomes one row and gets one receipt."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from tests.support.held_pipes import unreadable_record
from tests.support.lake.lake_stream import LakeStream, order
from tests.support.small_disk import filled, small_disk

from hifi.delivery.dead_letters.letter import DeadLetterFilter
from hifi.delivery.dead_letters.reader import letters
from hifi.delivery.dead_letters.replay import replay
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import pipe_record
from hifi.record.headers import DESTINATION, DETAIL, REASON, SOURCE
from hifi.record.record import Record

pytestmark = pytest.mark.timeout(300)
NOT_READY = 503
FIELDS = {"id": "int", "total": "double"}


async def test_each_event_is_one_row_with_one_receipt_also_when_enrich_wrote_it_twice(
    kafka: str, tmp_path: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    records = [stream.record(number, order(number, number / 2)) for number in range(20)]
    not_json = stream.record(20, b"plain text")
    stream.start()
    try:
        await stream.enrich([*records, not_json, *records[5:15]])
        await stream.until(lambda rows: rows.num_rows >= 20)
        await stream.until_receipts(21)
        # A new column, and copies after the commit.
        await stream.declare(FIELDS | {"note": "string"})
        later_records = [stream.record(21, b'{"id":21,"total":"wrong","note":"new"}'), *records]
        await stream.enrich([*later_records, stream.record(22, order(22, 0))])
        await stream.until(lambda rows: rows.num_rows >= 22)
        receipts = await stream.until_receipts(23)
    finally:
        stream.stop()
    rows = stream.rows().to_pylist()
    assert sorted((row["id"], row["total"], row["note"]) for row in rows) == [
        *((number, number / 2, None) for number in range(20)),
        (21, None, "new"),
        (22, 0.0, None),
    ]
    assert receipts == {
        **{(number, "delivered"): 1 for number in [*range(20), 21, 22]},
        (20, "dead-letter"): 1,
    }
    orders = stream.table().scan().to_arrow()
    sums = duckdb.sql("select count(*), sum(total), count(distinct hifi_seq) from orders")
    assert sums is not None
    assert sums.fetchall() == [(22, 95.0, 22)]
    assert orders.num_rows == 22


@pytest.mark.more
@pytest.mark.parametrize("point", ["before the commit", "before the receipts", "before the offsets"])
async def test_a_killed_service_leaves_each_event_as_one_row_with_one_receipt(
    kafka: str, tmp_path: Path, point: str
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    records = [stream.record(number, order(number, 1)) for number in range(30)]
    await stream.enrich([*records[:20], *records[5:10]])
    stream.start(kill_at=point)
    await stream.killed()
    row_count = stream.rows().num_rows
    assert row_count == (0 if point == "before the commit" else 20)
    await stream.enrich([*records[10:], *records])
    stream.start()
    try:
        await stream.until(lambda rows: rows.num_rows >= 30)
        receipts = await stream.until_receipts(30)
        await stream.until_caught_up()
    finally:
        stream.stop()
    rows = stream.rows()
    assert sorted(rows["id"].to_pylist()) == list(range(30))
    assert await stream.receipts() == receipts == {(number, "delivered"): 1 for number in range(30)}
    assert stream.unreferenced_files() == []


@pytest.mark.more
async def test_two_logs_with_equal_partitions_and_offsets_write_one_table_each_event_once(
    kafka: str, tmp_path: Path
) -> None:
    """The logs are those of two colours; the service of one is killed between its commit and its receipts."""
    folders = [tmp_path / "blue", tmp_path / "green"]
    for folder in folders:
        folder.mkdir()
    blue, green = [
        await LakeStream(kafka, folder, tmp_path / "warehouse").create(FIELDS) for folder in folders
    ]
    blue_records = [blue.record(number, order(number, 1)) for number in range(30)]
    green_records = [green.record(number, order(number, 1)) for number in range(100, 130)]
    await blue.enrich(blue_records[:20])
    blue.start()
    try:
        await blue.until(lambda rows: rows.num_rows >= 20)
        await green.enrich([*green_records[:20], *green_records[5:10]])
        green.start(kill_at="before the receipts")
        await green.killed()
        await blue.enrich([*blue_records[20:], *blue_records])
        await green.enrich([*green_records[20:], *green_records])
        green.start()
        await green.until(lambda rows: rows.num_rows >= 60)
        receipts = [await stream.until_receipts(30) for stream in (blue, green)]
        for stream in (blue, green):
            await stream.until_caught_up()
    finally:
        blue.stop()
        green.stop()
    rows = blue.rows().to_pylist()
    assert sorted(row["id"] for row in rows) == [*range(30), *range(100, 130)]
    assert len({row["hifi_log"] for row in rows}) == 2
    assert len({(row["hifi_partition"], row["hifi_offset"]) for row in rows}) == 30
    assert receipts == [{(first + n, "delivered"): 1 for n in range(30)} for first in (0, 100)]
    assert blue.unreferenced_files() == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "32m") as folder:
        yield folder


@pytest.mark.more
@pytest.mark.parametrize("full_disk", ["warehouse", "checkpoint"])
async def test_while_a_disk_is_full_deliveries_wait_and_then_each_event_is_one_row(
    kafka: str, tmp_path: Path, disk: Path, full_disk: str
) -> None:
    warehouse = disk / "warehouse" if full_disk == "warehouse" else None
    stream = await LakeStream(kafka, tmp_path, warehouse).create(FIELDS)
    settings: dict[str, Any] = {} if warehouse else {"lake_temp": disk}
    stream.start(**settings)
    try:
        await stream.enrich([stream.record(number, order(number, 1)) for number in range(10)])
        await stream.until(lambda rows: rows.num_rows == 10)
        with filled(disk):
            await stream.enrich([stream.record(number, order(number, 1)) for number in range(10, 20)])
            async with asyncio.timeout(120):
                while stream.ready()[0] != NOT_READY or "No space left" not in stream.log.read_text():
                    await asyncio.sleep(0.2)
            assert stream.rows().num_rows == 10
        rows = await stream.until(lambda rows: rows.num_rows >= 20)
        receipts = await stream.until_receipts(20)
    finally:
        stream.stop()
    assert sorted(rows["id"].to_pylist()) == [*range(20)]
    assert receipts == {(number, "delivered"): 1 for number in range(20)}


@pytest.mark.more
async def test_a_backlog_larger_than_the_disk_for_temporary_files_is_written(
    kafka: str, tmp_path: Path, disk: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path, partition="none").create(FIELDS)
    count = 8000
    for first_number in range(0, count, 1000):
        numbers = range(first_number, first_number + 1000)
        data = [orjson.dumps({"id": number, "pad": os.urandom(13_000).hex()}) for number in numbers]
        await stream.enrich([stream.record(number, text) for number, text in zip(numbers, data, strict=True)])
    stream.start(lake_temp=disk, lake_driver_memory="600m")
    try:
        rows = await stream.until(lambda rows: rows.num_rows >= count)
        await stream.until_caught_up()
        receipts = await stream.until_receipts(count)
    finally:
        stream.stop()
    assert sorted(rows["id"].to_pylist()) == [*range(count)]
    assert receipts == {(number, "delivered"): 1 for number in range(count)}
    assert any("batches-reduced" in line for line in stream.log_lines()), "the disk was not too small"


@pytest.mark.more
async def test_rows_are_merged_by_position_and_deleted(kafka: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mode": "upsert",
        "key": ["id"],
        "delete_when": {"op": "d"},
        "attributes": {"event": "id"},
    }
    stream = await LakeStream(kafka, tmp_path, **settings).create(FIELDS)

    numbers = iter(range(100))

    def change(row: int, total: float, op: str = "u") -> tuple[int, Record]:
        data = orjson.dumps({"id": row, "total": total, "op": op})
        return stream.record(next(numbers), data, row=row)

    stream.start(lake_compact_files=2)
    try:
        # Within a batch and over several: the last one counts.
        first_changes = [change(row, 1) for row in range(12)]
        await stream.enrich(
            [*first_changes, change(0, 2), change(1, 0, "d"), change(2, 0, "d"), change(2, 3)]
        )
        await stream.until_receipts(16)
        await stream.enrich([change(3, 4), change(4, 0, "d"), change(1, 5), change(12, 6)])
        await stream.until_receipts(20)
        # A replay that re-entered at enrich has its old position: it changes nothing, and is no copy.
        data = orjson.dumps({"id": 3, "total": 99, "op": "u"})
        old_replay = stream.record(50, data, row=3, raw=0, hifi_replay=b"1", hifi_service=b"enrich")
        keyless_record = stream.record(51, b'{"total":1,"op":"u"}')
        await stream.enrich([old_replay, keyless_record, *first_changes])
        receipts = await stream.until_receipts(22)
        await stream.until_caught_up()
    finally:
        stream.stop()
    rows = stream.rows().to_pylist()
    assert {row["id"]: row["total"] for row in rows} == {
        **dict.fromkeys(range(5, 12), 1.0), 0: 2.0, 1: 5.0, 2: 3.0, 3: 4.0, 12: 6.0
    }  # fmt: skip
    assert len(rows) == 12
    assert {row["event"] for row in rows if row["id"] in (0, 1, 3, 5)} == {"12", "18", "16", "5"}
    assert receipts[51, "dead-letter"] == 1
    assert receipts.total() == 22


@pytest.mark.more
async def test_commits_of_others_are_no_obstacle(kafka: str, tmp_path: Path) -> None:
    stream = await LakeStream(kafka, tmp_path, partition="none").create(FIELDS)
    stream.start()
    try:
        await stream.enrich([stream.record(0, order(0, 1))])
        await stream.until(lambda rows: rows.num_rows == 1)
        table = stream.table()
        row = table.scan().to_arrow()
        sent_count = 1
        for commit_number in range(8):  # another writer appends rows while lake commits
            await stream.enrich(
                [
                    stream.record(sent_count + order_number, order(sent_count + order_number, 1))
                    for order_number in range(4)
                ]
            )
            sent_count += 4
            foreign_row = row.set_column(
                0, row.schema.field(0), pa.array([-1 - commit_number], row.schema.field(0).type)
            )
            for attempt in range(50):
                try:
                    stream.table().append(foreign_row)
                    break
                except CommitFailedException:
                    assert attempt < 49
        await stream.until(lambda rows: rows.num_rows >= sent_count + 8)
        receipts = await stream.until_receipts(sent_count)
    finally:
        stream.stop()
    assert sorted(stream.rows()["id"].to_pylist()) == [*range(-8, 0), *range(sent_count)]
    assert receipts == {(number, "delivered"): 1 for number in range(sent_count)}


@pytest.mark.more
async def test_small_files_become_few_and_old_snapshots_expire(kafka: str, tmp_path: Path) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    stream.start(lake_compact_files=5, lake_keep_snapshots=10, lake_keep_snapshots_s=0)
    try:
        sent_count = 0
        end_s = time.monotonic() + 600
        while not any("snapshots-expired" in line for line in stream.log_lines()):
            assert time.monotonic() < end_s, stream.log_lines()[-20:]
            await stream.enrich([stream.record(sent_count, order(sent_count, 1))])
            sent_count += 1
            await stream.until_receipts(sent_count)
        await stream.until_caught_up()
    finally:
        stream.stop()
    table = stream.table()
    assert sorted(stream.rows()["id"].to_pylist()) == list(range(sent_count))
    assert len(list(table.scan().plan_files())) < sent_count / 2
    assert len(table.snapshots()) < sent_count
    assert stream.unreferenced_files() == []


@pytest.mark.more
async def test_no_record_that_was_written_by_hand_stops_a_table(kafka: str, tmp_path: Path) -> None:
    stream = await LakeStream(kafka, tmp_path).create({"id": "int", "at": "timestamp", "name": "string"})
    partition, event = stream.record(0, b"{}")
    no_text = [(SOURCE, b"enriched:0"), (DESTINATION, b"\xff")]
    producer = Producer(kafka, "test")
    await producer.start()
    hand_written = Record(b"k", None, [*event.headers, *no_text])
    await producer.send_and_wait(stream.topics.receipts, partition, [hand_written])
    await producer.stop()
    values = {"id": 1, "at": "9999-12-31T23:59:59-05:00", "name": "a" * 15 + "\ud7ff" + "z" * 9}
    await stream.enrich(
        [stream.record(1, orjson.dumps(values)), stream.record(2, order(2, 2), revision_offset=10**6)]
    )
    stream.start()
    try:
        [row] = (await stream.until(lambda rows: rows.num_rows == 1)).to_pylist()
        await stream.until_caught_up()
        [letter] = [letter async for letter in letters(kafka, stream.topics, DeadLetterFilter())]
    finally:
        stream.stop()
    assert {name: row[name] for name in values} == values | {"at": None}
    assert any("record-unreadable" in line for line in stream.log_lines())
    assert letter.text(REASON) == "pipe-unreadable"
    assert "the revision at offset 1000000 of the topic pipes, which was never published" in letter.text(
        DETAIL
    )


@pytest.mark.more
async def test_deliveries_of_a_pipe_that_this_release_has_never_read_are_dead_letters(
    kafka: str, tmp_path: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    await publish(kafka, stream.topics, [unreadable_record(stream.pipe(FIELDS, "q", table="shop.others"))])
    offset = (await read_registry(kafka, stream.topics)).offset
    held_record = stream.record(1, order(1, 1), pipe="q", revision_offset=offset)
    await stream.enrich([held_record, stream.record(2, order(2, 2))])
    stream.start()
    try:
        assert await stream.until_receipts(2) == {(1, "dead-letter"): 1, (2, "delivered"): 1}
    finally:
        stream.stop()
    [letter] = [
        letter async for letter in letters(kafka, stream.topics, DeadLetterFilter(reason="pipe-unreadable"))
    ]
    assert letter.text(DESTINATION) == "lake"


@pytest.mark.more
async def test_two_pipes_and_a_destination_with_a_new_name_share_a_table_and_lose_no_row(
    kafka: str, tmp_path: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    await publish(kafka, stream.topics, [pipe_record(stream.pipe(FIELDS, "q"))])
    records = [
        stream.record(number, order(number, 1), pipe="p" if number % 3 else "q") for number in range(40)
    ]
    await stream.enrich(records[:20])
    stream.start()
    try:
        await stream.until(lambda rows: rows.num_rows >= 20)
        await stream.enrich([*records[20:], *records])
        await stream.until(lambda rows: rows.num_rows >= 40)
        receipts = await stream.until_receipts(40)
        await stream.until_caught_up()
        renamed = stream.pipe(FIELDS).model_dump(mode="json", by_alias=True, exclude_unset=True)
        renamed["destinations"][0]["name"] = "lake2"
        await publish(kafka, stream.topics, [pipe_record(Pipe.model_validate(renamed), 2)])
        offset = (await read_registry(kafka, stream.topics)).offset
        old_names = [stream.record(number, order(number, 1)) for number in range(40, 50)]
        new_names = [
            stream.record(number, order(number, 1), destination="lake2", revision_offset=offset)
            for number in range(50, 60)
        ]
        await stream.enrich([*old_names, *new_names])
        await stream.until(lambda rows: rows.num_rows >= 60)
        receipts = await stream.until_receipts(60)
        await stream.until_caught_up()
    finally:
        stream.stop()
    assert sorted(stream.rows()["id"].to_pylist()) == [*range(60)]
    assert receipts == {(number, "delivered"): 1 for number in range(60)}
    assert stream.unreferenced_files() == []


@pytest.mark.more
async def test_events_of_a_topic_that_was_made_again_become_rows(kafka: str, tmp_path: Path) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    await stream.enrich([stream.record(number, order(number, 1)) for number in range(20)])
    stream.start()
    try:
        await stream.until(lambda rows: rows.num_rows >= 20)
        await stream.until_receipts(20)
        await stream.until_caught_up()
    finally:
        stream.stop()
    await stream.make_enriched_again()
    await stream.enrich([stream.record(number, order(number, 1)) for number in range(20, 25)])
    stream.start()
    try:
        await stream.until(lambda rows: rows.num_rows >= 25)
        receipts = await stream.until_receipts(25)
    finally:
        stream.stop()
    assert sorted(stream.rows()["id"].to_pylist()) == [*range(25)]
    assert receipts == {(number, "delivered"): 1 for number in range(25)}


@pytest.mark.more
async def test_deliveries_of_a_held_pipe_are_dead_letters_that_go_by_enrich_and_other_tables_go_on(
    kafka: str, tmp_path: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    await publish(kafka, stream.topics, [pipe_record(stream.pipe(FIELDS, "q", table="shop.others"))])
    stream.start()
    try:
        stored_record = stream.record(1, order(1, 1))
        await stream.enrich([stored_record])
        await stream.until(lambda rows: rows.num_rows == 1)
        await stream.until_receipts(1)
        await publish(kafka, stream.topics, [unreadable_record(stream.pipe(FIELDS), 2)])
        offset = (await read_registry(kafka, stream.topics)).offset
        held_record = stream.record(2, order(2, 2), revision_offset=offset)
        # A copy of what the table has is no new delivery.
        await stream.enrich([held_record, stored_record, stream.record(3, order(3, 3), pipe="q")])
        receipts = await stream.until_receipts(3)
        assert receipts == {(1, "delivered"): 1, (2, "dead-letter"): 1, (3, "delivered"): 1}
        await stream.declare(FIELDS)
        [letter] = [
            letter
            async for letter in letters(kafka, stream.topics, DeadLetterFilter(reason="pipe-unreadable"))
        ]
        producer, pipes = Producer(kafka, "test"), (await read_registry(kafka, stream.topics)).pipes
        await producer.start()
        replay_topics = [topic async for _, topic in replay(producer, stream.topics, [letter], pipes)]
        await producer.stop()
        assert replay_topics == [stream.topics.normalized]
    finally:
        stream.stop()
    assert [row["id"] for row in stream.rows().to_pylist()] == [1]
