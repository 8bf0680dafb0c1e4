"""Rows of text: NDJSON and CSV. The number of a row is that of its first line."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from hifi.record.cloudevents.event import InvalidEvent
from hifi.record.cloudevents.json_slices import is_object, is_within_depth
from hifi_objects.source.rows.csv_quotes import QuoteScanner
from hifi_objects.source.rows.encoding import utf8_text
from hifi_objects.source.rows.lines import Lines
from hifi_objects.source.rows.row import MAX_DEPTH, ObjectRow, UnreadableObject, row_of

_SAMPLE_LINES: Final = 100
_SHOWN: Final = 80


def ndjson_rows(file: BinaryIO, max_bytes: int, encoding: str) -> Iterator[ObjectRow]:
    """The lines of a file; empty ones are counted and left out.

    Args:
        file: at its beginning.
        max_bytes: largest line that is read.
        encoding: as the pipe declares it.
    """
    lines = Lines(utf8_text(file, encoding), max_bytes)
    while line := lines.next():
        number = lines.number
        if len(line) > max_bytes:
            size = lines.skip_rest(line)
            yield ObjectRow(
                number, None, "too-large", f"line {number} has {size} bytes; the limit is {max_bytes}"
            )
        elif text := line.strip():
            yield _json_row(number, text)


def _json_row(number: int, text: bytes) -> ObjectRow:
    try:
        is_an_object = is_object(text)
    except InvalidEvent as error:
        return ObjectRow(
            number, text, "not-json", f"line {number} is not JSON: {error.detail.removeprefix('not JSON: ')}"
        )
    if not is_an_object:
        return ObjectRow(number, text, "not-json", f"line {number} is not a JSON object")
    if not is_within_depth(text, MAX_DEPTH):
        return ObjectRow(number, text, "not-json", f"line {number} is nested deeper than {MAX_DEPTH} levels")
    return ObjectRow(number, text)


def csv_rows(file: BinaryIO, max_bytes: int, delimiter: str, encoding: str) -> Iterator[ObjectRow]:
    """The records of a file after the first one, which names the columns; all values are text.

    Args:
        file: at its beginning; empty lines before the header are left out.
        max_bytes: largest record that is read.
        delimiter: between values, ASCII.
        encoding: as the pipe declares it.

    Raises:
        UnreadableObject: the header cannot be read, or names a column twice.
    """
    yield from _CsvRecords(Lines(utf8_text(file, encoding), max_bytes), max_bytes, delimiter).rows()


class _RecordTooLarge(Exception):
    """The lines of a record are longer than a record may be."""


class _CsvRecords:
    """Reads records. It is the iterator from which the parser takes the lines of one record.

    A quote in the wrong place makes the parser take the lines behind it for a part of the same value, up to the next
    quote. If most of them are records by themselves, only the line with the quote is refused, and they are read again.
    """

    def __init__(self, lines: Lines, max_bytes: int, delimiter: str) -> None:
        csv.field_size_limit(max_bytes)
        self._lines = lines
        self._max_bytes = max_bytes
        self._delimiter = delimiter
        self._record_lines: list[bytes] = []
        """Lines of the record so far."""
        self._size = 0
        """Of them, bytes."""
        self._columns: Sequence[str] = ()
        self._lines_ended = False
        """Whether the lines ended within the record."""

    def __iter__(self) -> "_CsvRecords":
        return self

    def __next__(self) -> str:
        """The next line of the record."""
        line = self._lines.next()
        if not line:
            self._lines_ended = True
            raise StopIteration
        self._record_lines.append(line)
        self._size += len(line)
        if self._size > self._max_bytes:
            raise _RecordTooLarge
        return line.decode("utf-8", "surrogateescape")

    def rows(self) -> Iterator[ObjectRow]:
        """All rows."""
        parser = csv.reader(self, delimiter=self._delimiter, strict=True)
        if not self._read_header(parser):
            return
        width = len(self._columns)
        while True:
            self._record_lines, self._size, self._lines_ended = [], 0, False
            try:
                values = next(parser)
            except StopIteration:
                return
            except _RecordTooLarge:
                yield self._too_large()
                continue
            except csv.Error as error:
                yield from self._not_csv(f"cannot be read ({_problem(error)})")
                continue
            if len(values) == width:
                yield self._row(values)
            elif values:  # not an empty line
                yield from self._not_csv(f"has {len(values)} values, and the header {width}")

    def _read_header(self, parser: Iterator[list[str]]) -> bool:
        """Read the columns; False: there is no header."""
        columns: list[str] = []
        try:
            while not columns or (len(columns) == 1 and not columns[0].strip()):
                self._record_lines, self._size = [], 0
                columns = next(parser)
        except StopIteration:
            return False
        except _RecordTooLarge:
            raise UnreadableObject(
                "csv-header", f"the header has more than {self._max_bytes} bytes"
            ) from None
        except csv.Error as error:
            raise UnreadableObject("csv-header", f"the header cannot be read ({_problem(error)})") from None
        try:
            "".join(columns).encode()
        except UnicodeEncodeError:
            raise UnreadableObject("csv-header", "the header is not UTF-8") from None
        name, count = Counter(columns).most_common(1)[0]
        if count > 1:
            raise UnreadableObject("csv-header", f"the header names the column {name[:_SHOWN]!r} twice")
        self._columns = columns
        return True

    def _row(self, values: Sequence[str]) -> ObjectRow:
        number = self._first_line
        row = row_of(number, dict(zip(self._columns, values, strict=True)))
        if row.reason:
            return self._refused("not-csv", "is not UTF-8")
        return row

    @property
    def _first_line(self) -> int:
        return self._lines.number - len(self._record_lines) + 1

    def _not_csv(self, problem: str) -> Iterator[ObjectRow]:
        """Refuse the lines of the record, or the first of them if the others are records by themselves."""
        if len(self._record_lines) > 1 and self._are_records(self._record_lines[1:]):
            self._keep_first_line()
            yield self._refused("not-csv", "has a quote that does not end where the value does")
        elif len(self._columns) > 1 or len(self._record_lines) == 1:
            yield self._refused("not-csv", problem)
        else:  # a text over several lines and records look the same
            lines = self._record_lines
            self._lines.put_back(lines)
            for line in lines:
                self._lines.next()
                self._record_lines = [line]
                yield self._refused("not-csv", "belongs to a record that cannot be read")

    def _too_large(self) -> ObjectRow:
        lines, size = self._record_lines, self._size
        is_whole = len(lines[-1]) <= self._max_bytes
        if len(lines) > 1 and self._are_records(lines[1 : len(lines) if is_whole else -1]):
            self._keep_first_line()
            return self._refused("not-csv", "has a quote that does not end where the value does")
        number, scanner = self._first_line, QuoteScanner(self._delimiter)
        for line in lines:
            scanner.read(line)
        if not is_whole:
            size += self._lines.skip_rest(lines[-1], scanner.read) - len(lines[-1])
        while scanner.open and (line := self._lines.next()):
            scanner.read(line)
            size += len(line) if len(line) <= self._max_bytes else self._lines.skip_rest(line, scanner.read)
        detail = f"the record has {size} bytes; the limit is {self._max_bytes}"
        return ObjectRow(number, None, "too-large", f"{_line_range(number, self._lines.number)}: {detail}")

    def _are_records(self, lines: list[bytes]) -> bool:
        """Whether most of these lines have as many values as the header."""
        sample = lines[:_SAMPLE_LINES]
        if len(self._columns) == 1:  # a text over several lines looks the same, but it ends
            return self._lines_ended
        fitting_lines = 0
        for line in sample:
            text = line.decode("utf-8", "surrogateescape")
            try:
                values = next(csv.reader([text], delimiter=self._delimiter, strict=True))
            except csv.Error:
                continue
            fitting_lines += len(values) == len(self._columns)
        return bool(sample) and fitting_lines * 2 >= len(sample)

    def _keep_first_line(self) -> None:
        """Have the lines after the first one read again."""
        self._lines.put_back(self._record_lines[1:])
        self._record_lines = self._record_lines[:1]

    def _refused(self, reason: str, problem: str) -> ObjectRow:
        number = self._first_line
        data = b"".join(self._record_lines)
        return ObjectRow(
            number, data, reason, f"{_line_range(number, self._lines.number)}: the record {problem}"
        )


def _problem(error: csv.Error) -> str:
    """The parser's error, without its advice to programmers."""
    text = str(error)
    return "a carriage return without a line feed" if text.startswith("new-line character") else text


def _line_range(first: int, last: int) -> str:
    return f"line {first}" if first == last else f"lines {first} to {last}"
