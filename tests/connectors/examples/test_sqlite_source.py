"""The example of a source: each row becomes one event, at the same position whenever it is read."""

import contextlib
import sqlite3
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.collect.collected_stream import collected_stream, fields

from hifi.pipe.model import Pipe
from hifi.pipe.source import installed_source_kind
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import PolledSource, SourceContext, SourceTurn
from hifi.record.headers import REFUSED


class Crash(Exception):
    """The process ends here."""


class RecordedTurn(SourceTurn):
    """A turn that keeps what is written, and ends when a source waits for more."""

    def __init__(self, entries: dict[str, Any], crash_at_write: int = 0) -> None:
        self.kept = entries
        self.written: list[tuple[str, list[SourceEvent], int]] = []
        self._crash_at_write = crash_at_write
        self._over = False

    @property
    def entries(self) -> Mapping[str, Any]:
        return self.kept

    def over(self) -> bool:
        return self._over

    async def pause(self, _: float) -> None:
        self._over = True

    async def keep(self, entries: Mapping[str, Any]) -> None:
        self.kept = {name: value for name, value in {**self.kept, **entries}.items() if value is not None}

    async def write(
        self, partition: str, events: Sequence[SourceEvent], accepted_us: int, remaining: int | None = None
    ) -> None:
        assert remaining is None
        self.written.append((partition, list(events), accepted_us))
        if len(self.written) == self._crash_at_write:
            raise Crash

    def warn(self, _: str, reason: str | None) -> None:
        assert reason is None

    def works(self) -> None:
        """The source answers."""


@pytest.fixture
def database(sqlite_kind: Path, tmp_path: Path) -> Path:
    """A table `orders` with three rows."""
    file = tmp_path / "shop.db"
    execute(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT)")
    execute(file, "INSERT INTO orders (name) VALUES ('a'), ('b'), ('c')")
    return file


def execute(file: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def declared(database: Path) -> dict[str, Any]:
    return {"kind": "sqlite", "database": str(database), "table": "orders", "interval": "100ms"}


def source(database: Path, max_bytes: int = 1000) -> PolledSource:
    kind = installed_source_kind("sqlite")
    polled_source = kind.open(
        kind.declaration.model_validate(declared(database)), SourceContext("s", "orders", max_bytes)
    )
    assert isinstance(polled_source, PolledSource)
    return polled_source


def read_again(events: list[SourceEvent]) -> list[tuple[int, Any]]:
    return [(event.position, event.data and orjson.loads(event.data)) for event in events]


async def test_each_row_is_read_once(database: Path) -> None:
    turn = RecordedTurn({})
    await source(database).read(turn)
    execute(database, "INSERT INTO orders (name) VALUES ('d')")
    next_turn = RecordedTurn(turn.kept)
    await source(database).read(next_turn)
    [(_, first, _)], [(_, second, _)] = turn.written, next_turn.written
    assert read_again(first) == [
        (1, {"id": 1, "name": "a"}),
        (2, {"id": 2, "name": "b"}),
        (3, {"id": 3, "name": "c"}),
    ]
    assert read_again(second) == [(4, {"id": 4, "name": "d"})]


async def test_after_a_crash_the_same_rows_are_written_again_with_their_positions_and_time(
    database: Path,
) -> None:
    crashed = RecordedTurn({}, crash_at_write=1)
    with pytest.raises(Crash):
        await source(database).read(crashed)
    execute(database, "INSERT INTO orders (name) VALUES ('d')")
    turn = RecordedTurn(crashed.kept)
    await source(database).read(turn)
    [(partition, events, accepted_us)] = crashed.written
    (repeated_write, new_write) = turn.written
    assert (repeated_write[0], read_again(repeated_write[1]), repeated_write[2]) == (
        partition,
        read_again(events),
        accepted_us,
    )
    assert read_again(new_write[1]) == [(4, {"id": 4, "name": "d"})]


async def test_a_row_that_is_too_large_is_refused(database: Path) -> None:
    execute(database, "INSERT INTO orders (name) VALUES (hex(zeroblob(600)))")
    turn = RecordedTurn({})
    await source(database).read(turn)
    [(_, events, _)] = turn.written
    assert [event.data is None for event in events] == [False, False, False, True]
    assert dict(events[3].headers)[REFUSED].startswith(b"too-large;")


async def test_collect_reads_it(kafka: str, log: Path, database: Path) -> None:
    pipe = Pipe.model_validate(
        {
            "pipe": "orders",
            "source": declared(database),
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
        }
    )
    async with collected_stream(kafka, log) as stream:
        await stream.publish(pipe)
        await stream.start("collect")
        await stream.read(stream.topics.raw, lambda records: len(records) == 3)
        execute(database, "INSERT INTO orders (name) VALUES ('d')")
        raw = await stream.read(stream.topics.raw, lambda records: len(records) == 4)
    assert {fields(record)["ce_id"] for record in raw} == {b"1", b"2", b"3", b"4"}
    assert {orjson.loads(record.value)["name"] for record in raw} == {"a", "b", "c", "d"}


@pytest.mark.parametrize("name", ["sqlite_source", "sqlite_destination"])
def test_the_page_links_the_examples_and_shows_a_method_of_each_as_it_is(name: str) -> None:
    root = Path(__file__).parents[3]
    example = (root / f"examples/connectors/sqlite/{name}.py").read_text("utf-8")
    page = (root / "docs/connectors.md").read_text("utf-8")
    excerpt = page.partition(f"<!-- generated: {name.replace('_', '-')} -->\n\n```python\n")[2].partition(
        "```"
    )[0]
    assert len(excerpt.splitlines()) >= 10
    assert textwrap.indent(excerpt, "    ") in example
    assert f"](../examples/connectors/sqlite/{name}.py)" in page
    assert len(example.splitlines()) < 100
