"""PostgreSQL destinations on a real server, beside what the contract suite checks for every kind."""

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from tests.support.egest.egest_stream import (
    EgestStream,
    connector_destination,
    outcomes,
    pipe_to,
    process,
    running_egest,
    texts,
    until,
)
from tests.support.postgres.postgres_server import PostgresServer
from tests.support.postgres.postgres_table import PostgresTable
from tests.support.seeds import seeds

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.model import ConnectorDestination
from hifi.record.headers import DETAIL, OUTCOME, REASON
from hifi.runtime.errors import Misconfigured, Rejected, Retryable
from hifi_postgres.declaration import PostgresSettings


def writer(table: PostgresTable, timeout_s: float = 10.0, **settings: Any) -> DestinationWriter:
    kind, kind_settings = read_settings(
        connector_destination(pipe_to("flights", table.declared(settings=settings)))
    )
    return kind.open(kind_settings, WriterContext("s", "flights", "d", 16, timeout_s))


LOG, OTHER_LOG = "0a" * 16, "0b" * 16


def outbound(key: str, offset: int, number: Any = None, **data: Any) -> OutboundEvent:
    body = orjson.dumps({"key": key, "number": offset if number is None else number, **data})
    return OutboundEvent(body, "application/json", {"id": f"i{offset}"}, key.encode(), LOG, 0, offset, 0)


async def written(postgres_writer: DestinationWriter, *batches: list[OutboundEvent]) -> None:
    try:
        for batch in batches:
            await postgres_writer.write(batch)
    finally:
        await postgres_writer.close()


async def test_append_writes_a_row_for_each_event_and_the_same_event_once(postgres: PostgresTable) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} DROP CONSTRAINT {postgres.name}_pkey")
    postgres.execute(f"CREATE UNIQUE INDEX ON {postgres.name} (hifi_log, hifi_partition, hifi_offset)")
    postgres.execute(f"ALTER TABLE {postgres.name} ADD id text")
    batch = [outbound("k", 1), outbound("k", 2)]
    await written(
        writer(postgres, mode="append", key=[], attributes={"id": "id"}), batch, [*batch, outbound("l", 3)]
    )
    rows = postgres.execute(
        f"SELECT key, number, id, hifi_partition, hifi_offset FROM {postgres.name} ORDER BY 5"
    )
    assert rows == [("k", 1, "i1", 0, 1), ("k", 2, "i2", 0, 2), ("l", 3, "i3", 0, 3)]


@pytest.fixture
def deleting(postgres: PostgresTable) -> dict[str, Any]:
    """Settings with which `{op: d}` deletes."""
    name = f"{postgres.name}_gone"
    postgres.execute(
        f"CREATE TABLE {name} (key text PRIMARY KEY, hifi_log uuid, hifi_partition integer, hifi_offset bigint,"
        " hifi_accepted timestamptz)"
    )
    return {"delete_when": {"op": "d"}, "tombstones": name}


async def test_deletes_and_writes_of_a_key_apply_by_position_however_late_they_come(
    postgres: PostgresTable, deleting: dict[str, Any]
) -> None:
    postgres_writer = writer(postgres, **deleting)
    await postgres_writer.write(
        [outbound("a", 1), outbound("a", 2, op="d"), outbound("b", 3), outbound("c", 4)]
    )
    assert await postgres.rows() == {"b": 3, "c": 4}
    await postgres_writer.write([outbound("a", 1)])  # older than the delete
    assert await postgres.rows() == {"b": 3, "c": 4}
    await postgres_writer.write([outbound("a", 6), outbound("b", 7)])  # inserted again, and changed
    await postgres_writer.write(
        [outbound("a", 5), outbound("a", 2, op="d"), outbound("b", 6, op="d")]
    )  # older than both
    assert await postgres.rows() == {"a": 6, "b": 7, "c": 4}
    await postgres_writer.write(
        [outbound("never", 8, op="d"), outbound("c", 9, op="d"), outbound("never", 7)]
    )
    assert await postgres.rows() == {"a": 6, "b": 7}
    await postgres_writer.close()


@pytest.mark.parametrize("seed", seeds(2, 8))
async def test_while_keys_change_sides_between_two_logs_the_last_change_of_each_stands(
    postgres: PostgresTable, deleting: dict[str, Any], seed: int
) -> None:
    """The changes of a few keys go to one log or the other, as at shifts; each log is delivered at its own pace."""
    rng = random.Random(seed)
    waiting: dict[str, list[OutboundEvent]] = {LOG: [], OTHER_LOG: []}
    last_events: dict[str, OutboundEvent] = {}
    offsets = dict.fromkeys(waiting, 0)
    log = LOG
    for number in range(300):
        if rng.random() < 0.05:
            log = OTHER_LOG if log == LOG else LOG
        key = rng.choice("abcd")
        change = outbound(key, offsets[log], number, op="d" if rng.random() < 0.2 else "u")
        last_events[key] = change._replace(log=log, accepted_us=1_800_000_000_000_000 + number)
        waiting[log].append(last_events[key])
        offsets[log] += 1
    writers = {log: writer(postgres, **deleting) for log in waiting}
    written_counts, superseded = dict.fromkeys(waiting, 0), set()

    async def deliver(log: str, changes: list[OutboundEvent]) -> None:
        try:
            await writers[log].write(changes)
        except Rejected as error:  # as egest divides a batch
            if error.reason != "superseded":
                raise
            middle = len(changes) // 2
            if not middle:
                superseded.add((log, changes[0].offset))
                return
            await deliver(log, changes[:middle])
            await deliver(log, changes[middle:])

    while unfinished_logs := [log for log, changes in waiting.items() if written_counts[log] < len(changes)]:
        log = rng.choice(unfinished_logs)
        # Now and then what was written is written again, as after a kill.
        first_number = max(0, written_counts[log] - (rng.randrange(10) if rng.random() < 0.2 else 0))
        changes = waiting[log][first_number : written_counts[log] + rng.randint(1, 20)]
        await deliver(log, changes)
        written_counts[log] = max(written_counts[log], first_number + len(changes))
    for open_writer in writers.values():
        await open_writer.close()
    data = {key: orjson.loads(change.data) for key, change in last_events.items()}
    assert await postgres.rows() == {key: row["number"] for key, row in data.items() if row["op"] == "u"}
    assert superseded
    assert superseded.isdisjoint((change.log, change.offset) for change in last_events.values())


@pytest.mark.parametrize(
    ("key_type", "first", "second"),
    [
        ("numeric", 1.5, "1.50"),
        ("numeric", 100, "1e2"),
        ("bigint", 7, "07"),
        ("uuid", "6F1D2C3B-0000-4000-8000-00000000000A", "{6f1d2c3b-0000-4000-8000-00000000000a}"),
        ("char(3)", "a", "a "),
        ("citext", "Ab", "aB"),
    ],
)
async def test_a_deleted_key_is_one_however_it_is_written(
    postgres: PostgresTable, deleting: dict[str, Any], key_type: str, first: Any, second: Any
) -> None:
    postgres.execute("CREATE EXTENSION IF NOT EXISTS citext")
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER key TYPE {key_type} USING NULL")
    create, delete = (
        OutboundEvent(
            orjson.dumps({"key": key, "number": offset, "op": "cd"[offset - 1]}), "application/json", {}, b"k",
            LOG, 0, offset, 0,
        )
        for offset, key in ((1, first), (2, second))
    )  # fmt: skip
    for batches in ([[create, delete]], [[delete], [create]], [[create], [delete], [create]]):
        await written(writer(postgres, **deleting), *batches)
        assert await postgres.rows() == {}
        assert postgres.execute(f"SELECT count(*) FROM {deleting['tombstones']}") == [(1,)]
        postgres.execute(f"TRUNCATE {deleting['tombstones']}")


async def test_a_tombstone_that_the_release_before_wrote_keeps_its_key_deleted(
    postgres: PostgresTable, deleting: dict[str, Any]
) -> None:
    """That release stored the text of a time as the event has it."""
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER key TYPE timestamptz USING NULL")
    whole_second, other = "2026-07-01T12:00:00.000000Z", "2026-07-01T12:00:01.123456Z"
    postgres_writer = writer(postgres, **deleting)
    await postgres_writer.write([outbound(whole_second, 2, op="d")])
    assert postgres.execute(
        f"UPDATE {deleting['tombstones']} SET key = '[\"{whole_second}\"]', hifi_accepted = now() RETURNING 1"
    ) == [(1,)]
    await postgres_writer.write([outbound(whole_second, 1)])  # older than the delete
    assert await postgres.rows() == {}
    with pytest.raises(Rejected, match="superseded"):  # of another log, accepted earlier
        await postgres_writer.write([outbound(whole_second, 3)._replace(log=OTHER_LOG)])
    assert await postgres.rows() == {}
    await postgres_writer.write([outbound(whole_second, 1), outbound(other, 4)])
    assert postgres.execute(f"SELECT number FROM {postgres.name}") == [(4,)]
    await postgres_writer.write([outbound(whole_second, 5)])  # newer than the delete
    assert postgres.execute(f"SELECT number FROM {postgres.name} ORDER BY number") == [(4,), (5,)]
    await postgres_writer.close()


async def test_mode_delete_deletes_the_row_of_each_event(
    postgres: PostgresTable, deleting: dict[str, Any]
) -> None:
    await written(writer(postgres), [outbound("a", 1), outbound("b", 2)])
    await written(writer(postgres, mode="delete", tombstones=deleting["tombstones"]), [outbound("a", 3)])
    assert await postgres.rows() == {"b": 2}


async def test_rows_that_were_there_before_are_replaced(postgres: PostgresTable) -> None:
    postgres.execute(f"INSERT INTO {postgres.name} (key, number) VALUES ('a', -1)")
    await written(writer(postgres), [outbound("a", 1)])
    assert await postgres.rows() == {"a": 1}


async def test_nested_values_and_times_fit_their_columns(postgres: PostgresTable) -> None:
    postgres.execute(
        f"ALTER TABLE {postgres.name} ADD doc jsonb, ADD at timestamptz, ADD price numeric(10, 2), ADD city text"
    )
    columns = {
        "key": "key",
        "number": "number",
        "doc": "doc",
        "at": "at",
        "price": "price",
        "city": "to.city",
    }
    data = {"doc": {"x": [1, None]}, "at": "2026-11-23T10:00:00Z", "price": 12.5, "to": {"city": "Köln"}}
    await written(writer(postgres, columns=columns), [outbound("a", 1, **data), outbound("b", 2)])
    [row] = postgres.execute(
        f"SELECT doc, at = '2026-11-23 10:00Z', price::text, city FROM {postgres.name} WHERE doc IS NOT NULL"
    )
    assert row == ({"x": [1, None]}, True, "12.50", "Köln")


VALUES: list[tuple[str, list[Any]]] = [
    ("integer", [1, -2, None, 2**31 - 1]),
    ("integer", [1.0, 2e3, 3]),
    ("smallint", [1, 2]),
    ("bigint", [2**63 - 1, -(2**63), 0]),
    ("bigint", ["12", " 13 "]),
    ("numeric", [2**63, 1]),
    ("numeric", [1, 1.25]),
    ("numeric(6, 2)", [1, 2.345, 10]),
    ("real", [0.1, 1e30, 7]),
    ("double precision", [0.1, 2**53, 1e-300]),
    ("text", ["plain", 'quo"te', "back\\slash", "{a,b}", "NULL", "", "  ", "Köln\n", None]),
    ("text", [10**15, 1.5, 1e22]),
    ("text", [True, False]),
    ("text", [{"a": 1}, [1, "x"]]),
    ("varchar(5)", ["five5", "abc"]),
    ("char(3)", ["a", "abc"]),
    ("boolean", [True, None, False]),
    ("boolean", ["yes", "off"]),
    ("jsonb", [{"a": [1, None, 'q"']}, [], None]),
    ("json", [{"b": 1, "a": "ü"}, {}]),
    ("jsonb", ["[1]", '"x"']),
    ("timestamptz", ["2026-11-23T10:00:00Z", "infinity"]),
    ("date", ["2026-11-23", None]),
    ("uuid", ["6f1d2c3b-0000-4000-8000-000000000001"] * 2),
    ("bytea", ["\\x6869", "text"]),
    ("text[]", ["{a,b}", "{}"]),
    ("inet", ["10.0.0.1", "::1"]),
]


@pytest.mark.parametrize(("column_type", "values"), VALUES)
async def test_a_batch_writes_the_same_as_its_events_alone(
    postgres: PostgresTable, column_type: str, values: list[Any]
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ADD v {column_type}")
    columns = {"key": "key", "number": "number", "v": "v"}
    events = [outbound(f"k{offset}", offset, v=value) for offset, value in enumerate(values)]
    statement = (
        f"SELECT key, number, v::text, hifi_partition, hifi_offset FROM {postgres.name} ORDER BY number"
    )
    await written(writer(postgres, columns=columns), *([event] for event in events))
    single_rows = postgres.execute(statement)
    postgres.execute(f"TRUNCATE {postgres.name}")
    await written(writer(postgres, columns=columns), events)
    assert len(single_rows) == len(values)
    assert postgres.execute(statement) == single_rows


async def test_the_rows_of_a_batch_are_written_with_one_statement(postgres: PostgresTable) -> None:
    postgres.execute(f"CREATE TABLE {postgres.name}_statements (at timestamptz)")
    postgres.execute(
        f"CREATE FUNCTION {postgres.name}() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN INSERT INTO {postgres.name}_statements VALUES (now()); RETURN NULL; END $$"
    )
    postgres.execute(
        f"CREATE TRIGGER each AFTER INSERT ON {postgres.name} FOR EACH STATEMENT"
        f" EXECUTE FUNCTION {postgres.name}()"
    )
    statement = f"SELECT count(*) FROM {postgres.name}_statements"
    postgres_writer = writer(postgres)
    await postgres_writer.write([outbound(f"k{number}", number) for number in range(500)])
    assert postgres.execute(statement) == [(1,)]
    # A key that comes again begins the next one.
    await written(postgres_writer, [outbound(f"k{number % 250}", number) for number in range(500, 1000)])
    assert postgres.execute(statement) == [(3,)]
    expected = {f"k{number}": number + (750 if number < 250 else 0) for number in range(500)}
    assert await postgres.rows() == expected


async def test_keys_that_only_postgresql_finds_equal_are_written_in_their_order(
    postgres: PostgresTable,
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER key TYPE char(3)")
    await written(writer(postgres), [outbound("a", 1), outbound("a ", 2), outbound("b", 3)])
    assert await postgres.rows() == {"a  ": 2, "b  ": 3}


async def test_a_column_whose_type_changes_is_written_as_its_new_type(postgres: PostgresTable) -> None:
    postgres_writer = writer(postgres)
    await postgres_writer.write([outbound("a", 1, "1"), outbound("b", 2, "2")])
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER number TYPE text")
    await written(postgres_writer, [outbound("a", 3, "three"), outbound("b", 4, "four")])
    rows: dict[str, Any] = await postgres.rows()
    assert rows == {"a": "three", "b": "four"}


@pytest.mark.parametrize(
    ("bad_event", "reason"),
    [
        (outbound("k", 2, "no number"), "value"),
        (outbound("k", 2, 2**40), "value"),
        (outbound("k\0", 2), "value"),
        (outbound("k", 2)._replace(data=b'{"key": "k"}'), "constraint"),
        (outbound("k", 2)._replace(data=b'{"number": 1}'), "no-key"),
        (outbound("k", 2)._replace(data=b"[]"), "not-an-object"),
        (outbound("k", -1), "no-position"),
    ],
)
async def test_a_row_that_does_not_fit_is_rejected_without_its_values_in_the_text(
    postgres: PostgresTable, bad_event: OutboundEvent, reason: str
) -> None:
    postgres_writer = writer(postgres)
    with pytest.raises(Rejected) as caught:
        await postgres_writer.write([outbound("before", 1), bad_event])
    assert caught.value.reason == reason
    assert "no number" not in caught.value.detail
    assert await postgres.rows() == {}
    await written(postgres_writer, [outbound("after", 3)])
    assert await postgres.rows() == {"after": 3}


@pytest.mark.parametrize(
    ("change", "repair", "message"),
    [
        (
            "ALTER TABLE {} RENAME number TO amount",
            "ALTER TABLE {} RENAME amount TO number",
            'column "?number',
        ),
        (
            "ALTER TABLE {} RENAME TO {}_old",
            "ALTER TABLE {}_old RENAME TO {}",
            'no table {}|"{}" does not exist',
        ),
        (
            "ALTER TABLE {} DROP CONSTRAINT {}_pkey",
            "ALTER TABLE {} ADD PRIMARY KEY (key)",
            "no unique or exclusion",
        ),
    ],
)
@pytest.mark.parametrize("is_used", [False, True])
async def test_while_a_table_is_changed_deliveries_wait_and_the_reason_names_it(
    postgres: PostgresTable, change: str, repair: str, message: str, is_used: bool
) -> None:
    postgres_writer = writer(postgres)
    if is_used:
        await postgres_writer.write([outbound("a", 1), outbound("b", 1)])
    postgres.execute(change.replace("{}", postgres.name))
    for batch in ([outbound("a", 2)], [outbound("a", 2), outbound("b", 2)]):
        with pytest.raises(Retryable, match=message.replace("{}", postgres.name)) as caught:
            await postgres_writer.write(batch)
        assert postgres.name in str(caught.value)
    postgres.execute(repair.replace("{}", postgres.name))
    await written(postgres_writer, [outbound("a", 2), outbound("b", 2)])
    assert await postgres.rows() == {"a": 2, "b": 2}


async def test_a_table_that_is_dropped_and_made_again_gets_what_comes_after_it(
    postgres: PostgresTable,
) -> None:
    postgres_writer = writer(postgres)
    await postgres_writer.write([outbound("a", 1)])
    postgres.execute(f"DROP TABLE {postgres.name}")
    with pytest.raises(Retryable, match=postgres.name):
        await postgres_writer.write([outbound("a", 2), outbound("b", 2)])
    postgres.execute(
        f"CREATE TABLE {postgres.name} (hifi_accepted timestamptz, hifi_offset bigint, hifi_log uuid,"
        " hifi_partition integer, number bigint, key varchar(9) PRIMARY KEY)"
    )
    await written(postgres_writer, [outbound("a", 2), outbound("b", 2)], [outbound("a", 3)])
    assert await postgres.rows() == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("narrowed", "bad_event"),
    [
        ("ALTER TABLE {} ALTER number TYPE smallint", outbound("b", 2, 70_000)),
        ("ALTER TABLE {} ALTER key TYPE varchar(1)", outbound("bb", 2)),
        ("ALTER TABLE {} ADD CHECK (number < 100)", outbound("b", 2, 100)),
    ],
)
async def test_a_column_that_becomes_narrower_refuses_what_does_not_fit_and_cuts_nothing(
    postgres: PostgresTable, narrowed: str, bad_event: OutboundEvent
) -> None:
    postgres_writer = writer(postgres)
    await postgres_writer.write([outbound("a", 1), outbound("b", 1)])
    postgres.execute(narrowed.replace("{}", postgres.name))
    with pytest.raises(Rejected) as caught:
        await written_at_last(postgres_writer, [bad_event])
    assert caught.value.reason in {"value", "constraint"}
    await written(postgres_writer, [outbound("a", 3), outbound("b", 3)])
    assert await postgres.rows() == {"a": 3, "b": 3}


async def written_at_last(postgres_writer: DestinationWriter, batch: list[OutboundEvent]) -> None:
    """Write a batch, again while the table is read anew, as egest does."""
    for _ in range(5):
        try:
            await postgres_writer.write(batch)
        except Retryable:
            continue
        return


async def test_two_pipes_that_write_the_same_rows_do_not_block_each_other(postgres: PostgresTable) -> None:
    round_count = 40
    keys = [f"k{number}" for number in range(25)]

    async def write(pipe: str, first: int, order: list[str]) -> None:
        (declared,) = pipe_to(pipe, postgres.declared()).destinations
        assert isinstance(declared, ConnectorDestination)
        kind, kind_settings = read_settings(declared)
        pipe_writer = kind.open(kind_settings, WriterContext("s", pipe, "d", 16, 10.0))
        for offset in range(first, 2 * round_count + 2, 2):
            await pipe_writer.write([outbound(key, offset) for key in order])
        await pipe_writer.close()

    async with asyncio.timeout(60):
        await asyncio.gather(write("one", 0, keys), write("two", 1, keys[::-1]))
    assert await postgres.rows() == dict.fromkeys(keys, 2 * round_count + 1)


async def test_a_table_that_is_swapped_makes_no_dead_letter(
    postgres: PostgresTable, stream: EgestStream
) -> None:
    name = postgres.name
    async with running_egest(stream, pipe_to("flights", postgres.declared(breaker={"failures": 100}))):
        await stream.enriched(
            *(stream.record(key=f"k{n}", data={"key": f"k{n}", "number": n}) for n in range(20))
        )
        await until(lambda: postgres.execute(f"SELECT count(*) FROM {name}") == [(20,)])
        postgres.execute(f"CREATE TABLE {name}_new (LIKE {name} INCLUDING ALL)")
        postgres.execute(f"ALTER TABLE {name} RENAME TO {name}_old")
        await stream.enriched(
            *(stream.record(key=f"k{n}", data={"key": f"k{n}", "number": n}) for n in range(20))
        )
        (waiting, *_) = await stream.at_least(stream.topics.retry_in(stream.topics.tiers[0]), 1)
        assert texts(waiting)[REASON] in (f"missing table {name}", f"missing part of the table {name}")
        postgres.execute(f"ALTER TABLE {name}_new RENAME TO {name}")
        letters = await stream.read(stream.topics.dead_letter)
    assert letters == []


async def test_a_value_of_another_type_is_a_dead_letter_that_names_column_and_types(
    postgres: PostgresTable, stream: EgestStream
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} ALTER number TYPE boolean USING true")
    async with running_egest(stream, pipe_to("flights", postgres.declared())):
        await stream.enriched(stream.record(key="a", data={"key": "a", "number": 1}))
        (letter,) = await stream.at_least(stream.topics.dead_letter, 1)
    assert texts(letter)[REASON] == "value"
    assert texts(letter)[DETAIL] == "the column number has the type boolean, and the value is a number"


async def test_a_locked_table_is_a_retry_and_postgresql_itself_ends_the_transaction(
    postgres: PostgresTable,
) -> None:
    postgres_writer = writer(postgres, timeout_s=0.5)
    async with postgres.locked():
        with pytest.raises(Retryable, match="LockNotAvailable"):
            await postgres_writer.write([outbound("a", 1)])
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert postgres.execute(waiting) == [(0,)]
    await written(postgres_writer, [outbound("a", 1)])
    assert await postgres.rows() == {"a": 1}


async def test_a_server_that_does_not_listen_is_a_retry(
    postgres: PostgresTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(postgres.VARIABLE, "postgresql://postgres:secret@127.0.0.1:1/postgres")
    with pytest.raises(Retryable) as caught:
        await written(writer(postgres), [outbound("a", 1)])
    assert "secret" not in str(caught.value)


async def test_connections_that_the_server_closed_are_replaced(postgres: PostgresTable) -> None:
    postgres_writer = writer(postgres)
    await postgres_writer.write([outbound("a", 1)])
    statement = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hifi flights/d'"
    )
    assert postgres.execute(statement) == [(True,)]
    with pytest.raises(Retryable):
        await postgres_writer.write([outbound("a", 2)])
    await written(postgres_writer, [outbound("a", 2)])
    assert await postgres.rows() == {"a": 2}


def test_a_url_that_is_none_is_refused_and_not_quoted(
    postgres: PostgresTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(postgres.VARIABLE, "my secret")
    with pytest.raises(Misconfigured, match="connection URL") as caught:
        writer(postgres)
    assert "my secret" not in str(caught.value)


async def test_connections_that_idle_when_the_server_ends_them_fail_one_write_only(
    postgres: PostgresTable,
) -> None:
    sessions = "FROM pg_stat_activity WHERE application_name = 'hifi flights/d'"
    postgres_writer = writer(postgres)
    try:
        await asyncio.gather(
            *(postgres_writer.write([outbound(f"k{number}", number)]) for number in range(3))
        )
        assert postgres.execute(f"SELECT count(*) {sessions}") == [(3,)]
        postgres.execute(f"SELECT pg_terminate_backend(pid) {sessions}")
        await until(lambda: postgres.execute(f"SELECT count(*) {sessions}") == [(0,)])
        with pytest.raises(Retryable):
            await postgres_writer.write([outbound("k3", 3)])
        await postgres_writer.write([outbound("k3", 3)])
    finally:
        await postgres_writer.close()
    assert await postgres.rows() == {f"k{number}": number for number in range(4)}


async def test_a_new_password_is_used_without_a_restart(
    postgres: PostgresTable,
    postgres_server: PostgresServer,
    stream: EgestStream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(postgres.VARIABLE, postgres_server.url_with("wrong"))
    declared_pipe = pipe_to("flights", postgres.declared(retry={"local_attempts": 1}))
    async with running_egest(stream, declared_pipe, egest_secrets_refresh_s=0.2):
        await stream.enriched(stream.record(key="a", data={"key": "a", "number": 1}))
        [first_receipt] = await stream.receipts(1)
        monkeypatch.setenv(postgres.VARIABLE, postgres_server.url)
        last_receipts: list[dict[str, str]] = [first_receipt]
        while last_receipts[-1][OUTCOME] != "delivered":
            await stream.enriched(stream.record(key="b", data={"key": "b", "number": 2}))
            last_receipts = await stream.receipts(len(last_receipts) + 1)
    assert (first_receipt[OUTCOME], first_receipt[REASON]) == ("retry", "unavailable")
    assert (await postgres.rows())["b"] == 2


async def test_after_a_kill_in_mid_run_each_event_is_appended_once(
    postgres: PostgresTable, stream: EgestStream, tmp_path: Path
) -> None:
    postgres.execute(f"ALTER TABLE {postgres.name} DROP CONSTRAINT {postgres.name}_pkey")
    postgres.execute(f"CREATE UNIQUE INDEX ON {postgres.name} (hifi_log, hifi_partition, hifi_offset)")
    settings = {"mode": "append", "key": []}
    await stream.publish(
        pipe_to("flights", postgres.declared(settings=settings, batch={"size": 20, "wait": "5ms"}))
    )
    records = [stream.record(key=f"k{n % 50}", data={"key": f"k{n % 50}", "number": n}) for n in range(3000)]
    with process(stream, tmp_path / "log", session_timeout_s=6, commit_interval_s=3600) as egest:
        await egest.ready()
        await stream.enriched(*records)
        await until(lambda: postgres.execute(f"SELECT count(*) > 300 FROM {postgres.name}") == [(True,)])
        egest.stop(signal.SIGKILL)
    async with running_egest(stream, session_timeout_s=6):
        receipts = await stream.receipts(3000)
    assert outcomes(receipts).count("delivered") == 3000
    rows = postgres.execute(f"SELECT number FROM {postgres.name}")
    assert sorted(number for (number,) in rows) == list(range(3000))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {}}, "set `columns`"),
        ({"key": []}, "set `key`"),
        ({"mode": "append", "key": ["a"]}, "set `key`"),
        ({"key": ["b"]}, "neither"),
        ({"delete_when": {"op": "d"}}, "set `tombstones`"),
        ({"tombstones": "gone"}, "set `tombstones`"),
        ({"mode": "append", "key": [], "delete_when": {"op": "d"}}, "needs `mode: upsert`"),
        ({"attributes": {"a": "id"}}, "more than once"),
        ({"table": 'x"; DROP TABLE y'}, "String should match"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str) -> None:
    valid_settings = {"url": {"env": "URL"}, "table": "public.orders", "columns": {"a": "a"}, "key": ["a"]}
    PostgresSettings.model_validate(valid_settings)
    with pytest.raises(ValidationError, match=message):
        PostgresSettings.model_validate(valid_settings | settings)
