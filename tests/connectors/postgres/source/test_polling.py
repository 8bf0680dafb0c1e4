"""A row that cannot be read holds no other row up, and nothing is written again because of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import psycopg
import pytest
from tests.support.postgres.polled_table import PolledTable
from tests.support.postgres.postgres_server import PostgresServer

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import SourceContext, SourceTurn
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import Misconfigured
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.polling import SqlPolling


class Turn(SourceTurn):
    """A turn that is over when the source pauses after it has read to the end of the table."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self._entries, self._pauses = entries, 0
        self.events: list[SourceEvent] = []

    @property
    def entries(self) -> Mapping[str, Any]:
        return self._entries

    def over(self) -> bool:
        return self._pauses == 2

    async def pause(self, seconds: float) -> None:  # noqa: ARG002
        self._pauses += 1

    async def keep(self, entries: Mapping[str, Any]) -> None:
        self._entries |= {name: orjson.loads(orjson.dumps(entry)) for name, entry in entries.items()}

    async def write(
        self,
        partition: str,  # noqa: ARG002
        events: Sequence[SourceEvent],
        accepted_us: int,  # noqa: ARG002
        remaining: int | None = None,  # noqa: ARG002
    ) -> None:
        self.events += events

    def warn(self, subject: str, reason: str | None) -> None:
        pass

    def works(self) -> None:
        pass


def source(polled: PolledTable, database: str = "postgres", **overrides: Any) -> SqlSource:
    sql_source = polled.pipe(settle="0s", **overrides).source
    assert isinstance(sql_source, SqlSource)
    return sql_source.model_copy(
        update={"database": sql_source.database.model_copy(update={"name": database})}
    )


async def read(sql_source: SqlSource, entries: dict[str, Any]) -> list[SourceEvent]:
    turn = Turn(entries)
    try:
        await SqlPolling(sql_source, SourceContext("s", "p", 10_000)).read(turn)
    except Misconfigured as error:
        error.add_note(str([event.position for event in turn.events]))
        raise
    return turn.events


async def test_a_row_that_has_no_position_is_told_after_those_before_it_which_are_not_repeated_for_ever(
    table: PolledTable,
) -> None:
    largest = 2**63 - 1
    table.execute("ALTER TABLE {} ADD version bigint")
    table.execute(f"INSERT INTO {{}} (id, version) VALUES (1, 5), (2, {largest}), (3, {largest})")
    sql_source, entries = source(table, column="version"), dict[str, Any]()
    before_it = [2**63 + 5, 2**64 - 1]
    for expected in (before_it, before_it, []):  # once again, as it was not noted that they were written
        with pytest.raises(Misconfigured, match=f"{largest} in `column`") as told:
            await read(sql_source, entries)
        assert told.value.__notes__ == [str(expected)]
    table.execute("UPDATE {} SET version = 6 WHERE id = 3")
    assert await read(sql_source, entries) == []


@pytest.fixture
def latin_table(table: PolledTable, postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database whose encoding has values that UTF-8 lacks, with a table of the same name."""
    database = f"latin_{table.name}"
    table.execute(f"CREATE DATABASE {database} ENCODING WIN1252 TEMPLATE template0 LOCALE 'C'")
    with psycopg.connect(postgres_server.url, dbname=database, autocommit=True) as connection:
        table.execute("CREATE TABLE {} (id int PRIMARY KEY, name text)", connection)
        yield connection
    table.execute(f"DROP DATABASE {database}")


async def test_a_row_whose_value_has_no_character_is_refused_alone(
    table: PolledTable, latin_table: psycopg.Connection[Any]
) -> None:
    table.execute(
        "INSERT INTO {} SELECT n, chr(233) || chr(128 + n) FROM generate_series(0, 3) n", latin_table
    )
    sql_source, entries = source(table, f"latin_{table.name}", column="id", key=[]), dict[str, Any]()
    events = await read(sql_source, entries)
    assert [orjson.loads(event.data)["name"] if event.data else None for event in events] == [
        "é€", None, "é\u201a", "éƒ"
    ]  # fmt: skip
    refusal = parse_refusal(dict(events[1].headers)[REFUSED])
    assert (refusal.reason, "UntranslatableCharacter 22P05" in refusal.detail) == ("unreadable-row", True)
    interrupted = entries["rows"] | {"after": None, "last": -1, "done": 0}
    interrupted["batch"] = [17, [["1"], ["2"]], []]
    repeated = await read(sql_source, {"rows": interrupted})
    assert [event.data is None for event in repeated[:2]] == [True, False], "it is written again as it was"
    with pytest.raises(Misconfigured, match="leave its row or column out"):  # nothing else names the row
        await read(source(table, f"latin_{table.name}", column="id", key=["name"]), {})


async def test_a_query_that_fails_for_one_row_refuses_it_alone_and_one_that_fails_for_all_is_told(
    table: PolledTable,
) -> None:
    table.add(range(4))
    query = f"SELECT id, 1 / (id - 2) AS share FROM {table.name}"
    events = await read(source(table, column="id", key=[], query=query), {})
    assert [event.data is None for event in events] == [False, False, True, False]
    for_all = f"SELECT id, (SELECT max(1 / (o.id - 2)) FROM {table.name} o) AS share FROM {table.name}"
    with pytest.raises(Misconfigured, match=r"DivisionByZero 22012.*leave its row or column out"):
        await read(source(table, column="id", key=[], query=for_all), {})
