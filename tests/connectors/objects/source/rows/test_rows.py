"""The rows of objects in each format, from any row on, and what of them cannot be read."""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, BinaryIO

import fastavro
import orjson
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat

COUNT = 1200
FIELDS = [{"n": number, "name": f"ä{number}"} for number in range(1, COUNT + 1)]
SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "n", "type": "long"}, {"name": "name", "type": "string"}],
}


def ndjson() -> bytes:
    return b"".join(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE) for fields in FIELDS)


def csv() -> bytes:
    return ("n,name\r\n" + "".join(f'{fields["n"]},"{fields["name"]}"\r\n' for fields in FIELDS)).encode()


def parquet_file() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(FIELDS), sink, row_group_size=300)
    return sink.getvalue()


def avro() -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, FIELDS, codec="deflate")
    return sink.getvalue()


WRITERS: dict[str, Callable[[], bytes]] = {
    "ndjson": ndjson,
    "csv": csv,
    "parquet": parquet_file,
    "avro": avro,
}


def batches(
    file_format: str, content: bytes, skip: int = 0, max_bytes: int = 1000, encoding: str = "utf-8"
) -> RowBatches:
    file: BinaryIO = io.BytesIO(content)
    return RowBatches(RowFormat(file_format, ",", encoding, max_bytes), file, "a/b", skip)


def rows(
    file_format: str, content: bytes, skip: int = 0, max_bytes: int = 1000, encoding: str = "utf-8"
) -> list[ObjectRow]:
    row_batches, object_rows = batches(file_format, content, skip, max_bytes, encoding), list[ObjectRow]()
    while not row_batches.complete:
        batch = row_batches.next(500)
        assert len(batch) <= 500
        object_rows += batch
    return object_rows


def values(file_format: str, object_rows: list[ObjectRow]) -> list[Any]:
    row_values = [orjson.loads(row.data or b"null") for row in object_rows]
    return [fields | {"n": int(fields["n"])} for fields in row_values] if file_format == "csv" else row_values


@pytest.mark.parametrize("file_format", WRITERS)
@pytest.mark.parametrize("skip", [0, 1, 299, 300, 750, COUNT])
def test_rows_are_read_from_any_row_on(file_format: str, skip: int) -> None:
    object_rows = rows(file_format, WRITERS[file_format](), skip)
    header = int(file_format == "csv")
    assert [row.number for row in object_rows] == [*range(max(skip, header) + 1, COUNT + header + 1)]
    assert values(file_format, object_rows) == FIELDS[max(0, skip - header) :]
    assert {row.reason for row in object_rows} <= {""}


@pytest.mark.parametrize("file_format", ["ndjson", "csv", "avro"])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, zstandard.compress])
def test_compressed_objects_are_recognized(file_format: str, compress: Callable[[bytes], bytes]) -> None:
    assert values(file_format, rows(file_format, compress(WRITERS[file_format]()))) == FIELDS


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_compressed_object_that_is_cut_has_its_rows_and_then_one_that_says_so(
    compress: Callable[[bytes], bytes],
) -> None:
    object_rows = rows("ndjson", compress(ndjson())[:-200])
    *good_rows, last_row = object_rows
    assert values("ndjson", good_rows) == FIELDS[: len(good_rows)]
    assert (last_row.number, last_row.data, last_row.reason) == (
        len(good_rows) + 1,
        None,
        "unreadable-object",
    )
    assert last_row.detail.startswith("a/b: the object cannot be read after row")


@pytest.mark.parametrize("damage", [b"no frame", zstandard.compress(b"x" * 9)[:-3]])
def test_all_rows_before_the_damage_of_an_object_in_zstd_are_read(damage: bytes) -> None:
    *good_rows, last_row = rows("ndjson", zstandard.compress(ndjson()) + damage)
    assert values("ndjson", good_rows) == FIELDS
    assert (last_row.number, last_row.reason) == (COUNT + 1, "unreadable-object")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, zstandard.compress])
def test_an_object_of_several_compressed_parts_and_one_of_nothing_are_read(
    compress: Callable[[bytes], bytes],
) -> None:
    content = csv()
    parts = [compress(content[:1000]), compress(b""), compress(content[1000:])]
    assert values("csv", rows("csv", b"".join(parts))) == FIELDS
    assert rows("csv", compress(b"")) == []


def test_frames_that_readers_of_zstd_leave_out_are_left_out() -> None:
    left_out = [b"\x50\x2a\x4d\x18" + b"\4\0\0\0size", b"\x5f\x2a\x4d\x18" + b"\0\0\0\0"]
    parts = [
        frame + zstandard.compress(part) for frame, part in zip(left_out, (ndjson(), b"{}"), strict=True)
    ]
    assert values("ndjson", rows("ndjson", b"".join([*parts, *left_out]))) == [*FIELDS, {}]


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_a_binary_object_that_is_cut_has_a_row_that_says_so(file_format: str) -> None:
    *_, last_row = rows(file_format, WRITERS[file_format]()[:-3000])
    assert (last_row.data, last_row.reason) == (None, "unreadable-object")
    assert [row.reason for row in rows(file_format, b"")] == ["unreadable-object"]


def test_an_object_with_another_compression_is_not_read_as_text() -> None:
    (row,) = rows("ndjson", lzma.compress(ndjson()))
    assert (row.number, row.reason) == (1, "unknown-compression")
    assert "xz" in row.detail


def test_a_line_that_is_no_json_object_or_too_long_is_refused_alone() -> None:
    content = b'\xef\xbb\xbf{"n": 1}\n\n{\n[2]\n{"n": "' + b"x" * 5000 + b'"}\n{"n": 3}'
    object_rows = rows("ndjson", content)
    assert [(row.number, row.reason) for row in object_rows] == [
        (1, ""),
        (3, "not-json"),
        (4, "not-json"),
        (5, "too-large"),
        (6, ""),
    ]
    assert object_rows[0].data == b'{"n": 1}'


def test_a_line_that_is_not_json_is_refused_with_the_cause() -> None:
    object_rows = rows("ndjson", b'{"n": 1}\n\xef\xbb\xbf{"n": 2}\n{"n": "\xff"}\n')
    assert [row.detail.partition("line ")[2] for row in object_rows] == [
        "",
        (
            "2 is not JSON: it begins with a byte order mark (U+FEFF), which is allowed only at the start of a body or"
            " file"
        ),
        "3 is not JSON: not UTF-8 at byte 7",
    ]


def test_a_bad_record_of_csv_is_refused_alone() -> None:
    content = b'a,b\n1,"x\ny"\n2\n\n3,"z" z\n4,\xff\n5,u\n'
    object_rows = rows("csv", content)
    assert [(row.number, row.reason) for row in object_rows] == [
        (2, ""),
        (4, "not-csv"),
        (6, "not-csv"),
        (7, "not-csv"),
        (8, ""),
    ]
    assert orjson.loads(object_rows[0].data or b"") == {"a": "1", "b": "x\ny"}
    assert [row.data for row in object_rows[1:4]] == [b"2\n", b'3,"z" z\n', b"4,\xff\n"]
    assert object_rows[3].detail == "a/b: line 7: the record is not UTF-8"
    assert [row.reason for row in rows("csv", b"a,a\n1,2\n")] == ["csv-header"]
    assert rows("csv", b"") == []


def test_values_that_json_does_not_have_are_text() -> None:
    timestamp = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    row = {
        "time": timestamp,
        "price": Decimal("1.20"),
        "raw": b"\x00\xff",
        "list": [{"day": timestamp.date()}],
    }
    sink = io.BytesIO()
    table = pa.Table.from_pylist([row])
    nanos = table.column("time").cast(pa.timestamp("ns", "UTC"))
    parquet.write_table(table.set_column(0, "time", nanos), sink)
    (object_row,) = rows("parquet", sink.getvalue())
    assert orjson.loads(object_row.data or b"") == {
        "time": "2026-01-02T03:04:05.678901Z",
        "price": "1.20",
        "raw": "AP8=",
        "list": [{"day": "2026-01-02"}],
    }


def test_a_batch_ends_at_the_row_at_which_it_ended_before() -> None:
    reading = batches("ndjson", ndjson(), skip=100)
    assert [row.number for row in reading.next(500, last_row=130)] == [*range(101, 131)]
    assert reading.next(500)[0].number == 131
