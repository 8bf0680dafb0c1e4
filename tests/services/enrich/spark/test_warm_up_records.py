"""The made-up events of a warm-up: of every pipe, and such that they pass through all of its steps."""

import json
from typing import Any

from tests.support.enrich.spark_bench import SparkBench, make_pipe

from hifi.record.fields import fields as header_fields
from hifi.record.headers import PIPE
from hifi.spark.lookup_key import table_id
from hifi_enrich.lookup.table import LookupTable, build_table
from hifi_enrich.spark.warm_up_records import MAX_PIPES, warm_up_records

TYPES = {
    "s": "string",
    "b": "boolean",
    "i": "int",
    "l": "bigint",
    "d": "double",
    "day": "date",
    "at": "timestamp",
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "sites": [{"code": "a:1", "zone": "x"}, {"code": "b", "zone": "y"}],
    "weather": [{"zone": "x", "hour": "2024-01-31T12:00:00Z", "temp": 3}],
}
LOOKUPS: dict[str, Any] = {
    "weather": {
        "file": "/weather.csv",
        "key": {"zone": "zone", "at": "hour"},
        "fields": {"temp": "temp"},
        "types": {"hour": "timestamp", "temp": "int"},
        "miss": "dead-letter",
    },
    "sites": {
        "file": "/sites.csv",
        "key": {"s": "code"},
        "fields": {"label": "zone"},
        "miss": "dead-letter",
    },
}


def test_every_type_of_field_has_values_and_conditions_hold_for_some_of_them_only(bench: SparkBench) -> None:
    conditions = ["b", "i >= 10", "l > 0", "d > 1", "at < timestamp'2024-02-03'", "day < date'2024-06-01'"]
    pipe = make_pipe(
        "p",
        [(f"d{index}", condition) for index, condition in enumerate(conditions)],
        fields=TYPES,
        required=list(TYPES),
    )
    records = warm_up_records([pipe], {}, 8)
    output_records = bench.run(
        bench.plan([pipe]),
        [(warm_up_record.key, warm_up_record.value, 0, warm_up_record.headers) for warm_up_record in records],
    )
    assert {record.reason for record in output_records} == {None}
    for index in range(len(conditions)):
        assert 0 < sum(f"d{index}" in record.to.split(",") for record in output_records) < len(output_records)


def test_lookups_find_their_rows_so_that_the_steps_after_them_run_too(bench: SparkBench) -> None:
    fields = {"s": "string", "zone": "string", "at": "timestamp"}
    pipe = make_pipe("p", fields=fields, lookups=LOOKUPS, derive={"warm": "temp > 2"})
    tables: dict[str, LookupTable] = {
        table_id(lookup, pipe.pipe): build_table(name, lookup, ROWS[name])
        for name, lookup in pipe.enrich.lookups.items()
    }
    records = warm_up_records([pipe], tables, 4)
    plan = bench.plan([pipe], ROWS)
    output_records = bench.run(
        plan,
        [(warm_up_record.key, warm_up_record.value, 0, warm_up_record.headers) for warm_up_record in records],
    )
    assert [record.reason for record in output_records] == [None] * 4
    documents = [json.loads(record.value or b"") for record in output_records]
    assert [(document["temp"], document["warm"], document["label"]) for document in documents] == [
        (3, True, "x"),
        (3, True, "y"),
    ] * 2


def test_events_take_turns_through_the_pipes_and_there_are_some_without_a_pipe() -> None:
    pipes = [make_pipe(f"p{index}") for index in range(MAX_PIPES + 1)]
    names = [
        header_fields(record.headers)[PIPE].decode() for record in warm_up_records(pipes, {}, 2 * MAX_PIPES)
    ]
    assert names == [pipe.pipe for pipe in pipes[:MAX_PIPES]] * 2
    assert len(warm_up_records([], {}, 3)) == 3
