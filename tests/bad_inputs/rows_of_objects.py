"""Rows of objects that become dead letters."""

from collections.abc import Iterator
from typing import Final

_LINES: Final = {
    "not JSON": b"x",
    "truncated": b'{"a":',
    "a number": b"1",
    "a list": b"[]",
    "not UTF-8": b'{"a":"\xff"}',
    "escaped surrogate": b'{"a":"\\ud800"}',
    "NaN": b'{"a":NaN}',
    "too long": b'{"a":"' + b"x" * 1000 + b'"}',
    "nested too deeply": b'{"a":' + b"[" * 70 + b"]" * 70 + b"}",
    "two objects": b"{}{}",
}
_CSV: Final = {
    "too few values": b"a,b\n1\n",
    "too many values": b"a,b\n1,2,3\n",
    "open quote": b'a,b\n1,"2\n',
    "text behind a quote": b'a,b\n1,"2"x\n',
    "not UTF-8": b"a,b\n1,\xff\n",
    "a column twice": b"a,a\n1,2\n",
    "a column without a name": b"a,\n1,2\n",
    "too long": b"a,b\n1," + b"x" * 1000 + b"\n",
    "header not UTF-8": b"\xff,b\n1,2\n",
    "null byte": b"a,b\n1,\x00\n",
}
_FILES: Final = {
    "empty": b"",
    "no such file": b"hello",
    "only the beginning": b"PAR1",
    "beginning and end": b"PAR1" + b"\x00" * 20 + b"PAR1",
    "Avro's beginning": b"Obj\x01",
    "Avro without a codec": b"Obj\x01\x02\x16avro.schema\x06int\x00" + b"\x00" * 16,
}


def bad_objects() -> Iterator[tuple[str, str, bytes]]:
    """Format, name and content of all of them."""
    for name, line in _LINES.items():
        yield "ndjson", name, b"{}\n" + line + b"\n"
    for name, content in _CSV.items():
        yield "csv", name, content
    for file_format in ("parquet", "avro"):
        for name, content in _FILES.items():
            yield file_format, name, content
