"""Types that the database cannot tell cost the changes with such columns only. test_equivalence.py has real domains."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.connectors.debezium.source.test_changes import ROW, SCHEMA, SOURCE, envelope, record

from hifi.pipe.sources.kind import SourceContext
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.change_events import ChangeEvents
from hifi_debezium.source.columns import SOURCE_TYPE
from hifi_infra.ports import free_port


def change_with_domain(offset: int = 7) -> Any:
    schema = copy.deepcopy(SCHEMA)
    for side in schema["fields"]:
        side["fields"].append({"type": "bytes", "field": "seal", "parameters": {SOURCE_TYPE: "SEAL"}})
    return record(envelope("c", None, {**ROW, "seal": "AP8="}), offset=offset, schema=schema)


def changes_of(password_file: Path) -> ChangeEvents:
    database = {
        "host": "127.0.0.1",
        "port": free_port(),
        "name": "shop",
        "user": "hifi",
        "password_file": str(password_file),
    }
    source = DebeziumSource.model_validate(SOURCE | {"database": database})
    changes = ChangeEvents(source, SourceContext("s", "p", 10_000))
    changes.event_reader("cluster").columns = {}
    return changes


def assert_refused(changes: ChangeEvents) -> None:
    reader = changes._reader
    assert reader is not None
    refusal = parse_refusal(dict(reader(change_with_domain()).headers)[REFUSED])
    assert refusal.reason == "unreadable-column"
    assert refusal.detail.startswith("the column seal has the type SEAL, of which neither")
    assert REFUSED not in dict(reader(record(envelope("c", None, ROW))).headers), "other tables go on"
    assert "values of public.flights.seal (SEAL) are refused: the types" in changes._unknown_types(reader)
    reader.learn({"SEAL": "BYTEA"})
    assert b'"seal":"AP8="' in (reader(change_with_domain()).data or b"")
    assert changes._unknown_types(reader) == ""


async def test_a_database_that_does_not_answer_is_asked_three_times(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    changes = changes_of(tmp_path / "password")
    for _ in range(2):
        with pytest.raises(Retryable, match="cannot be looked up"):
            await changes.prepare([change_with_domain()])
    await changes.prepare([change_with_domain()])
    assert_refused(changes)


async def test_without_access_to_the_database_types_are_unknown_at_once(tmp_path: Path) -> None:
    changes = changes_of(tmp_path / "none")
    no_changes = [
        b"no change",
        b'{"schema":{"fields":[{"field":"after"}]},"payload":1}',
        b'{"schema":[],"payload":1}',
    ]
    await changes.prepare([record(envelope("c", None, ROW)), record(None), *map(record, no_changes)])
    await changes.prepare([change_with_domain(8)])
    assert_refused(changes)
