"""Each row of each version of an object passes once, whatever is killed; what cannot be read holds nothing else up."""

import asyncio
import gzip
import io
import os
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.support.collect.collected_stream import collected_stream, fields, until
from tests.support.collect.polled_reader import RawEnd, assert_each_once, field, take_reader
from tests.support.objects.polled_objects import PolledBucket, PolledFolder
from tests.support.stream_process import readyz

pytestmark = pytest.mark.timeout(400)
ROWS = 18_000


def lines(numbers: range) -> bytes:
    return b"".join(orjson.dumps({"n": number}, option=orjson.OPT_APPEND_NEWLINE) for number in numbers)


async def read_and_kill(kafka: str, log: Path, store: PolledFolder) -> None:
    """Read two objects while the reader is killed in the middle of one, and a third appears."""
    async with collected_stream(kafka, log) as stream, RawEnd(stream) as raw_end:
        store.put("first.ndjson", lines(range(1)))
        await stream.publish(store.pipe())
        starts = (stream.start("collect", session_timeout_s=6) for _ in range(2))
        instances = list(await asyncio.gather(*starts))
        await raw_end.reached(1)
        killed_reader, _ = await take_reader(instances)
        store.put("m/1.ndjson", lines(range(1, ROWS // 3)))
        store.put("m/2.ndjson.gz", gzip.compress(lines(range(ROWS // 3, ROWS))))
        await raw_end.reached(ROWS // 6)
        await stream.kill(killed_reader)
        store.put("a/late.ndjson", lines(range(ROWS, ROWS + 100)))  # an earlier name that arrives later
        await stream.start("normalize")
        expected = {*range(ROWS + 100)}
        normalized_records = await stream.read(
            stream.topics.normalized, lambda records: expected <= set(field(records, "n"))
        )
        await assert_each_once(stream, normalized_records)
        assert len(normalized_records) == len(expected)


async def test_each_row_of_a_folder_passes_once_although_its_reader_is_killed(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    await read_and_kill(kafka, log, folder)


async def test_each_row_of_a_bucket_passes_once_although_its_reader_is_killed(
    kafka: str, log: Path, bucket: PolledBucket
) -> None:
    await read_and_kill(kafka, log, bucket)


async def replace_and_damage(kafka: str, log: Path, store: PolledFolder) -> None:
    """Write an object again, and put one that is cut in the middle between others."""
    async with collected_stream(kafka, log) as stream:
        topics = stream.topics
        await stream.publish(store.pipe(format="parquet", partition_key="key"))
        await stream.start("normalize")
        _, admin = await stream.start("collect")

        def table(number: int) -> bytes:
            sink = io.BytesIO()
            parquet.write_table(pa.table({"n": [number] * 10, "key": [f"k{number}"] * 10}), sink)
            return sink.getvalue()

        store.put("one", table(1))
        await stream.read(topics.normalized, lambda records: len(records) == 10)
        store.put("cut", table(2)[:-100])
        store.put("two", table(3))
        store.put("one", table(40))
        normalized_records = await stream.read(topics.normalized, lambda records: len(records) == 30)
        assert sorted(field(normalized_records, "n")) == [1] * 10 + [3] * 10 + [40] * 10
        assert {record.key for record in normalized_records} == {b"k1", b"k3", b"k40"}
        versions = {
            fields(record)["ce_id"].split(b"/")[1] for record in normalized_records if record.key != b"k3"
        }
        assert len(versions) == 2, "the rows of a replaced object are other events"
        (dead_letter,) = await stream.read(topics.dead_letter, lambda records: len(records) == 1)
        letter = fields(dead_letter)
        assert (letter["hifi_reason"], letter["hifi_service"]) == (b"unreadable-object", b"normalize")
        assert letter["hifi_detail"].startswith(b"cut: the object cannot be read after row 0")
        assert readyz(admin)[0] == 200


async def test_a_replaced_file_is_read_again_and_a_damaged_one_becomes_one_dead_letter(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    await replace_and_damage(kafka, log, folder)


async def test_a_replaced_object_is_read_again_and_a_damaged_one_becomes_one_dead_letter(
    kafka: str, log: Path, bucket: PolledBucket
) -> None:
    await replace_and_damage(kafka, log, bucket)


def hostile(folder: PolledFolder) -> dict[str, str]:
    """Objects that cannot be read, each to be refused once; path as it is shown to reason."""
    value = b"x" * (200 * 1024 * 1024)
    bomb = io.BytesIO()
    table = pa.table({"n": ["x" * (190 * 1024 * 1024)]})
    parquet.write_table(table, bomb, compression="brotli", use_dictionary=False, write_statistics=False)
    folder.put("bomb.csv.gz", gzip.compress(b'n\n"' + value + b'"\n', 1))
    folder.put("parquet.csv", bomb.getvalue())
    folder.put("utf16.csv", "n\n1\n2\n".encode("utf-16"))
    folder.put("zip.csv", b"PK\x03\x04" + bytes(100))
    folder.put("twice.csv", b"n,n\n1,2\n")
    folder.put(os.fsdecode(b"caf\xe9.csv"), b'n\n1,"\n')
    return {
        "bomb.csv.gz": "too-large",
        "parquet.csv": "csv-header",
        "utf16.csv": "unknown-encoding",
        "zip.csv": "unknown-compression",
        "twice.csv": "csv-header",
        "caf\\xe9.csv": "not-csv",
    }


async def test_each_hostile_object_is_one_dead_letter_and_all_others_are_read(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics = stream.topics
        folder.put("a.csv", b"n\n1\n2\n")
        expected = hostile(folder)
        folder.put(os.fsdecode(b"\xff.csv"), b"n\n3\n")
        folder.put("z.csv", b"n\n4\n")
        await stream.publish(folder.pipe(format="csv"))
        await stream.start("normalize")
        collect, admin = await stream.start("collect")
        normalized_records = await stream.read(topics.normalized, lambda records: len(records) == 4)
        assert sorted(field(normalized_records, "n")) == ["1", "2", "3", "4"]
        assert any(fields(record)["ce_id"].startswith(b"\\xff.csv/") for record in normalized_records)
        dead_letters = await stream.read(topics.dead_letter, lambda records: len(records) == len(expected))
        reasons_by_object = {
            fields(record)["ce_id"].rsplit(b"/", 2)[0].decode(): fields(record)["hifi_reason"].decode()
            for record in dead_letters
        }
        assert reasons_by_object == expected
        assert {fields(record)["hifi_detail"].partition(b": ")[0].decode() for record in dead_letters} == {
            *expected
        }
        assert collect.poll() is None
        assert readyz(admin) == (200, readyz(admin)[1])
        assert readyz(admin)[1]["warnings"] == {}
        raw = await stream.all(topics.raw)
        assert len({fields(record)["ce_id"] for record in raw}) == len(raw) == 4 + len(expected)


async def test_an_object_that_ends_its_reader_is_one_dead_letter_and_all_others_are_read(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics, good_object, bomb = stream.topics, io.BytesIO(), io.BytesIO()
        parquet.write_table(pa.table({"n": [*range(10)]}), good_object)
        table = pa.table({"n": ["x" * (190 * 1024 * 1024)]})
        parquet.write_table(table, bomb, compression="brotli", use_dictionary=False, write_statistics=False)
        folder.put("a", good_object.getvalue())
        folder.put("b", bomb.getvalue())
        folder.put("c", good_object.getvalue())
        await stream.publish(folder.pipe(format="parquet"))
        await stream.start("normalize")
        collect, _ = await stream.start("collect", collect_reader_bytes=128 * 1024 * 1024)
        await stream.read(topics.normalized, lambda records: len(records) == 20)
        (dead_letter,) = await stream.read(topics.dead_letter, lambda records: len(records) == 1)
        assert fields(dead_letter)["hifi_reason"] == b"unreadable-object"
        assert fields(dead_letter)["hifi_detail"].startswith(b"b: the object cannot be read after row 0")
        assert collect.poll() is None


async def test_a_file_that_grows_is_read_when_it_is_complete(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(folder.pipe(settle="1s"))
        await stream.start("collect")
        file = folder.root / "growing.ndjson"
        folder.put("other.ndjson", lines(range(1)))
        # Written until a file that appeared at the same time was read: this one has not been unchanged for so long.
        written_count = 0
        while not await stream.all(stream.topics.raw):
            with file.open("ab") as open_file:
                open_file.write(lines(range(100 + written_count, 101 + written_count)))
            written_count += 1
        raw = await stream.read(stream.topics.raw, lambda records: len(records) >= 1 + written_count)
        assert sorted(field(raw, "n")) == [0, *range(100, 100 + written_count)]


async def test_a_folder_that_is_away_is_a_warning_and_read_when_it_is_back(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    async with collected_stream(kafka, log) as stream:
        moved_folder = folder.root.with_name("away")
        folder.root.rename(moved_folder)
        await stream.publish(folder.pipe())
        _, admin = await stream.start("collect")
        await until(lambda: "source of orders: source" in readyz(admin)[1]["warnings"])
        assert readyz(admin)[0] == 200
        moved_folder.rename(folder.root)
        folder.put("one.ndjson", lines(range(3)))
        await stream.read(stream.topics.raw, lambda records: len(records) == 3)
        await until(lambda: readyz(admin)[1]["warnings"] == {})
