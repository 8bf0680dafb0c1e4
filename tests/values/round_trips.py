"""Random tables from each source to each destination; what stands there is compared with what was sent."""

from collections.abc import Callable
from typing import Any, TypeAlias

import hypothesis
from hypothesis import HealthCheck, given, settings
from tests.values.destinations import Rows
from tests.values.tables import Table, same, tables, text_of

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.program import compile_pipe

Read: TypeAlias = Callable[[Table], list[bytes]]
"""Writes a table in the format of a source, and reads it with hifi: the data of each event."""
Write: TypeAlias = Callable[[Table, list[bytes]], Rows]
"""Writes events with hifi, and reads what stands at the destination."""
EXAMPLES = 10
"""Tables that hypothesis makes with one seed."""


def normalized(table: Table, data: list[bytes]) -> list[bytes]:
    """The data as normalize writes it, with each field mapped to itself."""
    program = compile_pipe(
        Pipe.model_validate(
            {
                "pipe": "p",
                "source": {"keys": [{"sha256": "0" * 64}]},
                "normalize": {"fields": {name: name for name in table.columns}, "keep": "mapped"},
                "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
            }
        )
    )
    return [program.run(text, b"application/json") or b"" for text in data]


def as_text(table: Table) -> Table:
    """The same table for CSV, which has texts alone."""
    texts = [
        {name: str(text_of(value, table.columns[name])) for name, value in row.items()} for row in table.rows
    ]
    return Table(dict.fromkeys(table.columns, "text"), texts)


def round_trip(source: str, count: int, seed: int, read: Read, write: Write) -> int:
    """Send at least `count` values of random tables; the number of those that were sent.

    Raises:
        AssertionError: a value at the destination is another one.
    """

    def check(table: Table) -> None:
        assert differences(table, write(table, normalized(table, read(table)))) == []

    return _for_tables(source, count, seed, check)


def joined_round_trip(source: str, count: int, seed: int, read: Read, write: Write) -> int:
    """As `round_trip`, but the rows of all tables go to one table, with a column for each kind and position.

    Raises:
        AssertionError: a value at the destination is another one.
    """
    joined_table = Table({}, [])
    joined_data: list[bytes] = []

    def collect(table: Table) -> None:
        column_names = {name: f"{kind}{index}" for index, (name, kind) in enumerate(table.columns.items())}
        columns = {column_names[name]: kind for name, kind in table.columns.items()}
        renamed_table = Table(
            columns, [{column_names[name]: row[name] for name in row} for row in table.rows]
        )
        joined_data.extend(normalized(renamed_table, read(renamed_table)))
        joined_table.columns.update(renamed_table.columns)
        joined_table.rows.extend(renamed_table.rows)

    value_count = _for_tables(source, count, seed, collect)
    rows = [dict.fromkeys(joined_table.columns) | row for row in joined_table.rows]
    assert differences(Table(joined_table.columns, rows), write(joined_table, joined_data))[:10] == []
    return value_count


def _for_tables(source: str, count: int, seed: int, use: Callable[[Table], None]) -> int:
    """Call a function with random tables of at least `count` values; the number of values."""
    value_count = 0

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )  # fmt: skip
    @given(tables())
    def check(table: Table) -> None:
        nonlocal value_count
        if source == "csv":
            table = as_text(table)
        value_count += table.values
        use(table)

    while value_count < count:
        hypothesis.seed(seed)(check)()
        seed += 1
    return value_count


def differences(table: Table, stored_rows: Rows) -> list[Any]:
    """Kind, value that was sent and value that is stored, where they differ."""
    assert len(stored_rows) == len(table.rows)
    return [
        (table.columns[name], row[name], stored_row.get(name))
        for row, stored_row in zip(table.rows, stored_rows, strict=True)
        for name in table.columns
        if not same(row[name], stored_row.get(name))
    ]
