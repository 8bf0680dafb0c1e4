"""Object destinations: each event is a row of one object, whatever happens to egest and to the store."""

import asyncio
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.egest.egest_stream import (
    EgestStream,
    connector_destination,
    outcomes,
    pipe_to,
    process,
    running_egest,
    until,
)
from tests.support.objects.object_stores import ObjectBucket, ObjectFolder, rows_of
from tests.support.retrier.running_retrier import retrying
from tests.support.small_disk import small_disk

from hifi.delivery.installed_kinds import InvalidDestination, read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.kafka.topic_identity import topic_identity
from hifi.runtime.errors import Rejected, Retryable, Unacknowledged

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
EVENTS = 2000


@pytest.fixture(params=["object_folder", "object_bucket"])
def store(request: pytest.FixtureRequest) -> ObjectFolder:
    """A folder, then a bucket."""
    folder: ObjectFolder = request.getfixturevalue(request.param)
    return folder


def writer(store: ObjectFolder, timeout_s: float = 10.0, **settings: Any) -> DestinationWriter:
    kind, kind_settings = read_settings(
        connector_destination(pipe_to("flights", store.declared(settings=settings)))
    )
    return kind.open(kind_settings, WriterContext("s", "flights", "d", 16, timeout_s))


LOG = "0a" * 16


def outbound(offset: int, *, partition: int = 0, hour: int = 12, **data: Any) -> OutboundEvent:
    accepted_us = int(NOON.replace(hour=hour).timestamp() * 1e6) + offset
    attributes = {"id": f"i{offset}", "source": "/s", "type": "made"}
    body = orjson.dumps({"number": offset, **data})
    return OutboundEvent(body, "application/json", attributes, b"k", LOG, partition, offset, accepted_us)


def events(*offsets: int) -> list[OutboundEvent]:
    return [outbound(offset) for offset in offsets]


async def test_objects_are_in_folders_of_pipe_date_and_hour_and_numbered_for_each_partition(
    store: ObjectFolder,
) -> None:
    object_writer = writer(store)
    await object_writer.write([outbound(1), outbound(2, partition=1), outbound(3, hour=13)])
    await object_writer.write(events(4))
    file_names = [str(file.relative_to(store.root)).replace(LOG, "LOG") for file in store.objects()]
    assert file_names == [
        "pipe=flights/date=2026-11-24/hour=12/s.d.LOG.0000.00000000.ndjson",
        "pipe=flights/date=2026-11-24/hour=12/s.d.LOG.0000.00000001.ndjson",
        "pipe=flights/date=2026-11-24/hour=12/s.d.LOG.0001.00000000.ndjson",
        "pipe=flights/date=2026-11-24/hour=13/s.d.LOG.0000.00000000.ndjson",
    ]


@pytest.mark.parametrize("file_format", ["ndjson", "ndjson.gz", "parquet"])
async def test_rows_that_an_earlier_owner_wrote_are_left_out_in_each_format(
    store: ObjectFolder, file_format: str
) -> None:
    store.file_format = file_format
    object_writer = writer(store)
    for first in range(0, 40, 2):
        await object_writer.write(events(first, first + 1))
    second_writer = writer(store)
    await second_writer.write(events(38, 40, 3, 41))
    await object_writer.write(
        events(41, 42)
    )  # the earlier owner is still there and has not read what the new one wrote
    assert store.offsets() == list(range(43))
    assert len(store.objects()) == 22


async def test_writers_that_write_the_same_rows_at_the_same_time_write_each_once(store: ObjectFolder) -> None:
    writers = [writer(store) for _ in range(4)]
    batches = [events(*range(first, first + 10)) for first in range(0, 60, 5)]
    await asyncio.gather(*(parallel_writer.write(batch) for batch in batches for parallel_writer in writers))
    assert store.offsets() == list(range(65))


async def test_a_write_that_arrives_after_its_timeout_is_not_repeated(object_bucket: ObjectBucket) -> None:
    object_writer = writer(object_bucket)
    await object_writer.write(events(1))
    async with object_bucket.locked():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await object_writer.write(events(2, 3))
    await object_writer.write(events(2, 3, 4))
    await object_writer.write(events(2))
    assert object_bucket.offsets() == [1, 2, 3, 4]


async def test_a_batch_with_a_row_that_does_not_fit_writes_nothing(store: ObjectFolder) -> None:
    columns = {"number": {"path": "number", "type": "long"}, "city": {"path": "to.city"}}
    object_writer = writer(store, columns=columns)
    for wrong_event, column in ((outbound(2, number="2"), "number"), (outbound(2, to={"city": 3}), "city")):
        with pytest.raises(Rejected, match=f"the column {column} has the type") as caught:
            await object_writer.write([outbound(1), wrong_event])
        assert caught.value.reason == "value"
    assert store.objects() == []


@pytest.mark.parametrize("file_format", ["ndjson", "parquet"])
async def test_columns_have_the_declared_types(object_folder: ObjectFolder, file_format: str) -> None:
    object_folder.file_format = file_format
    columns = {
        "number": {"path": "number", "type": "long"},
        "share": {"path": "share", "type": "double"},
        "city": {"path": "to.city"},
        "late": {"path": "late", "type": "boolean"},
        "legs": {"path": "legs", "type": "json"},
    }
    object_writer = writer(object_folder, columns=columns)
    await object_writer.write([outbound(7, share=1, to={"city": "Köln"}, late=True, legs=[1, {"a": None}])])
    await object_writer.write([outbound(8)])
    full_row, empty_row = (rows_of(file)[0] for file in object_folder.objects())
    parquet = file_format == "parquet"
    accepted = datetime(2026, 11, 24, 12, 0, 0, 7, tzinfo=UTC)
    assert full_row == {
        "hifi_log": LOG,
        "hifi_partition": 0,
        "hifi_offset": 7,
        "hifi_accepted": accepted if parquet else "2026-11-24T12:00:00.000007Z",
        "ce_id": "i7",
        "ce_source": "/s",
        "ce_type": "made",
        "ce_subject": None,
        "ce_time": None,
        "number": 7,
        "share": 1.0,
        "city": "Köln",
        "late": True,
        "legs": '[1,{"a":null}]' if parquet else [1, {"a": None}],
    }
    assert [empty_row[name] for name in columns] == [8, None, None, None, None]


@pytest.mark.parametrize("file_format", ["ndjson", "parquet"])
async def test_numbers_keep_their_digits_or_are_refused(
    object_folder: ObjectFolder, file_format: str
) -> None:
    object_folder.file_format = file_format
    text = '{"d":1.10,"l":5.0,"j":[1.10,18446744073709551616],"n":"NaN"}'
    columns = {"d": {"path": "d", "type": "double"}, "l": {"path": "l", "type": "long"}}
    columns |= {"j": {"path": "j", "type": "json"}, "n": {"path": "n", "type": "double"}}
    number_writer = writer(object_folder, columns=columns)
    for bad_number in (
        '{"d":9007199254740993}', '{"d":1e400}', '{"l":1.5}', '{"l":9223372036854775808}', '{"d":"1"}',
        '{"l":1e9999999}', '{"l":-1e9999999}', '{"d":-1e9999999}', '{"l":1e-9999999}', '{"d":9007199254740993e1}',
    ):  # fmt: skip
        with pytest.raises(Rejected, match=f"the column {bad_number[2]} has the type"):
            await number_writer.write([outbound(1)._replace(data=bad_number.encode())])
    await number_writer.write([outbound(2)._replace(data=text.encode())])
    (file,) = object_folder.objects()
    if file_format == "ndjson":
        assert file.read_text().endswith('"d":1.10,"l":5.0,"j":[1.10,18446744073709551616],"n":"NaN"}\n')
        return
    (row,) = rows_of(file)
    assert (row["d"], row["l"], row["j"], repr(row["n"])) == (1.1, 5, "[1.10,18446744073709551616]", "nan")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", "128k") as folder:
        yield folder


async def test_while_the_disk_is_full_deliveries_wait_and_each_row_is_there_once(disk: Path) -> None:
    full_folder = ObjectFolder(disk / "objects")
    full_writer = writer(full_folder)
    batches = [
        [outbound(number, pad="x" * 5000) for number in range(first, first + 4)] for first in range(0, 80, 4)
    ]

    async def written_before_it_is_full() -> int:
        for count, batch in enumerate(batches):
            try:
                await full_writer.write(batch)
            except Retryable:
                return count
        raise AssertionError("the disk is never full")

    written_count = await written_before_it_is_full()
    assert full_folder.offsets() == list(range(written_count * 4)), "no object is cut"
    with pytest.raises(Retryable, match="No space left"):
        await full_writer.write(batches[written_count])
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    for batch in batches[written_count - 1 :]:
        await full_writer.write(batch)
    assert full_folder.offsets() == list(range(80))
    assert list(full_folder.root.rglob(".*")) == []


async def test_a_damaged_object_stops_the_writes_beside_it_and_is_named(object_folder: ObjectFolder) -> None:
    for file_format in ("ndjson", "ndjson.gz", "parquet"):
        object_folder.file_format = file_format
        await writer(object_folder).write(events(1, 2))
        damaged = object_folder.objects()[-1]
        content = damaged.read_bytes()
        damaged.write_bytes(content[:-5])
        object_writer = writer(object_folder)
        with pytest.raises(Retryable, match=f"{damaged.name} cannot be read"):
            await object_writer.write(events(3))
        await object_writer.write([outbound(4, hour=13)])
        damaged.write_bytes(content)
        await object_writer.write(events(2, 3))
        assert object_folder.offsets() == [1, 2, 3, 4]
        for file in object_folder.objects():
            file.unlink()


async def test_a_folder_that_cannot_be_written_is_a_retry_and_leaves_no_file(
    object_folder: ObjectFolder,
) -> None:
    object_writer = writer(object_folder)
    await object_writer.write(events(1))
    async with object_folder.locked():
        with pytest.raises(Retryable, match="Not a directory"):
            await object_writer.write(events(2))
    await object_writer.write(events(2))
    assert object_folder.offsets() == [1, 2]


async def test_temporary_files_of_a_killed_process_are_removed_when_they_are_old(
    object_folder: ObjectFolder,
) -> None:
    await writer(object_folder).write(events(1))
    folder = object_folder.objects()[0].parent
    old_file, young_file = folder / ".s.d.x.tmp", folder / ".s.d.y.tmp"
    for file in (old_file, young_file):
        file.write_bytes(b"half of")
    os.utime(old_file, (time.time() - 3600, time.time() - 3600))
    await writer(object_folder).write(events(2))
    assert sorted(file.name for file in folder.glob(".*")) == [young_file.name]


async def test_a_bucket_that_refuses_is_a_retry_that_shows_no_secret(
    object_bucket: ObjectBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = object_bucket.settings()["s3"]
    with pytest.raises(Retryable, match="the bucket missing does not exist"):
        await writer(object_bucket, s3=s3 | {"bucket": "missing"}).write(events(1))
    monkeypatch.setenv(object_bucket.SECRET, "wrong-horse")
    with pytest.raises(Retryable) as caught:
        await writer(object_bucket).write(events(1))
    assert not isinstance(caught.value, Unacknowledged)
    assert "wrong-horse" not in str(caught.value)


def problems(settings: dict[str, Any]) -> Sequence[tuple[Sequence[str | int], str]]:
    declared_pipe = pipe_to("flights", {"name": "d", "kind": "objects", "settings": settings})
    with pytest.raises(InvalidDestination) as caught:
        read_settings(connector_destination(declared_pipe))
    return caught.value.problems


def test_wrong_settings_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "exactly one of `folder` and `s3`" in problems({})[0][1]
    assert "write an absolute path" in problems({"folder": "here"})[0][1]
    reserved_problems = problems({"folder": "/tmp", "columns": {"hour": {"path": "a"}}})
    assert "the column hour needs another name" in reserved_problems[0][1]
    for name in ("Date", "HOUR", "Hifi_offset", "CE_id"):
        (taken_problem,) = problems({"folder": "/tmp", "columns": {name: {"path": "a"}}})
        assert f"the column {name} needs another name" in taken_problem[1]
    (case_problem,) = problems(
        {"folder": "/tmp", "columns": {"userId": {"path": "a"}, "userid": {"path": "b"}}}
    )
    assert "the columns userId and userid differ in upper and lower case only" in case_problem[1]
    monkeypatch.setenv("HIFI_PIPES_OBJECT_FOLDERS", str(tmp_path / "allowed"))
    folder_problems = problems({"folder": str(tmp_path / "allowed/../other")})
    assert "HIFI_PIPES_OBJECT_FOLDERS allows files below" in folder_problems[0][1]


async def test_events_of_raw_that_was_created_again_are_new_ones(
    object_folder: ObjectFolder, stream: EgestStream
) -> None:
    raw = stream.topics.raw
    first_topic_id = (await topic_identity(stream.kafka, raw)).topic
    async with running_egest(stream, pipe_to("flights", object_folder.declared())):
        await stream.send(5)
        await stream.receipts(5)
        await recreated(stream.kafka, raw, stream.partitions)
        stream.raw[0] = itertools.count()
        await stream.send(5)
        async with retrying(stream), asyncio.timeout(60):  # what came before the new identity was known
            while outcomes(await stream.receipts(10)).count("delivered") < 10:
                await asyncio.sleep(0.1)
    second_topic_id = (await topic_identity(stream.kafka, raw)).topic
    assert first_topic_id != second_topic_id
    rows = [(row["hifi_log"], row["hifi_offset"], row["data"]["number"]) for row in object_folder.table()]
    assert sorted(rows, key=lambda row: row[2]) == [
        *((first_topic_id, number, number) for number in range(5)),
        *((second_topic_id, number, number + 5) for number in range(5)),
    ]


async def recreated(kafka: str, topic: str, partitions: int) -> None:
    """Delete a topic, and create it again when it is gone."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.1)
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        while topic not in await admin.list_topics():
            await asyncio.sleep(0.1)
    finally:
        await admin.close()


async def test_kills_of_egest_lose_and_repeat_no_row(
    object_folder: ObjectFolder, stream: EgestStream, tmp_path: Path
) -> None:
    declared = object_folder.declared(batch={"size": 20, "wait": "5ms"})
    await stream.publish(pipe_to("flights", declared))
    await stream.enriched(*(stream.record(key=f"k{n % 50}", data={"number": n}) for n in range(EVENTS)))

    def has_objects(count: int) -> bool:
        return len(object_folder.objects()) >= count

    for kill in range(2):
        with process(stream, tmp_path / f"log{kill}", session_timeout_s=6, commit_interval_s=3600) as egest:
            count_before = len(object_folder.objects())
            await until(partial(has_objects, count_before + 15))
            egest.stop(signal.SIGKILL)
    with process(stream, tmp_path / "last", session_timeout_s=6):
        await stream.receipts(EVENTS, within_s=120)
    assert object_folder.offsets() == list(range(EVENTS))
