"""Read events from a file: JSON lines, a JSON array, or CSV."""

import csv
import io
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import orjson

from hifi.record.cloudevents.event import InvalidEvent
from hifi.record.cloudevents.json_slices import check_utf8, value_slice, without_bom
from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.json_array import ArrayItems, NotAnArray

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""A longer line or cell is not read as a whole; ingest accepts smaller ones only."""
_BOM: Final = b"\xef\xbb\xbf"
_SUFFIXES: Final = {".csv": "csv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number of JSON (RFC 8259, 6)."""
_ENDLESS_CELL: Final = ("field larger than field limit", "unexpected end of data")
_SAMPLE_LINES: Final = 100
"""Lines behind a stray quotation mark that are looked at."""
_CSV_CONSTANTS: Final = {"true": True, "false": False, "null": None, "": None}


class FileFormat(StrEnum):
    """Format of a file of events."""

    AUTO = "auto"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One event as it is sent, and its number: the line, or the position in the array, counted from 1."""

    number: int
    data: bytes


class UnreadableEvent(Exception):
    """An event of the file that cannot be sent."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def read_events(
    source: io.BufferedReader, name: str, file_format: FileFormat, *, types: bool = False
) -> Iterator[FileEvent | UnreadableEvent]:
    """Read the events of a file.

    Args:
        source: the file, opened for reading bytes; it is closed after its last event.
        name: name of the file; its suffix gives the format if `file_format` is `auto`.
        file_format: `auto` detects the format by the suffix, otherwise by the first character.
        types: convert CSV values that are numbers, `true`, `false`, `null` or empty to JSON types.

    Raises:
        Misconfigured: the file as a whole does not have the format.
    """
    with source:
        kind = file_format if file_format is not FileFormat.AUTO else _guess(source, name)
        if kind is FileFormat.CSV:
            yield from _csv(source, types=types)
        elif kind is FileFormat.JSON:
            yield from _json(source, name)
        else:
            yield from _lines(_bounded_lines(source))


def _guess(reader: io.BufferedReader, name: str) -> FileFormat:
    first_byte = reader.peek(1 << 12).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    suffix = _SUFFIXES.get(Path(name).suffix.lower())
    if suffix == "json":
        return FileFormat.JSON
    if suffix:
        return FileFormat(suffix)
    return {b"[": FileFormat.JSON, b"{": FileFormat.NDJSON}.get(first_byte, FileFormat.CSV)


def _lines(lines: Iterable[bytes | None]) -> Iterator[FileEvent | UnreadableEvent]:
    for number, line in enumerate(lines, 1):
        if line is None:
            yield UnreadableEvent(number, f"the line has more than {MAX_EVENT_BYTES} bytes")
            continue
        text = (without_bom(line) if number == 1 else line).strip()
        if text:
            yield _checked(number, text)


def _bounded_lines(reader: io.BufferedReader) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long to be kept in memory."""
    while line := reader.readline(MAX_EVENT_BYTES + 1):
        is_too_long = len(line) > MAX_EVENT_BYTES
        while len(line) > MAX_EVENT_BYTES and not line.endswith(b"\n"):
            line = reader.readline(MAX_EVENT_BYTES + 1)
        yield None if is_too_long else line


def _checked(number: int, text: bytes) -> FileEvent | UnreadableEvent:
    """Return the bytes unchanged if they are one JSON object: ingest keeps them byte for byte."""
    try:
        check_utf8(text)
        value_slice(text)
    except InvalidEvent as error:
        return UnreadableEvent(number, error.detail)
    return FileEvent(number, text) if text.startswith(b"{") else UnreadableEvent(number, "not a JSON object")


def _json(source: io.BufferedReader, name: str) -> Iterator[FileEvent | UnreadableEvent]:
    """The items of an array, one object, or lines; nothing larger than an event is kept in memory."""
    head, skipped_bytes = source.read(len(_BOM)), 0
    if head == _BOM:
        head, skipped_bytes = b"", len(_BOM)
    while not head.strip() and (next_byte := source.read(1)):
        skipped_bytes += len(head)
        head = next_byte
    skipped_bytes += len(head) - len(head.lstrip())
    remainder = io.BufferedReader(_Chained(head.lstrip(), source))
    if head.lstrip().startswith(b"["):
        yield from _array(remainder, name, skipped_bytes)
        return
    content = remainder.read(MAX_EVENT_BYTES + 1)
    lines = _bounded_lines(io.BufferedReader(_Chained(content, remainder)))
    if len(content) > MAX_EVENT_BYTES and content.startswith(b"{"):
        yield from _lines(lines)
        return
    try:
        check_utf8(content)
        yield _as_line(1, value_slice(content.strip()))
    except InvalidEvent as error:
        if content.startswith(b"{") and b"\n" in content.strip():
            yield from _lines(lines)
            return
        raise Misconfigured(f"{name} is not JSON: {error.detail}") from None


def _array(reader: BinaryIO, name: str, start: int) -> Iterator[FileEvent | UnreadableEvent]:
    """The items of an array as they are written, so that numbers keep their digits."""
    try:
        for number, item in enumerate(ArrayItems(reader, start, MAX_EVENT_BYTES), 1):
            if item.text is None:
                reason = f"the item at byte {item.start} has more than {MAX_EVENT_BYTES} bytes"
                yield UnreadableEvent(number, reason)
                continue
            try:
                check_utf8(item.text)
                yield _as_line(number, value_slice(item.text))
            except InvalidEvent as error:
                yield UnreadableEvent(number, f"{error.detail} (the item at byte {item.start})")
    except NotAnArray as error:
        raise Misconfigured(f"{name} is not JSON: {error}; the events before it are sent") from None


def _as_line(number: int, element: bytes | msgspec.Raw) -> FileEvent | UnreadableEvent:
    try:
        line = msgspec.json.format(element, indent=-1)  # an event is sent as a line
    except RecursionError:
        return UnreadableEvent(number, "nested too deeply")
    return FileEvent(number, line) if line.startswith(b"{") else UnreadableEvent(number, "not a JSON object")


class _Chained(io.RawIOBase):
    """Bytes that were read already, then the rest of their file."""

    def __init__(self, head: bytes, remainder: "io.BufferedReader[Any]") -> None:
        self._head = head
        self._remainder = remainder

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._remainder.read1(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _csv(reader: io.BufferedReader, *, types: bool) -> Iterator[FileEvent | UnreadableEvent]:
    csv.field_size_limit(MAX_EVENT_BYTES)
    lines = _CsvLines(io.TextIOWrapper(reader, "utf-8-sig", newline=""))
    rows = csv.reader(lines, strict=True)
    try:
        header = _csv_header(rows)
        while True:
            lines.begin_row()
            try:
                row = next(rows)
            except StopIteration:
                return
            except _RowTooLarge:
                yield _too_large_row(lines, header)
                continue
            except csv.Error as error:
                if (unreadable := _stray_quote(lines, header)) is not None:
                    yield unreadable
                    continue
                # The beginning of the next row is not known.
                if any(text in str(error) for text in _ENDLESS_CELL):
                    raise _endless(lines, str(error)) from None
                yield UnreadableEvent(lines.number, f"not valid CSV: {error}")
                continue
            if not row:
                continue
            if len(row) != len(header):
                yield _stray_quote(lines, header) or UnreadableEvent(
                    lines.number, f"{len(row)} values, but the header has {len(header)} columns"
                )
                continue
            values: list[Any] = [_typed(value) for value in row] if types else list(row)
            yield FileEvent(lines.number, orjson.dumps(dict(zip(header, values, strict=True))))
    except UnicodeDecodeError as error:
        raise Misconfigured(f"the CSV file is not UTF-8: {error.reason} at byte {error.start}") from None


class _RowTooLarge(Exception):
    """The lines of a row have more than `MAX_EVENT_BYTES` characters."""


class _CsvLines:
    """The lines of a CSV file, which the parser takes one by one. Those of one row can be read again."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self._returned_lines: deque[str] = deque()
        self._size = 0
        self.number = 0
        """Of the last line, from 1."""
        self.row: list[str] = []
        """Lines of the row so far."""

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = (
            self._returned_lines.popleft()
            if self._returned_lines
            else self._text.readline(MAX_EVENT_BYTES + 1)
        )
        if not line:
            raise StopIteration
        self.number += 1
        self.row.append(line)
        self._size += len(line)
        if self._size > MAX_EVENT_BYTES:
            raise _RowTooLarge
        return line

    def begin_row(self) -> None:
        """The next line begins a row."""
        self.row, self._size = [], 0

    def put_back(self) -> None:
        """Have the lines of the row after its first one read again."""
        self._returned_lines.extendleft(reversed(self.row[1:]))
        self.number -= len(self.row) - 1

    @property
    def is_cut(self) -> bool:
        """Whether of the last line the beginning was read only."""
        return len(self.row[-1]) > MAX_EVENT_BYTES and not self.row[-1].endswith(("\n", "\r"))

    def skip_rest(self) -> int:
        """Read a line of which the beginning was read to its end; return its quotation marks."""
        quotes, chunk = self.row[-1].count('"'), self.row[-1]
        while not chunk.endswith(("\n", "\r")) and (chunk := self._text.readline(1 << 16)):
            quotes += chunk.count('"')
        return quotes


def _stray_quote(lines: _CsvLines, header: list[str]) -> UnreadableEvent | None:
    """Refuse the first line of a row if most lines behind it are rows by themselves, which are read again then."""
    next_lines = lines.row[1 : 1 + _SAMPLE_LINES]
    if not next_lines or len(header) == 1:  # of one column, a text over several lines and rows look the same
        return None
    if sum(_has_columns(line, len(header)) for line in next_lines) * 2 < len(next_lines):
        return None
    lines.put_back()
    return UnreadableEvent(lines.number, "not valid CSV: a quotation mark does not end where the value does")


def _has_columns(line: str, count: int) -> bool:
    try:
        return len(next(csv.reader([line], strict=True))) == count
    except csv.Error:
        return False


def _too_large_row(lines: _CsvLines, header: list[str]) -> UnreadableEvent:
    """Refuse a row that is too large.

    Raises:
        Misconfigured: where the next one begins is not known.
    """
    if not lines.is_cut and (unreadable := _stray_quote(lines, header)) is not None:
        return unreadable
    if len(lines.row) > 1 or lines.skip_rest() % 2:
        raise _endless(lines, "the row is too large")
    return UnreadableEvent(lines.number, f"the row has more than {MAX_EVENT_BYTES} bytes")


def _endless(lines: _CsvLines, problem: str) -> Misconfigured:
    first_line = lines.number - len(lines.row) + 1
    return Misconfigured(
        f"line {first_line}: a cell has more than {MAX_EVENT_BYTES} bytes, or its quotation mark is"
        f" not closed ({problem}); the rows before it are sent"
    )


def _csv_header(rows: Iterator[list[str]]) -> list[str]:
    try:
        header = next(rows, None)
    except _RowTooLarge:
        raise Misconfigured(
            f"the first line of the CSV file, which names the columns, has more than {MAX_EVENT_BYTES} bytes"
        ) from None
    except csv.Error as error:
        raise Misconfigured(
            f"the first line of the CSV file, which names the columns, is not valid: {error}"
        ) from None
    if not header or len(set(header)) < len(header):
        raise Misconfigured("the first line of a CSV file must name the columns, each only once")
    return header


def _typed(value: str) -> Any:
    if value.lower() in _CSV_CONSTANTS:
        return _CSV_CONSTANTS[value.lower()]
    # Only JSON numbers are converted, with all digits: "007", "1_000" and numbers beyond a double's range stay text.
    number = value.strip(" \t\r\n")
    if _NUMBER.fullmatch(number) and math.isfinite(float(number)):
        return orjson.Fragment(number.encode())
    return value
