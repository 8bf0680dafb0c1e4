"""Objects with hostile content between good rows, and what is right for each: good rows, and reasons by row."""

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import zstandard
from pyarrow import parquet

MAX_BYTES = 64 * 1024
"""Largest row of the reader."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Item:
    """An object of the corpus.

    Attributes:
        name: says what is hostile.
        file_format: of the objects.
        content: makes it.
        good: numbers of the rows that are read; None: those before the damage, whichever they are.
        refused: number to reason of the rows that are refused.
    """

    name: str
    file_format: str
    content: Callable[[], bytes]
    good: list[int] | None = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


def corpus() -> Iterator[Item]:
    """All objects."""
    yield from _lines()
    yield from _csv()
    yield from _avro()
    yield from _parquet()
    yield from _compressed()
    for file_format in ("ndjson", "csv", "avro", "parquet"):
        yield Item(
            f"{file_format} empty",
            file_format,
            bytes,
            refused={} if file_format in {"ndjson", "csv"} else {1: "unreadable-object"},
        )


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "truncated": (b'{"n":', "not-json"),
    "NUL": (b'{"n":"\x00"}', "not-json"),
    "NULs": (b"\x00" * 100, "not-json"),
    "no UTF-8": (b'{"n":"\xff"}', "not-json"),
    "overlong UTF-8": (b'{"n":"\xc0\xaf"}', "not-json"),
    "surrogate in UTF-8": (b'{"n":"\xed\xa0\x80"}', "not-json"),
    "half of a surrogate pair": (b'{"n":"\\ud800"}', "not-json"),
    "deep arrays": (b'{"n":' + b"[" * 65 + b"]" * 65 + b"}", "not-json"),
    "very deep arrays": (b"[" * 30_000 + b"]" * 30_000, "not-json"),
    "deep objects": (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "not-json"),
    "open arrays": (b"[" * 60_000, "not-json"),
    "NaN": (b'{"n":NaN}', "not-json"),
    "infinity": (b'{"n":-Infinity}', "not-json"),
    "an array": (b"[1]", "not-json"),
    "a number": (b"1", "not-json"),
    "a number of many digits": (b"9" * 60_000, "not-json"),
    "large": (b'{"n":"' + b"x" * 100_000 + b'"}', "too-large"),
    "huge": (b'{"n":"' + b"x" * (20 * MIB) + b'"}', "too-large"),
    "single quotes": (b"{'n':1}", "not-json"),
    "a comma too many": (b'{"n":1,}', "not-json"),
    "two documents": (b'{"n":1}{"n":2}', "not-json"),
    "a byte order mark": (b'\xef\xbb\xbf{"n":1}', "not-json"),
}

GOOD_LINES: dict[str, bytes] = {
    "wide": b"{" + b",".join(b'"c%d":%d' % (number, number) for number in range(4000)) + b"}",
    "a name twice": b'{"n":1,"n":2}',
    "a large exponent": b'{"n":1e308}',
    "a number that no double can hold": b'{"n":1e999999}',
    "a number of many digits": b'{"n":' + b"9" * 300 + b"}",
    "an escaped NUL": b'{"n":"\\u0000"}',
    "a deep document": b'{"a":' * 64 + b"1" + b"}" * 64,
    "an empty name": b'{"":{}}',
}


def _returns(content: bytes) -> Callable[[], bytes]:
    return lambda: content


def _lines() -> Iterator[Item]:
    def between_rows(line: bytes) -> Callable[[], bytes]:
        return lambda: b'{"n":1}\n' + line + b'\r\n{"n":3}\n'

    for name, (line, reason) in BAD_LINES.items():
        yield Item(f"ndjson {name}", "ndjson", between_rows(line), [1, 3], {2: reason})
    for name, line in GOOD_LINES.items():
        yield Item(f"ndjson good: {name}", "ndjson", between_rows(line), [1, 2, 3])
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        text = '{"n":1}\n{"n":2}\n'.encode(encoding)
        yield Item(f"ndjson {encoding}", "ndjson", _returns(text), refused={1: "unknown-encoding"})
    yield Item("ndjson only line feeds", "ndjson", lambda: b"\n" * 100_000)
    yield Item("ndjson carriage returns", "ndjson", lambda: b'{"n":1}\r{"n":2}', refused={1: "not-json"})


BAD_RECORDS: dict[str, tuple[bytes, str]] = {
    "a value too few": (b"2", "not-csv"),
    "a value too many": (b"2,b,c", "not-csv"),
    "a stray quote": (b'2,"b', "not-csv"),
    "text behind a quote": (b'2,"b" c', "not-csv"),
    "no UTF-8": (b"2,\xff", "not-csv"),
    "a carriage return": (b"2,b\rc", "not-csv"),
    "wide": (b"," * 30_000, "not-csv"),
    "large": (b"2," + b"x" * 100_000, "too-large"),
    "large and quoted": (b'2,"' + b"x" * 100_000 + b'"', "too-large"),
    "huge and quoted": (b'2,"' + b'x""' * (7 * MIB) + b'"', "too-large"),
    "large as JSON": (b"2," + b"\x01" * 20_000, "too-large"),
}


def _csv() -> Iterator[Item]:
    for name, (line, reason) in BAD_RECORDS.items():

        def between(line: bytes = line) -> bytes:
            return b"n,s\r\n1,a\n" + line + b"\n4,d\r\n5,e\n"

        yield Item(f"csv {name}", "csv", between, [2, 4, 5], {3: reason})
    for name, header in {
        "a column twice": b"n,n\n1,2\n",
        "no UTF-8 in the header": b"n,\xff\n1,2\n",
        "carriage returns": b"n,s\r1,2\r",
        "a huge header": b"n" * (5 * MIB),
        "an open quote in the header": b'n,"s\n1,2\n',
    }.items():
        yield Item(f"csv {name}", "csv", _returns(header), refused={1: "csv-header"})
    wide_text = ",".join(f"c{number}" for number in range(3000)) + "\n" + "," * 2999 + "\n"
    yield Item("csv good: wide", "csv", wide_text.encode, [2])
    yield Item("csv good: NUL", "csv", lambda: b"n,s\n1,\x00\n", [2])
    yield Item("csv UTF-16", "csv", lambda: "n,s\n1,a\n".encode("utf-16"), refused={1: "unknown-encoding"})
    binary = bytes(range(1, 256)) * 100
    yield Item("csv a picture", "csv", lambda: b"\x89PNG\r\n\x1a\n" + binary, None)


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    """A Parquet file."""
    sink = io.BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def _parquet() -> Iterator[Item]:
    table = pa.table({"n": [*range(1, 1001)]})

    def times(*values: int) -> bytes:
        return parquet_of(pa.table({"n": [*range(len(values))], "t": pa.array(values, pa.timestamp("ms"))}))

    nested: Any = pa.int64()
    value: Any = 1
    for _ in range(80):
        nested, value = pa.list_(nested), [value]
    deep_table = pa.table({"v": pa.array([None, value, None], nested)})
    repeated_column = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    wide_table = pa.table({f"c{number}": [number] for number in range(2000)})
    yield Item("parquet year 12000", "parquet", lambda: times(0, 2**60, 1), [1, 3], {2: "not-json"})
    yield Item("parquet deep", "parquet", lambda: parquet_of(deep_table), refused={1: "unreadable-object"})
    yield Item(
        "parquet a column twice",
        "parquet",
        lambda: parquet_of(repeated_column),
        refused={1: "duplicate-column"},
    )
    yield Item("parquet good: wide", "parquet", lambda: parquet_of(wide_table), [1])
    yield Item(
        "parquet a row too large",
        "parquet",
        lambda: parquet_of(pa.table({"v": ["", "x" * MIB, ""]})),
        [1, 3],
        {2: "too-large"},
    )
    for share in (1, 2, 3):
        content = parquet_of(table, row_group_size=100)
        truncated = content[: len(content) * share // 4]
        yield Item(f"parquet cut {share}", "parquet", _returns(truncated), refused={1: "unreadable-object"})
    for offset in (4, 500, 1500):
        damaged = bytearray(parquet_of(table, compression="gzip", use_dictionary=False))
        damaged[offset : offset + 40] = b"\xff" * 40
        yield Item(f"parquet damaged at {offset}", "parquet", _returns(bytes(damaged)), None)
    yield Item("parquet text", "parquet", lambda: b"n\n1\n" * 100, refused={1: "unreadable-object"})
    yield Item(
        "parquet length of 4 GiB",
        "parquet",
        lambda: b"PAR1" + b"\xff" * 8 + b"PAR1",
        refused={1: "unreadable-object"},
    )
    bomb = pa.table({"v": ["x" * (190 * MIB)]})
    options: dict[str, Any] = {"compression": "brotli", "use_dictionary": False, "write_statistics": False}
    yield Item(
        "parquet expands to 190 MB",
        "parquet",
        lambda: parquet_of(bomb, **options),
        refused={1: "unreadable-object"},
    )


LINKED = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


def _long(value: int) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", value)
    return sink.getvalue()


def avro_of(schema: Any, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    """An Avro file whose blocks have these numbers of records and bytes."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema, [], codec=codec)
    content = sink.getvalue()
    marker = content[-16:]
    for count, data in blocks:
        content += _long(count) + _long(len(data)) + data + marker
    return content


def _avro() -> Iterator[Item]:
    linked = avro_of(LINKED, (1, b"\x02\x00"), (1, b"\x02\x02" * 3_000_000 + b"\x02\x00"), (1, b"\x02\x00"))
    yield Item("avro nested 3,000,000 times", "avro", lambda: linked, [1, 3], {2: "unreadable-object"})
    text = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    huge = avro_of(text, (1, b"\x02a"), (1, _long(2**40) + b"a"), (1, b"\x02b"))
    yield Item("avro a text of 1 TiB", "avro", lambda: huge, [1, 3], {2: "unreadable-object"})
    bad_text = avro_of(text, (3, b"\x02a" + b"\x02\xff" + b"\x02b"))
    yield Item("avro no UTF-8", "avro", lambda: bad_text, [1, 3], {2: "not-json"})
    large = avro_of(text, (3, b"\x02a" + _long(MIB) + b"x" * MIB + b"\x02b"))
    yield Item("avro a row too large", "avro", lambda: large, [1, 3], {2: "too-large"})
    endless = avro_of(text, (1, b"\x02a"), (2**50, b"\x02a"))
    yield Item("avro endless records", "avro", lambda: endless, [1], {2: "unreadable-object"})
    nulls = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
    }
    nulls_file = avro_of(nulls, (1, _long(2**40) + b"\x00"))
    yield Item("avro a trillion nulls", "avro", lambda: nulls_file, refused={1: "unusable-schema"})
    numbers = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
    }
    items = avro_of(numbers, (1, b"\x00"), (1, _long(2**60) + b"\x02"), (1, b"\x00"))
    yield Item("avro an array of 2^60 items", "avro", lambda: items, [1, 3], {2: "unreadable-object"})
    times = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
    }
    year = avro_of(times, (3, b"\x00" + _long(2**60) + b"\x00"))
    yield Item("avro year 36000000", "avro", lambda: year, [1, 3], {2: "not-json"})
    map_schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
    }
    keys = avro_of(map_schema, (1, _long(2) + b"\x02\xff\x02" + b"\x02a\x02" + b"\x00"), (1, b"\x00"))
    yield Item("avro a key that is no UTF-8", "avro", lambda: keys, [2], {1: "not-json"})
    truncated = avro_of(text, (1, b"\x02a"), (1, b"\x02b"))[:-10]
    yield Item("avro cut", "avro", lambda: truncated, [1], {2: "unreadable-object"})
    deep_type: Any = "int"
    for _ in range(3000):
        deep_type = {"type": "array", "items": deep_type}
    schema = orjson.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    nested = (
        b'{"type":"record","name":"R","fields":[{"name":"a","type":'
        + b'{"type":"array","items":' * 100_000
        + b'"int"'
        + b"}" * 100_000
        + b"}]}"
    )
    file = avro_of(orjson.loads(schema))
    schema_start = file.index(b"avro.schema") + len(b"avro.schema")
    marker = file[-16:]
    damaged = (
        file[:schema_start]
        + _long(len(nested))
        + nested
        + b"\x00"
        + marker
        + _long(1)
        + _long(1)
        + b"\x00"
        + marker
    )
    yield Item("avro a schema nested 100,000 times", "avro", lambda: damaged, None)
    yield Item("avro expands to 300 MB", "avro", _avro_bomb, refused={1: "unreadable-object"})


def _avro_bomb() -> bytes:
    text = {"type": "record", "name": "R", "fields": [{"name": "s", "type": "string"}]}
    compress = zlib.compressobj(1, wbits=-15)
    data = compress.compress(_long(300 * MIB))
    data += b"".join(compress.compress(b"x" * MIB) for _ in range(300)) + compress.flush()
    return avro_of(text, (1, data), codec="deflate")


def _gzip_bomb() -> bytes:
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1) as file:
        file.write(b'{"n":1}\n')
        for _ in range(300):
            file.write(b"0" * MIB)
        file.write(b'\n{"n":3}\n')
    return sink.getvalue()


def _compressed() -> Iterator[Item]:
    lines = b"".join(b'{"n":%d}\n' % number for number in range(1, 20_001))
    compressions: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "bz2": bz2.compress,
        "zstd": zstandard.compress,
        "zstd with a long window": zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
        ).compress,
    }
    for name, compress in compressions.items():
        content = compress(lines)
        yield Item(f"{name} good", "ndjson", _returns(content), [*range(1, 20_001)])
        truncated = content[: len(content) // 2]
        yield Item(f"{name} cut", "ndjson", _returns(truncated), None)
        damaged_content = bytearray(content)
        damaged_content[len(damaged_content) // 2 : len(damaged_content) // 2 + 50] = b"\xaa" * 50
        yield Item(f"{name} damaged", "ndjson", _returns(bytes(damaged_content)), None)
        only_head = content[:12]
        yield Item(f"{name} only a head", "ndjson", _returns(only_head), None)
    for name, head in {
        "xz": b"\xfd7zXZ\x00",
        "lz4": b"\x04\x22\x4d\x18",
        "zip": b"PK\x03\x04",
        "7z": b"7z\xbc\xaf\x27\x1c",
        "snappy": b"\xff\x06\x00\x00sNaPpY",
    }.items():
        yield Item(f"{name}", "csv", _returns(head + bytes(50)), refused={1: "unknown-compression"})
    yield Item("gzip expands to 300 MB", "ndjson", _gzip_bomb, [1, 3], {2: "too-large"})
    compressed_twice = gzip.compress(gzip.compress(lines))
    yield Item("gzip twice", "ndjson", lambda: compressed_twice, None)
