"""Every line of a CSV object belongs to one row, which is read or refused with its lines, whatever the quotes do."""

import csv
import io
import re
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.csv_quotes import QuoteScanner
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat


def rows(text: bytes, max_bytes: int = 1000, skip: int = 0, encoding: str = "utf-8") -> list[ObjectRow]:
    batches = RowBatches(RowFormat("csv", ",", encoding, max_bytes), io.BytesIO(text), "a.csv", skip)
    object_rows: list[ObjectRow] = []
    while not batches.complete:
        object_rows += batches.next(10)
    return object_rows


def summary(object_rows: list[ObjectRow]) -> list[tuple[int, str]]:
    """Number of each row, and its values or why there are none."""
    return [
        (row.number, row.reason or ",".join(orjson.loads(row.data or b"").values())) for row in object_rows
    ]


def test_a_stray_quote_refuses_its_line_and_no_other() -> None:
    object_rows = rows(b'id,name\n1,"a\n2,b\n3,c\n4,"d"\n5,e\n')
    assert summary(object_rows) == [(2, "not-csv"), (3, "2,b"), (4, "3,c"), (5, "4,d"), (6, "5,e")]
    assert (object_rows[0].data, object_rows[0].detail) == (
        b'1,"a\n',
        "a.csv: line 2: the record has a quote that does not end where the value does",
    )


@pytest.mark.slow
@pytest.mark.parametrize("stray_line", [2, 100_001])
@pytest.mark.parametrize("other_quotes", [False, True])
def test_a_stray_quote_in_a_large_object_refuses_its_line_and_no_other(
    stray_line: int, *, other_quotes: bool
) -> None:
    end = '"' if other_quotes else ""
    lines = ["id,name\n"] + [f"{number},{end}name {number}{end}\n" for number in range(2, 100_002)]
    lines[stray_line - 1] = f'{stray_line},"name\n'
    began_s = time.monotonic()
    object_rows = rows("".join(lines).encode(), max_bytes=1024 * 1024)
    assert [row.number for row in object_rows] == [*range(2, 100_002)]
    assert [row.number for row in object_rows if row.reason] == [stray_line]
    assert time.monotonic() - began_s < 60


def test_a_bad_record_of_several_lines_is_refused_with_all_of_them() -> None:
    object_rows = rows(b'id,a,b\n1,"one\ntwo" x,\n2,c,d\n3,"e\nf",g\n')
    assert summary(object_rows) == [(2, "not-csv"), (4, "2,c,d"), (5, "3,e\nf,g")]
    assert object_rows[0].data == b'1,"one\ntwo" x,\n'
    assert object_rows[0].detail.startswith("a.csv: lines 2 to 3: the record cannot be read")


def test_lines_of_one_value_that_belong_to_a_bad_record_are_all_refused() -> None:
    object_rows = rows(b'id\n"one\ntwo" x\n3\n"4\n5\n')
    assert summary(object_rows) == [(2, "not-csv"), (3, "not-csv"), (4, "3"), (5, "not-csv"), (6, "5")]


@pytest.mark.parametrize("newlines", [0, 1, 7, 400])
@pytest.mark.parametrize("size", [999, 1000, 5000, 100_000])
def test_the_row_after_one_that_is_too_large_is_read(newlines: int, size: int) -> None:
    value = "x" * size
    for _ in range(newlines):
        value = value[: len(value) // 2] + "\n" + value[len(value) // 2 :]
    object_rows = rows(f'id,name\n1,a\n2,"{value}"\n3,b\n'.encode())
    assert summary(object_rows) == [(2, "1,a"), (3, "too-large"), (4 + newlines, "3,b")]
    assert f" {size + newlines + 5} bytes" in object_rows[1].detail
    last = f" to {3 + newlines}" if newlines else ""
    assert object_rows[1].detail.startswith(f"a.csv: line{'s' if newlines else ''} 3{last}: ")


def test_a_line_without_quotes_that_is_too_large_is_refused_alone() -> None:
    object_rows = rows(b"id,name\n1," + b"x" * 200_000 + b"\n2,b\n")
    assert summary(object_rows) == [(2, "too-large"), (3, "2,b")]
    assert rows(b"x" * 5000 + b"\n1\n")[0].detail == "a.csv: the header has more than 1000 bytes"


@pytest.mark.parametrize("before", [b"", b"\n", b"\r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"  \n\n"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_byte_order_mark_and_empty_lines_before_the_header_are_left_out(before: bytes, end: bytes) -> None:
    object_rows = rows(before + end.join([b"id,name", b"1,a", b"", b"2,b"]))
    assert [values for _, values in summary(object_rows)] == ["1,a", "2,b"]
    first_line = before.count(b"\n") + 2
    assert [row.number for row in object_rows] == [first_line, first_line + 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a,b,a\n1,2,3\n", "the header names the column 'a' twice"),
        (b"a,,\n1,2,3\n", "the header names the column '' twice"),
        (b"a,\xff\n1,2\n", "the header is not UTF-8"),
        (b"a,b\r1,2\r3,4\r", "the header cannot be read (a carriage return without a line feed)"),
        (b'a,"b\n1,2\n', "the header cannot be read (unexpected end of data)"),
    ],
)
def test_an_object_whose_header_cannot_be_used_is_refused_once(text: bytes, problem: str) -> None:
    (row,) = rows(text)
    assert (row.number, row.reason, row.detail) == (1, "csv-header", f"a.csv: {problem}")


TABLE = "id,name\n1,a\n2,ü\n3,c\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("before", ["", "\ufeff", "\n\n"])
def test_another_encoding_is_named_once_for_the_object_and_can_be_declared(
    encoding: str, before: str
) -> None:
    if before == "\ufeff" and encoding in {"utf-16", "utf-32"}:
        before = ""  # they have one
    text = (before + TABLE).encode(encoding)
    (row,) = rows(text)
    assert (row.number, row.reason) == (1, "unknown-encoding")
    declared = re.search(r"declare `encoding: (.*)`", row.detail)
    if encoding == "utf-32":
        assert declared is None
        return
    assert declared is not None
    assert [values for _, values in summary(rows(text, encoding=declared[1]))] == ["1,a", "2,ü", "3,c"]
    assert [values for _, values in summary(rows(text, encoding=encoding))] == ["1,a", "2,ü", "3,c"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "table",
    [
        ["имя,город", "Иван,Москва"],
        ["имя", "Иван"],
        ["име", "Његош", "Њ"],
        ["όνομα,πόλη", "Νίκος,Αθήνα", "Ελένη,Πάτρα"],
        ["名前,都市", "太郎,東京", "次郎,大阪"],
        ["人,地", "王上,上海", "李,上上上", "丁,京"],
        ["ਨਾਮ,ਸ਼ਹਿਰ", "ਅਮਰ,ਊਨਾ"],
        ["id,name", "1,a"],
    ],
)
def test_wide_characters_are_recognized_whatever_the_script(
    encoding: str, end: str, table: list[str]
) -> None:
    (row,) = rows("".join(line + end for line in table).encode(encoding))
    assert (row.number, row.reason) == (1, "unknown-encoding")
    assert (f"declare `encoding: {encoding}`" in row.detail) == encoding.startswith("utf-16")


@pytest.mark.parametrize("line", [b"1,ab\0\n", b"\0001,ab\n", b"1,abc\0\n", b"12\0,ab\0\n", b"\0,\0\r\n"])
def test_values_that_begin_or_end_with_nul_bytes_are_values(line: bytes) -> None:
    for header in (b"a,b\n", b"ab,b\n"):
        object_rows = rows(header + line * 50)
        assert [row.reason for row in object_rows] == [""] * 50


@pytest.mark.parametrize("actual", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("declared", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "windows-1252"])
def test_an_object_in_another_encoding_than_the_declared_one_is_never_read_as_nonsense(
    actual: str, declared: str
) -> None:
    object_rows = rows("id,name\n1,a\n2,b\n".encode(actual), encoding=declared)
    if object_rows[0].reason:
        (row,) = object_rows
        assert row.reason == "unknown-encoding"
        assert declared.upper() in row.detail
    else:
        assert [values for _, values in summary(object_rows)] == ["1,a", "2,b"]


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252"])
def test_text_of_one_byte_a_character_is_read_if_its_encoding_is_declared(encoding: str) -> None:
    text = TABLE.encode(encoding)
    assert [values for _, values in summary(rows(text))] == ["1,a", "not-csv", "3,c"]
    assert [values for _, values in summary(rows(text, encoding=encoding))] == ["1,a", "2,ü", "3,c"]


def test_what_cannot_be_decoded_is_refused_alone() -> None:
    text = TABLE.replace("ü", "\x81").encode("latin-1")
    assert [values for _, values in summary(rows(text, encoding="windows-1252"))] == ["1,a", "not-csv", "3,c"]
    half_character = "id,name\n1,".encode("utf-16") + b"\x00\xd8" + "\n2,b\n".encode("utf-16-le")
    assert [values for _, values in summary(rows(half_character, encoding="utf-16"))] == ["not-csv", "2,b"]


def test_nul_bytes_in_values_are_values() -> None:
    object_rows = rows(b"id,name\n1,a\x00b\n\x00,\n")
    assert [row.data for row in object_rows] == [
        b'{"id":"1","name":"a\\u0000b"}',
        b'{"id":"\\u0000","name":""}',
    ]


VALUES = st.text(st.sampled_from('ab1 ,"\n\r\x00äß'), max_size=8)


@given(st.data(), st.integers(1, 4))
def test_a_table_is_read_as_it_was_written_from_any_line_on(data: st.DataObject, width: int) -> None:
    table = data.draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=8))
    table = [record for record in table if record != [""]]
    columns = [f"c{number}" for number in range(width)]
    csv_text, starts = io.StringIO(newline=""), []
    writer = csv.writer(csv_text, quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    writer.writerow(columns)
    for record in table:
        starts.append(csv_text.getvalue().count("\n") + 1)
        writer.writerow(record)
    text = csv_text.getvalue().encode()
    skip = data.draw(st.integers(0, (starts or [0])[-1]))
    object_rows = rows(text, skip=skip)
    assert [(row.number, list(orjson.loads(row.data or b"").values())) for row in object_rows] == [
        (number, record) for number, record in zip(starts, table, strict=True) if number > skip
    ]


@given(
    st.binary(max_size=300) | st.text(st.sampled_from('a,"\n\r'), max_size=120).map(str.encode),
    st.integers(20, 60),
)
def test_every_line_belongs_to_one_row_whatever_the_object_contains(content: bytes, max_bytes: int) -> None:
    text = b"x,y\n" + content
    covered: list[int] = []
    for row in rows(text, max_bytes):
        if row.reason in {"unknown-encoding", "unknown-compression"} or "bytes as JSON" in row.detail:
            return
        lines = re.search(r"lines? (\d+)(?: to (\d+))?:", row.detail)
        if lines is None:
            assert not row.reason
            text_of_row = list(orjson.loads(row.data or b"").values())
            covered += range(row.number, row.number + 1 + sum(value.count("\n") for value in text_of_row))
        else:
            assert int(lines[1]) == row.number
            covered += range(row.number, int(lines[2] or lines[1]) + 1)
    assert len(covered) == len(set(covered)), "a line belongs to two rows"
    assert covered == sorted(covered)
    all_lines = io.BytesIO(text).readlines()
    unread_lines = {
        number for number, line in enumerate(all_lines, 1) if number > 1 and line.strip(b"\r\n")
    } - {*covered}
    assert not unread_lines, "a line has vanished"


@given(st.lists(st.text(st.sampled_from('a,"'), max_size=8), min_size=1, max_size=6))
def test_the_end_of_a_large_record_is_found_as_the_parser_finds_it(chunks: list[str]) -> None:
    scanner = QuoteScanner(",")
    for chunk in chunks:
        scanner.read(chunk.encode())
    whole_scanner = QuoteScanner(",")
    whole_scanner.read("".join(chunks).encode())
    assert scanner.open == whole_scanner.open
    try:
        list(csv.reader(["".join(chunks)], strict=True))
    except csv.Error as error:
        if "unexpected end" in str(error):
            assert scanner.open
    else:
        assert not scanner.open
