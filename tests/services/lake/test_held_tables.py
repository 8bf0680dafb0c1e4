"""Tables of held pipes, as records of a later release show them."""

from types import SimpleNamespace
from typing import Any

from tests.support.held_pipes import unreadable_body, unreadable_record

from hifi.pipe.model import Pipe
from hifi.record.record import Record
from hifi_lake.held_tables import HeldTables

PIPE = Pipe.model_validate(
    {
        "pipe": "p",
        "source": {"keys": [{"env": "KEY"}]},
        "enrich": {"fields": {"id": "int"}},
        "destinations": [
            {"name": "lake", "kind": "iceberg", "settings": {"warehouse": "/srv/lake", "table": "a.b"}},
            {"name": "shop", "url": "https://shop.example/"},
        ],
    }
)


def held_tables(*records: Record) -> HeldTables:
    tables = HeldTables()
    for offset, record in enumerate(records):
        taken: Any = SimpleNamespace(key=record.key, value=record.value, offset=offset)
        tables.take(taken)
    return tables


def test_tables_of_records_that_this_release_cannot_read_are_known_and_no_other_destinations() -> None:
    tables = held_tables(unreadable_record(PIPE), unreadable_body(PIPE, 2))
    assert tables.of(["p"]) == tables.of(["p;2"]) == {("p", "lake")}
    assert tables.of([]) == tables.of(["q"]) == set()


def test_the_newest_record_of_a_key_counts_and_one_without_destinations_stops_nothing() -> None:
    first_record = unreadable_record(PIPE)
    without = (None, b"{", b"[]", b'{"pipe":{"destinations":[1]}}', b'{"pipe":{"destinations":{"a":{}}}}')
    for value in without:
        assert held_tables(first_record, Record(first_record.key, value, [])).of(["p"]) == set()
    assert held_tables(Record(None, b"{", []), first_record).of(["p"]) == {("p", "lake")}
