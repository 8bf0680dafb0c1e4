"""The rows of a query of others are bounded while they are fetched."""

import sqlite3
from collections.abc import Iterator

import pytest

from hifi.runtime.read_only_sql import QueryTooExpensive, Result, select

LONG_BYTES = 1000


class CountedRows:
    """A database whose function `long_text` makes the values of 500 rows, and counts them."""

    def __init__(self) -> None:
        self.made_values = 0
        self.database = sqlite3.connect(":memory:")
        self.database.create_function("long_text", 1, self._make)
        self.database.execute("CREATE TABLE numbers (number)")
        self.database.executemany("INSERT INTO numbers VALUES (?)", ([number] for number in range(500)))

    def _make(self, number: int) -> str:
        self.made_values += 1
        return f"{number:0{LONG_BYTES}}"

    def select(self, *, rows: int, result_bytes: int | None) -> Result:
        """The values of the first rows."""
        return select(
            self.database,
            "SELECT long_text(number) FROM numbers",
            rows=rows,
            within_s=60,
            longest_value_bytes=LONG_BYTES,
            result_bytes=result_bytes,
        )


@pytest.fixture
def counted_rows() -> Iterator[CountedRows]:
    counted = CountedRows()
    yield counted
    counted.database.close()


def test_rows_after_the_one_that_is_too_much_are_not_read(counted_rows: CountedRows) -> None:
    with pytest.raises(QueryTooExpensive, match="more than 2,500 bytes"):
        counted_rows.select(rows=400, result_bytes=2_500)
    assert counted_rows.made_values <= 4, "SQLite makes one ahead"


@pytest.mark.parametrize("result_bytes", [None, 500 * LONG_BYTES])
@pytest.mark.parametrize(("rows", "more"), [(0, True), (499, True), (500, False), (501, False)])
def test_whether_there_are_more_rows_is_told(
    counted_rows: CountedRows, rows: int, result_bytes: int | None, *, more: bool
) -> None:
    result = counted_rows.select(rows=rows, result_bytes=result_bytes)
    assert (len(result.rows), result.more) == (min(rows, 500), more)
