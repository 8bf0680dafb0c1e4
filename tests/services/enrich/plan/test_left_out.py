"""Changes of a database are not judged by rules on columns that they do not carry, nor are fields made of these."""

from typing import Any

import orjson
import pytest
from tests.libs.pipe.normalize.test_left_out import DEBEZIUM
from tests.support.enrich.spark_bench import OutputRecord, SparkBench, make_pipe

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.left_out import notes_on_changes

FIELDS = {"id": "bigint", "status": "string", "country": "string", "body": "string"}
LOOKUP = {"file": "/rates.csv", "key": {"country": "code"}, "fields": {"rate": "rate"}}
ROWS = {"rates": [{"code": "DE", "rate": "19"}, {"code": None, "rate": "0"}]}
DELETE = {"id": 1, "change": {"op": "delete"}}
FULL = {"id": 1, "status": None, "country": None, "body": None, "change": {"op": "delete"}}
UPDATE = {"id": 1, "status": "s", "country": "DE", "change": {"op": "update", "unchanged": ["body"]}}
INSERT = {"id": 1, "change": {"op": "insert"}}


def changes(destinations: Any = (), normalize: Any = None, **enrich: Any) -> Pipe:
    declaration = make_pipe("p", destinations, fields=FIELDS, **enrich).model_dump(mode="json")
    return Pipe.model_validate(declaration | {"source": DEBEZIUM, "normalize": normalize or {}})


def write(bench: SparkBench, pipe: Pipe, *changed_rows: Any) -> list[OutputRecord]:
    return bench.values(pipe, [orjson.dumps(data) for data in changed_rows], ROWS)


def sent_to(bench: SparkBench, pipe: Pipe, *changed_rows: Any) -> list[str | None]:
    return [record.to for record in write(bench, pipe, *changed_rows)]


def reasons(bench: SparkBench, pipe: Pipe, *changed_rows: Any) -> list[str | None]:
    return [record.reason for record in write(bench, pipe, *changed_rows)]


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"required": ["status"]}, "required-null"),
        pytest.param(
            {"derive": {"upper": {"sql": "upper(status)", "required": True}}},
            "required-null",
            marks=pytest.mark.more,
        ),
        ({"lookups": {"rates": LOOKUP | {"miss": "dead-letter"}}}, "lookup-miss"),
        pytest.param(
            {"lookups": {"rates": LOOKUP}, "required": ["rate"]}, "required-null", marks=pytest.mark.more
        ),
    ],
)
def test_a_delete_passes_rules_on_columns_that_it_leaves_out(
    bench: SparkBench, rule: dict[str, Any], reason: str
) -> None:
    pipe = changes(**rule)
    record, *others = write(bench, pipe, DELETE, FULL, INSERT)
    assert (record.reason, record.to) == (None, "one")
    assert [other.reason for other in others] == [reason, reason]
    http_pipe = make_pipe("p", fields=FIELDS, **rule)
    assert reasons(bench, http_pipe, DELETE) == [reason]


def test_an_update_passes_rules_on_long_values_that_did_not_change(bench: SparkBench) -> None:
    other_update = UPDATE | {"change": {"op": "update", "unchanged": ["title"]}}
    assert reasons(bench, changes(required=["body"]), UPDATE, other_update) == [None, "required-null"]
    lookup_by_body = LOOKUP | {"key": {"body": "code"}, "miss": "dead-letter"}
    assert reasons(bench, changes(lookups={"rates": lookup_by_body}), UPDATE) == [None]


def test_a_delete_whose_condition_cannot_be_judged_goes_to_the_destination(bench: SparkBench) -> None:
    destinations = [("de", "country = 'DE' -- Germany"), ("new", "id > 1 and country = 'DE'"), ("all", None)]
    pipe = changes(destinations)
    assert sent_to(bench, pipe, DELETE, UPDATE, FULL, INSERT) == ["de,all", "de,all", "all", "all"]
    assert sent_to(bench, changes(filter="status = 'open'"), DELETE, FULL) == ["one", ""]
    assert sent_to(bench, make_pipe("p", destinations, fields=FIELDS), DELETE) == ["all"]


def test_a_delete_goes_where_a_column_that_it_leaves_out_decides_though_a_function_turns_null_into_a_value(
    bench: SparkBench,
) -> None:
    conditions = [
        "coalesce(country, 'DE') <> 'DE'",
        "country IS NOT NULL and id = 1",
        "not (country <=> null)",
        "case when country = 'FR' then true else false end",
        "region <> 'DE'",
        "concat_ws('', region) <> 'DE' -- or id > 1",
        "id between 2 and 3 or if(country is null, false, true)",
        "rate is not null",
    ]
    destinations = {f"d{number}": condition for number, condition in enumerate(conditions)}
    enrichment = {"derive": {"region": "coalesce(country, 'DE')"}, "lookups": {"rates": LOOKUP}}
    pipe = changes([*destinations.items(), ("all", None)], **enrichment)
    every_destination = ",".join([*destinations, "all"])
    assert sent_to(bench, pipe, DELETE, FULL, INSERT) == [every_destination, "all", "all"]
    every_condition = "\nand ".join(f"({condition}\n)" for condition in conditions)
    assert sent_to(bench, changes(filter=every_condition, **enrichment), DELETE) == ["one"]


def test_what_a_delete_carries_still_decides(bench: SparkBench) -> None:
    conditions = [
        "coalesce(id, 0) > 1",
        "id > 1 and coalesce(country, 'DE') = 'DE'",
        "get_json_object(change, '$.op') <> 'delete' and coalesce(country, 'DE') = 'DE'",
        "id is null",
    ]
    destinations = [(f"d{number}", condition) for number, condition in enumerate(conditions)]
    declaration = changes([*destinations, ("all", None)]).model_dump(mode="json")
    declaration["enrich"]["fields"]["change"] = "string"
    assert sent_to(bench, Pipe.model_validate(declaration), DELETE) == ["all"]


def test_the_default_of_a_lookup_is_not_that_of_a_key_that_is_left_out(bench: SparkBench) -> None:
    lookup = LOOKUP | {"miss": "default", "default": {"rate": "7"}}
    pipe = changes([("high", "rate > '1'")], lookups={"rates": lookup})
    record, full_record = write(bench, pipe, DELETE, FULL)
    assert record.to == "high"
    assert orjson.loads(record.value or b"")["rate"] is None
    assert orjson.loads(full_record.value or b"")["rate"] == "7"


def test_a_field_made_of_an_unchanged_column_is_left_out_as_the_column_is(bench: SparkBench) -> None:
    pipe = changes(
        lookups={"rates": LOOKUP | {"key": {"body": "code"}}},
        derive={
            "words": "coalesce(length(`body`), 0)",
            "twice": "words * 2",
            "upper": "upper(status)",
            "text": "concat(body, status)",
            "nothing": "nullif(status, status)",
        },
    )
    added_fields = {"upper": "S", "nothing": None}
    full_update = UPDATE | {"body": "b", "change": {"op": "update"}}
    body_fields = {"rate": None, "words": 1, "twice": 2, "text": "bs"}
    record, full_record = write(bench, pipe, UPDATE, full_update)
    assert record.reason is None
    assert orjson.loads(record.value or b"") == UPDATE | added_fields
    assert orjson.loads(full_record.value or b"") == full_update | added_fields | body_fields


def test_where_all_added_fields_are_left_out_the_data_stays_as_it_is(bench: SparkBench) -> None:
    pipe = changes(derive={"words": "length(body)"})
    (record,) = write(bench, pipe, UPDATE)
    assert record.value == orjson.dumps(UPDATE)


def test_an_unchanged_column_is_the_one_that_normalize_maps(bench: SparkBench) -> None:
    mapped_pipe = changes(
        normalize={"fields": {"body": "doc.text"}}, derive={"words": "coalesce(length(body), 0)"}
    )
    update = {"id": 1, "change": {"op": "update", "unchanged": ["doc"]}}
    (record,) = write(bench, mapped_pipe, update)
    assert record.value == orjson.dumps(update)


def test_the_check_says_so() -> None:
    (note,) = notes_on_changes(changes([("de", "country = 'DE'")], required=["status"], filter="id > 1"))
    assert "enrich.required, enrich.filter, destinations.de.when" in note
    assert not list(notes_on_changes(changes()))
