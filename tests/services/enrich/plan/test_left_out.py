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


def write(bench: SparkBench, pipe: Pipe, data: Any) -> OutputRecord:
    return bench.value(pipe, orjson.dumps(data), ROWS)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"required": ["status"]}, "required-null"),
        ({"derive": {"upper": {"sql": "upper(status)", "required": True}}}, "required-null"),
        ({"lookups": {"rates": LOOKUP | {"miss": "dead-letter"}}}, "lookup-miss"),
        ({"lookups": {"rates": LOOKUP}, "required": ["rate"]}, "required-null"),
    ],
)
def test_a_delete_passes_rules_on_columns_that_it_leaves_out(
    bench: SparkBench, rule: dict[str, Any], reason: str
) -> None:
    pipe = changes(**rule)
    record = write(bench, pipe, DELETE)
    assert (record.reason, record.to) == (None, "one")
    for change in (FULL, INSERT):
        assert write(bench, pipe, change).reason == reason
    http_pipe = make_pipe("p", fields=FIELDS, **rule)
    assert write(bench, http_pipe, DELETE).reason == reason


def test_an_update_passes_rules_on_long_values_that_did_not_change(bench: SparkBench) -> None:
    assert write(bench, changes(required=["body"]), UPDATE).reason is None
    lookup_by_body = LOOKUP | {"key": {"body": "code"}, "miss": "dead-letter"}
    assert write(bench, changes(lookups={"rates": lookup_by_body}), UPDATE).reason is None
    other_update = UPDATE | {"change": {"op": "update", "unchanged": ["title"]}}
    assert write(bench, changes(required=["body"]), other_update).reason == "required-null"


def test_a_delete_whose_condition_cannot_be_judged_goes_to_the_destination(bench: SparkBench) -> None:
    destinations = [("de", "country = 'DE' -- Germany"), ("new", "id > 1 and country = 'DE'"), ("all", None)]
    pipe = changes(destinations)
    assert write(bench, pipe, DELETE).to == "de,all"
    assert write(bench, pipe, UPDATE).to == "de,all"
    for change in (FULL, INSERT):
        assert write(bench, pipe, change).to == "all"
    filtered_pipe = changes(filter="status = 'open'")
    assert write(bench, filtered_pipe, DELETE).to == "one"
    assert write(bench, filtered_pipe, FULL).to == ""
    assert write(bench, make_pipe("p", destinations, fields=FIELDS), DELETE).to == "all"


@pytest.mark.parametrize(
    "condition",
    [
        "coalesce(country, 'DE') <> 'DE'",
        "country IS NOT NULL and id = 1",
        "not (country <=> null)",
        "case when country = 'FR' then true else false end",
        "region <> 'DE'",
        "concat_ws('', region) <> 'DE' -- or id > 1",
        "id between 2 and 3 or if(country is null, false, true)",
        "rate is not null",
    ],
)
def test_a_delete_goes_where_a_column_that_it_leaves_out_decides_though_a_function_turns_null_into_a_value(
    bench: SparkBench, condition: str
) -> None:
    enrichment = {"derive": {"region": "coalesce(country, 'DE')"}, "lookups": {"rates": LOOKUP}}
    pipe = changes([("some", condition), ("all", None)], **enrichment)
    assert write(bench, pipe, DELETE).to == "some,all"
    for change in (FULL, INSERT):
        assert write(bench, pipe, change).to == "all"
    assert write(bench, changes(filter=condition, **enrichment), DELETE).to == "one"


@pytest.mark.parametrize(
    "condition",
    [
        "coalesce(id, 0) > 1",
        "id > 1 and coalesce(country, 'DE') = 'DE'",
        "get_json_object(change, '$.op') <> 'delete' and coalesce(country, 'DE') = 'DE'",
        "id is null",
    ],
)
def test_what_a_delete_carries_still_decides(bench: SparkBench, condition: str) -> None:
    declaration = changes([("some", condition), ("all", None)]).model_dump(mode="json")
    declaration["enrich"]["fields"]["change"] = "string"
    assert write(bench, Pipe.model_validate(declaration), DELETE).to == "all"


def test_the_default_of_a_lookup_is_not_that_of_a_key_that_is_left_out(bench: SparkBench) -> None:
    lookup = LOOKUP | {"miss": "default", "default": {"rate": "7"}}
    pipe = changes([("high", "rate > '1'")], lookups={"rates": lookup})
    record = write(bench, pipe, DELETE)
    assert record.to == "high"
    assert orjson.loads(record.value or b"")["rate"] is None
    assert orjson.loads(write(bench, pipe, FULL).value or b"")["rate"] == "7"


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
    record = write(bench, pipe, UPDATE)
    assert record.reason is None
    assert orjson.loads(record.value or b"") == UPDATE | added_fields
    full_update = UPDATE | {"body": "b", "change": {"op": "update"}}
    body_fields = {"rate": None, "words": 1, "twice": 2, "text": "bs"}
    assert (
        orjson.loads(write(bench, pipe, full_update).value or b"") == full_update | added_fields | body_fields
    )


def test_where_all_added_fields_are_left_out_the_data_stays_as_it_is(bench: SparkBench) -> None:
    pipe = changes(derive={"words": "length(body)"})
    assert write(bench, pipe, UPDATE).value == orjson.dumps(UPDATE)


def test_an_unchanged_column_is_the_one_that_normalize_maps(bench: SparkBench) -> None:
    mapped_pipe = changes(
        normalize={"fields": {"body": "doc.text"}}, derive={"words": "coalesce(length(body), 0)"}
    )
    update = {"id": 1, "change": {"op": "update", "unchanged": ["doc"]}}
    assert write(bench, mapped_pipe, update).value == orjson.dumps(update)


def test_the_check_says_so() -> None:
    (note,) = notes_on_changes(changes([("de", "country = 'DE'")], required=["status"], filter="id > 1"))
    assert "enrich.required, enrich.filter, destinations.de.when" in note
    assert not list(notes_on_changes(changes()))
