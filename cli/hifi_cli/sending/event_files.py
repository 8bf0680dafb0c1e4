"""Read events from a file: JSON lines, a JSON array, or CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import orjson

from hifi.runtime.errors import Misconfigured

_SUFFIXES: Final = {".csv": "csv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}
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
        source: the file, opened for reading bytes.
        name: name of the file; its suffix gives the format if `file_format` is `auto`.
        file_format: `auto` detects the format by the suffix, otherwise by the first character.
        types: convert CSV values that are numbers, `true`, `false`, `null` or empty to JSON types.

    Raises:
        Misconfigured: the file as a whole does not have the format.
    """
    kind = file_format if file_format is not FileFormat.AUTO else _guess(source, name)
    if kind is FileFormat.CSV:
        yield from _csv(source, types=types)
    elif kind is FileFormat.JSON:
        yield from _array(source.read(), name)
    else:
        yield from _lines(source)


def _guess(reader: io.BufferedReader, name: str) -> FileFormat:
    first = reader.peek(1 << 12).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    suffix = _SUFFIXES.get(Path(name).suffix.lower())
    if suffix == "json":
        return FileFormat.JSON
    if suffix:
        return FileFormat(suffix)
    return {b"[": FileFormat.JSON, b"{": FileFormat.NDJSON}.get(first, FileFormat.CSV)


def _lines(lines: Iterable[bytes]) -> Iterator[FileEvent | UnreadableEvent]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text:
            yield _checked(number, text)


def _checked(number: int, text: bytes) -> FileEvent | UnreadableEvent:
    """Return the bytes unchanged if they are one JSON object: ingest keeps them byte for byte."""
    try:
        if not isinstance(orjson.loads(text), dict):
            return UnreadableEvent(number, "not a JSON object")
    except orjson.JSONDecodeError as error:
        return UnreadableEvent(number, f"not JSON: {error}")
    return FileEvent(number, text)


def _array(content: bytes, name: str) -> Iterator[FileEvent | UnreadableEvent]:
    try:
        whole = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        lines = content.splitlines()
        if len(lines) > 1 and lines[0].strip().startswith(b"{"):
            yield from _lines(lines)
            return
        raise Misconfigured(f"{name} is not JSON: {error}") from None
    for number, element in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield (
            FileEvent(number, orjson.dumps(element))
            if isinstance(element, dict)
            else UnreadableEvent(number, "not a JSON object")
        )


def _csv(reader: io.BufferedReader, *, types: bool) -> Iterator[FileEvent | UnreadableEvent]:
    rows = csv.reader(io.TextIOWrapper(reader, "utf-8-sig", newline=""), strict=True)
    try:
        header = next(rows, None)
        if not header or len(set(header)) < len(header):
            raise Misconfigured("the first line of a CSV file must name the columns, each only once")
        for row in rows:
            if not row:
                continue
            if len(row) != len(header):
                yield UnreadableEvent(
                    rows.line_num, f"{len(row)} values, but the header has {len(header)} columns"
                )
                continue
            values: list[Any] = [_typed(value) for value in row] if types else list(row)
            yield FileEvent(rows.line_num, orjson.dumps(dict(zip(header, values, strict=True))))
    except csv.Error as error:
        raise Misconfigured(f"line {rows.line_num} is not valid CSV: {error}") from None
    except UnicodeDecodeError as error:
        raise Misconfigured(f"the CSV file is not UTF-8: {error.reason} at byte {error.start}") from None


def _typed(value: str) -> Any:
    if value.lower() in _CSV_CONSTANTS:
        return _CSV_CONSTANTS[value.lower()]
    # Only JSON numbers are converted: "007", "1_000" and numbers that a double cannot hold stay text.
    try:
        number = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return number if isinstance(number, int | float) else value
