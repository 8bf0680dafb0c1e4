"""Random tables from each source to each destination; what stands there is compared with what was sent."""

from typing import Any

import hypothesis
from hypothesis import HealthCheck, given, settings
from tests.values.destinations import DESTINATIONS, Rows
from tests.values.sources import SOURCES
from tests.values.tables import Table, same, tables, text_of

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.program import compile_pipe

Pair = tuple[str, str]
PAIRS: list[Pair] = [(source, destination) for source in SOURCES for destination in DESTINATIONS]
EXAMPLES = 10
"""Tables that hypothesis makes with one seed."""


def normalized(table: Table, data: list[bytes]) -> list[bytes]:
    """The data as normalize writes it, with each field mapped to itself."""
    program = compile_pipe(
        Pipe.model_validate(
            {
                "pipe": "p",
                "source": {"keys": [{"sha256": "0" * 64}]},
                "normalize": {"fields": {name: name for name in table.columns}},
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


def round_trip(pair: Pair, count: int, seed: int) -> int:
    """Send at least `count` values of random tables; the number of those that were sent.

    Raises:
        AssertionError: a value at the destination is another one.
    """
    source, destination = pair
    read, write = SOURCES[source], DESTINATIONS[destination]
    sent = 0

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )  # fmt: skip
    @given(tables())
    def check(table: Table) -> None:
        nonlocal sent
        if source == "csv":
            table = as_text(table)
        sent += table.values
        stored = write(table, normalized(table, read(table)))
        assert differences(table, stored) == []

    while sent < count:
        hypothesis.seed(seed)(check)()
        seed += 1
    return sent


def differences(table: Table, stored: Rows) -> list[Any]:
    """Kind, value that was sent and value that is stored, where they differ."""
    assert len(stored) == len(table.rows)
    return [
        (table.columns[name], row[name], there.get(name))
        for row, there in zip(table.rows, stored, strict=True)
        for name in table.columns
        if not same(row[name], there.get(name))
    ]
