"""Records of Debezium 3.3 become events with the row at the top level. The records were made by a real connector."""

import re
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRecord
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi_debezium.connector_settings import SETTINGS
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import SNAPSHOT_TABLES, ChangeReader, Sweep
from hifi_debezium.source.columns import placeholder
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.key_records import LeftKey, is_mark, left_key, mark_name

SOURCE = {
    "kind": "debezium",
    "connect": "http://127.0.0.1:8083",
    "bootstrap": "127.0.0.1:9092",
    "topic": "changes.flights",
    "database": {"host": "db.example", "name": "shop", "user": "hifi", "password_file": "/etc/hifi/shop"},
    "tables": ["public.flights"],
}
ROW = {
    "id": "flight-161684", "carrier": "US", "flight": 2120, "tailnum": "N953UW", "origin": "LGA", "dest": "BOS",
    "distance": 184, "delay": 63,
}  # fmt: skip
EMPTY = dict.fromkeys(ROW)
TYPES = {"flight": "int32", "distance": "int32", "delay": "int32"}
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "optional": True,
            "field": side,
            "fields": [
                {"type": TYPES.get(name, "string"), "optional": True, "field": name}
                for name in [*ROW, "payload"]
            ],
        }
        for side in ("before", "after")
    ],
}
UNCHANGED = placeholder("changes.flights")
COMMITTED_MS = 1795494468562


def envelope(operation: str, before: Any, after: Any, snapshot: str = "false") -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": {
            "version": "3.3.0.Final", "connector": "postgresql", "name": "changes.flights", "ts_ms": COMMITTED_MS,
            "snapshot": snapshot, "db": "postgres", "sequence": '[null,"22631608"]', "schema": "public",
            "table": "flights", "txId": 728, "lsn": 22631608, "xmin": None,
        },
        "transaction": None,
        "op": operation,
        "ts_ms": COMMITTED_MS + 49,
    }  # fmt: skip


def with_schema(value: Any, schema: Any) -> bytes:
    """A record's value as the JSON converter of Kafka Connect writes it."""
    for side in ("before", "after"):
        if value.get(side):
            value = {**value, side: {"payload": None} | value[side]}
    return orjson.dumps({"schema": schema, "payload": value})


def record(value: Any, key: Any = None, offset: int = 7, headers: Any = (), schema: Any = None) -> Any:
    return SimpleNamespace(
        partition=0,
        offset=offset,
        timestamp=COMMITTED_MS + 70,
        key=orjson.dumps({"id": ROW["id"]} if key is None else key),
        value=value if value is None or isinstance(value, bytes) else with_schema(value, schema or SCHEMA),
        headers=headers,
    )


def read(change_record: Any) -> Any:
    return ChangeReader(DebeziumSource.model_validate(SOURCE), "cluster", 1024)(change_record)


def refusal(event: Any) -> str:
    return parse_refusal(dict(event.headers)[REFUSED]).reason


@pytest.mark.parametrize(
    ("operation", "before", "after", "name"),
    [("c", None, ROW, "insert"), ("u", None, ROW, "update"), ("r", None, ROW, "snapshot")],
)
def test_the_row_after_a_change_is_the_data(operation: str, before: Any, after: Any, name: str) -> None:
    event = read(record(envelope(operation, before, after)))
    data = orjson.loads(event.data)
    assert data.pop("change") == {
        "op": name,
        "table": "public.flights",
        "key": {"id": ROW["id"]},
        "committed": "2026-11-24T04:27:48.632Z" if name == "snapshot" else "2026-11-24T04:27:48.562Z",
    }
    assert data == ROW | {"payload": None}
    assert event.key == b'{"id":"flight-161684"}'
    headers = dict(event.headers)
    assert headers["ce_id"] == b"cluster/changes.flights/0/7"
    assert headers["ce_source"] == b"postgresql://db.example:5432/shop"
    assert headers["ce_subject"] == b"public.flights"
    assert event.backfill is (name == "snapshot")


def test_a_deleted_row_has_its_key_and_the_commit_is_the_time_of_the_event() -> None:
    event = read(record(envelope("d", {**EMPTY, "id": ROW["id"]}, None)))
    data = orjson.loads(event.data)
    assert data.pop("change")["op"] == "delete"
    assert data == {"id": ROW["id"]}
    assert event.time_us == COMMITTED_MS * 1000


def test_a_full_replica_identity_gives_the_row_before_an_update() -> None:
    earlier_row = {**ROW, "delay": 3}
    assert orjson.loads(read(record(envelope("u", earlier_row, ROW))).data)["change"][
        "before"
    ] == earlier_row | {"payload": None}


def test_a_long_key_before_an_update_is_no_row() -> None:
    """PostgreSQL writes it where it is stored apart from its row, though the replica identity is not FULL."""
    array = {"field": "delay", "type": "array", "items": {"type": "boolean"}, "optional": True}
    fields = [{"field": "id", "type": "string"}, array]
    schema = {**SCHEMA, "fields": [{**side, "fields": fields} for side in SCHEMA["fields"]]}
    for identifier, is_key_alone in (("x" * 2000, True), ("x", False)):
        key = {"id": identifier}
        update = envelope("u", key | {"delay": None}, key | {"delay": [True]})
        change_reader = ChangeReader(DebeziumSource.model_validate(SOURCE), "cluster", 10_000)
        data = orjson.loads(change_reader(record(update, key=key, schema=schema)).data or b"")
        assert data["delay"] == [True]
        assert ("before" in data["change"]) is not is_key_alone
        null = record(envelope("u", key | {"delay": None}, key | {"delay": None}), key=key, schema=schema)
        assert (REFUSED in dict(change_reader(null).headers)) is is_key_alone


def reader(**overrides: Any) -> ChangeReader:
    return ChangeReader(DebeziumSource.model_validate(SOURCE | overrides), "cluster", 1024)


def test_deletes_of_the_rows_known_so_far_take_the_place_of_a_truncate() -> None:
    truncate = record(envelope("t", None, None), offset=9)
    truncate.key = None
    read_changes = reader()
    event = read_changes(truncate)
    assert (event.data, event.skipped, event.followed) == (None, True, True)
    assert event.sweep == Sweep({"public.flights": 9}, "truncate", COMMITTED_MS)
    left_key = LeftKey("public.flights", b'{"id":7}', {"id": 7}, 5)
    deletion = read_changes.deleted(truncate, event.sweep, left_key)
    assert orjson.loads(deletion.data or b"") == {
        "id": 7,
        "change": {
            "op": "delete", "table": "public.flights", "key": {"id": 7}, "committed": "2026-11-24T04:27:48.562Z",
            "swept": "truncate",
        },
    }  # fmt: skip
    assert (deletion.key, deletion.position) == (b'{"id":7}', 5)
    assert dict(deletion.headers)["ce_id"] == b"cluster/changes.flights/0/9/5"
    ignored = reader(truncate="ignore")(truncate)
    assert (ignored.skipped, ignored.followed, ignored.sweep) == (True, False, None)


def keys(event: Any) -> list[tuple[bytes, LeftKey | None]]:
    """Names of the keys that it tells of, and what they are if there is a row; without marks."""
    return [
        (name, None if value is None else left_key(name, value))
        for name, value in event.key_records
        if not is_mark(name)
    ]


def mark_names(event: Any) -> list[str]:
    return [mark_name(name) for name, _ in event.key_records if is_mark(name)]


@pytest.mark.parametrize(
    ("operation", "is_present"), [("r", True), ("c", True), ("d", False), ("u", True), ("t", None)]
)
def test_changes_tell_which_keys_there_are(operation: str, is_present: bool | None) -> None:
    change = record(
        envelope(operation, ROW if operation == "d" else None, ROW if operation in "rcu" else None)
    )
    if operation == "t":
        change.key = None
    name = b"public.flights\0" + orjson.dumps({"id": ROW["id"]})
    left_key = LeftKey("public.flights", orjson.dumps({"id": ROW["id"]}), {"id": ROW["id"]}, 7)
    assert keys(reader()(change)) == (
        [] if is_present is None else [(name, left_key if is_present else None)]
    )


@pytest.mark.parametrize(
    ("column", "written", "value"),
    [
        ({"type": "string"}, b'"\xc3\xbc\\" 1.10"', 'ü" 1.10'),
        ({"type": "int64"}, b"7", 7),
        ({"type": "double"}, b"1.10", Decimal("1.10")),
        ({"type": "int32", "name": "io.debezium.time.Date"}, b"3", "1970-01-04"),
        ({"type": "string", "parameters": {"__debezium.source.column.type": "NUMERIC"}}, b'"1.10"', "1.10"),
    ],
)
def test_a_kept_key_has_the_value_of_its_column(column: Any, written: bytes, value: Any) -> None:
    field = column | {"field": "id", "optional": True}
    schema = {**SCHEMA, "fields": [{**side, "fields": [field]} for side in SCHEMA["fields"]]}
    change = record(envelope("c", None, {"id": orjson.Fragment(written)}), schema=schema)
    change.value = change.value.replace(b'"payload":null,', b"")
    change.key = b'{"id":%b}' % written
    assert keys(reader()(change)) == [
        (b"public.flights\0" + change.key, LeftKey("public.flights", change.key, {"id": value}, 7))
    ]


def test_a_row_that_is_refused_is_there_all_the_same() -> None:
    change = record(envelope("c", None, ROW | {"carrier": "x" * 2000}))
    event = reader()(change)
    assert refusal(event) == "too-large"
    assert [left_key is not None for _, left_key in keys(event)] == [True]


def notice(kind: str, **additional_data: str) -> Any:
    value = {
        "id": "x",
        "type": kind,
        "aggregate_type": "Initial Snapshot",
        "additional_data": additional_data,
        "timestamp": 5,
    }
    return record(value, offset=3)


def test_begin_tables_and_end_of_a_snapshot_are_kept_and_are_no_events() -> None:
    scanned = {"scanned_collection": "public.flights", "total_rows_scanned": "0"}
    events = [
        reader()(notification)
        for notification in (
            notice("STARTED"),
            notice("IN_PROGRESS"),
            notice("TABLE_SCAN_COMPLETED", status="SUCCEEDED", **scanned),
            notice("TABLE_SCAN_COMPLETED", status="SQL_EXCEPTION", **scanned),
            notice("COMPLETED"),
        )
    ]
    assert all(event.skipped and REFUSED not in dict(event.headers) for event in events)
    assert [mark_names(event) for event in events] == [
        ["snapshot"], [], ["snapshot of public.flights"], [], ["end of the snapshot"],
    ]  # fmt: skip
    [(begun_name, begun_value)] = events[0].key_records
    assert left_key(begun_name, begun_value or b"").values == {"tables": ["public.flights"]}
    assert [event.sweep for event in events] == [None] * 4 + [Sweep({}, "snapshot", 5)]
    [(_, left_out)] = reader(settings={SNAPSHOT_TABLES: "public.x"})(notice("STARTED")).key_records
    assert (left_out or b"").endswith(b'{"tables":[]}]'), "they are read when the setting is removed"
    no_rows = reader(settings={"snapshot.mode": "no_data"})
    assert not no_rows(notice("COMPLETED")).followed


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no-data"),
        (b"{", "not-a-change"),
        ({"status": "BEGIN"}, "not-a-change"),
        (envelope("m", None, ROW), "not-a-change"),
        (b"x" * 1025, "too-large"),
    ],
)
def test_what_is_no_change_becomes_a_dead_letter_with_the_reason(value: Any, reason: str) -> None:
    event = read(record(value))
    assert refusal(event) == reason
    assert event.data is None


def test_a_column_with_the_name_of_the_member_beside_the_columns_is_told() -> None:
    schema = {"fields": [{"field": "after", "fields": [{"field": "change", "type": "int32"}]}]}
    assert refusal(read(record(envelope("c", None, {"change": 1}), schema=schema))) == "reserved-column"


def test_a_deleted_row_has_all_its_columns_where_the_replica_identity_is_full() -> None:
    data = orjson.loads(read(record(envelope("d", ROW, None))).data)
    data.pop("change")
    assert data == ROW | {"payload": None}


@pytest.mark.parametrize(("operation", "headers"), [("u", ()), ("c", [("__debezium.oldkey", b"{}")])])
def test_long_values_that_did_not_change_are_left_out_and_named(operation: str, headers: Any) -> None:
    change_record = record(
        envelope(operation, None, {**ROW, "carrier": UNCHANGED, "payload": UNCHANGED}), headers=headers
    )
    data = orjson.loads(read(change_record).data)
    assert data.pop("change")["unchanged"] == ["carrier", "payload"]
    assert data == {name: value for name, value in ROW.items() if name != "carrier"}


def test_the_schema_of_a_record_is_read_once_and_a_new_one_when_the_table_changes() -> None:
    reader = ChangeReader(DebeziumSource.model_validate(SOURCE), "cluster", 1024)
    assert all(
        orjson.loads(reader(record(envelope("c", None, ROW), offset=offset)).data or b"")["flight"] == 2120
        for offset in (1, 2)
    )
    day = {"field": "flight", "type": "int32", "name": "io.debezium.time.Date"}
    schema = {"fields": [{"field": "after", "fields": [day, {"field": "id", "type": "string"}]}]}
    changed_event = reader(record(envelope("c", None, {"flight": 0, "id": "x"}), schema=schema))
    assert orjson.loads(changed_event.data or b"")["flight"] == "1970-01-01"
    assert orjson.loads(reader(record(envelope("c", None, ROW))).data or b"")["flight"] == 2120


def test_the_connector_names_the_password_and_does_not_hold_it() -> None:
    config = Connector("hifi", "My-pipe", DebeziumSource.model_validate(SOURCE)).config()
    assert config["database.password"] == "${dir:/etc/hifi:shop}"
    assert config["exactly.once.support"] == "required"
    assert config["slot.name"] == config["publication.name"]
    assert config["slot.name"].startswith("hifi_hifi_my_pipe_")
    assert config["table.include.list"] == r"public\.flights"


def test_settings_are_added_and_none_of_those_that_hifi_sets_is_allowed() -> None:
    source = DebeziumSource.model_validate(SOURCE | {"settings": {"snapshot.mode": "no_data"}})
    assert Connector("hifi", "p", source).config()["snapshot.mode"] == "no_data"
    defaults = {
        "snapshot.mode",
        "poll.interval.ms",
        "heartbeat.interval.ms",
        "slot.max.retries",
        "slot.retry.delay.ms",
        "errors.max.retries",
    }
    fixed = Connector("hifi", "p", DebeziumSource.model_validate(SOURCE)).config().keys() - defaults
    assert not fixed & SETTINGS.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot.name", "other"),
        ("database.sslfactory", "org.example.Planted"),
        ("database.initial.statements", "select 1"),
        ("converters", "planted"),
        ("planted.type", "org.example.Planted"),
        ("predicates", "p"),
        ("snapshot.mode.custom.name", "org.example.Planted"),
        ("config.providers", "file"),
        ("producer.override.bootstrap.servers", "evil:9092"),
        ("signal.file", "/etc/passwd"),
        ("snapshot.mode", "custom"),
        ("snapshot.mode", "${dir:/run/kafka:password}"),
        ("unavailable.value.placeholder", "${dir:/run/kafka:password}"),
        ("column.include.list", "a\nconverters=planted"),
        ("poll.interval.ms", "1;2"),
    ],
)
def test_a_setting_that_is_not_listed_or_has_another_form_is_refused(name: str, value: str) -> None:
    with pytest.raises(
        ValidationError, match=rf"settings\n.*({re.escape(name)}|which nothing may replace|control character)"
    ):
        DebeziumSource.model_validate(SOURCE | {"settings": {name: value}})


@pytest.mark.parametrize(
    "setting", [{"config.providers": "dir"}, {"snapshot.mode": "${dir:/run/kafka:password}"}]
)
def test_a_service_refuses_a_setting_also_when_the_record_of_the_pipe_has_it(setting: dict[str, str]) -> None:
    """A writer of the topic `pipes` cannot pass by the check of `hifi apply`."""
    source = SOURCE
    destination = {"name": "d", "url": "https://example.com/"}
    pipe = {"pipe": "p", "source": source, "destinations": [destination]}
    record: dict[str, Any] = {
        "revision": 1,
        "pipe": Pipe.model_validate(pipe).model_dump(mode="json", by_alias=True),
    }
    assert PipeRecord.model_validate(record).pipe.source.kind == "debezium"
    record["pipe"]["source"]["settings"] = setting
    with pytest.raises(ValidationError, match="settings"):
        PipeRecord.model_validate(record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "db?socketFactory=org.example.Planted"),
        ("host", "${dir:/run/kafka:password}"),
        ("host", "/var/run/postgresql"),
        ("host", "good,evil"),
        ("name", "shop?socketFactory=org.example.Planted&socketFactoryArg=x"),
        ("name", "${env:PATH}"),
        ("user", "${dir:/run/kafka:password}"),
        ("user", "hifi\nx"),
        ("password_file", "/run/kafka/x}${env:PATH"),
        ("password_file", "/run/secrets/../kafka/password"),
        ("password_file", "/run/secrets:a/b"),
    ],
)
def test_the_database_of_a_source_names_nothing_that_connect_replaces_or_imports(
    field: str, value: str
) -> None:
    database = SOURCE["database"] | {field: value}  # type: ignore[operator]
    with pytest.raises(ValidationError, match=field):
        DebeziumSource.model_validate(SOURCE | {"database": database})


def columns_schema(*names: str) -> Any:
    fields = [{"type": TYPES.get(name, "string"), "optional": True, "field": name} for name in names]
    return {**SCHEMA, "fields": [{**side, "fields": fields} for side in SCHEMA["fields"]]}


def test_a_change_names_the_columns_that_its_table_has_lost_also_after_a_restart_and_when_it_is_read_again() -> (
    None
):
    names = [
        [*ROW, "payload"],
        [*ROW, "payload", "gate"],
        [name for name in (*ROW, "payload") if name != "dest"],
    ]
    records = [
        record(envelope("c", None, dict.fromkeys(columns)), offset=offset, schema=columns_schema(*columns))
        for offset, columns in enumerate(
            (names[0], names[0], names[1], names[2], names[2], names[1], names[0])
        )
    ]
    expected = [None, None, None, ["dest", "gate"], ["dest", "gate"], None, ["gate"]]

    def gone_columns(event: Any) -> Any:
        return orjson.loads(event.data)["change"].get("gone")

    first_reader = reader()
    assert [gone_columns(first_reader(change)) for change in records] == expected
    assert [gone_columns(first_reader(change)) for change in records] == expected
    for begin_index in range(len(records)):
        second_reader = reader()
        second_reader.columns = first_reader.columns
        assert [gone_columns(second_reader(change)) for change in records[begin_index:]] == expected[
            begin_index:
        ]
    column_records = [
        pair for event in map(reader(), records) for pair in event.key_records if is_mark(pair[0])
    ]
    assert [mark_name(name) for name, _ in column_records] == ["columns of public.flights"] * 2
    last_name, last_value = column_records[-1]
    assert first_reader.columns is not None
    assert left_key(last_name, last_value or b"").values == first_reader.columns["public.flights"]
