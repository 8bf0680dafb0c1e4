"""Changes of a database are not judged by rules on columns that they do not carry."""

from typing import Any

import orjson
import pytest

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.left_out import notes_on_changes
from hifi.pipe.normalize.program import compile_pipe
from hifi.runtime.errors import Rejected

DEBEZIUM = {
    "kind": "debezium",
    "connect": "http://127.0.0.1:8083",
    "bootstrap": "127.0.0.1:9092",
    "topic": "changes.docs",
    "database": {"host": "db.example", "name": "shop", "user": "hifi", "password_file": "/etc/hifi/shop"},
    "tables": ["public.docs"],
}
HTTP = {"keys": [{"sha256": "0" * 64}]}
SCHEMA = {
    "type": "object",
    "required": ["id", "body"],
    "properties": {"id": {"type": "integer"}, "body": {"type": "string"}},
    "allOf": [{"required": ["title"]}],
}
RULES = {
    "schema": SCHEMA,
    "fields": {"text": {"from": "body", "required": True}, "lang": {"from": "title", "default": "en"}},
}


def pipe(source: dict[str, Any], **normalize: Any) -> Pipe:
    destination = {"name": "d", "url": "http://127.0.0.1:1/"}
    return Pipe.model_validate(
        {"pipe": "docs", "source": source, "normalize": normalize, "destinations": [destination]}
    )


def run(data: dict[str, Any], source: dict[str, Any] = DEBEZIUM) -> Any:
    return orjson.loads(
        compile_pipe(pipe(source, **RULES)).run(orjson.dumps(data), b"application/json") or b""
    )


DELETE = {"id": 1, "change": {"op": "delete"}}
UPDATE = {"id": 1, "title": "t", "change": {"op": "update", "unchanged": ["body"]}}


def test_a_delete_and_an_update_pass_without_the_columns_that_they_leave_out() -> None:
    assert run(DELETE) == DELETE
    assert run(UPDATE) == UPDATE | {"lang": "t"}


@pytest.mark.parametrize(
    "data",
    [
        {"id": "x", "change": {"op": "delete"}},
        {"id": 1, "body": None, "change": {"op": "delete"}},
        {"id": 1, "change": {"op": "update", "unchanged": ["body"]}},
        {"id": 1, "title": "t", "change": {"op": "insert"}},
        {"id": 1, "title": "t", "change": 5},
    ],
)
def test_what_they_carry_is_judged(data: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="schema"):
        run(data)


@pytest.mark.parametrize("data", [DELETE, UPDATE])
def test_events_of_other_sources_are_judged_whatever_they_say(data: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="schema"):
        run(data, HTTP)


EITHER = [{"required": ["mail"]}, {"required": ["phone"]}]
UNDECIDABLE = [
    {"anyOf": EITHER},
    {"oneOf": EITHER},
    {"oneOf": [{"properties": {"mail": {"type": "string"}}}, {"properties": {"mail": {"type": "null"}}}]},
    {
        "allOf": [
            {"anyOf": [{"required": ["mail"], "minProperties": 9}, {"properties": {"id": {"type": "null"}}}]}
        ]
    },
    {"minProperties": 4},
    {"if": {"properties": {"mail": {"const": "x"}}}, "then": {"required": ["phone"], "minProperties": 4}},
    {"if": {"properties": {"mail": {"const": "x"}}}, "then": False},
    {"dependentRequired": {"id": ["mail"]}},
    {"not": {"properties": {"mail": {"const": "x"}}}},
    {"$ref": "#/$defs/row", "$defs": {"row": {"anyOf": EITHER}}},
]


@pytest.mark.parametrize("schema", UNDECIDABLE)
def test_a_schema_that_columns_left_out_would_decide_refuses_no_change(schema: dict[str, Any]) -> None:
    unchanged = {"id": 1, "change": {"op": "update", "unchanged": ["mail", "phone"]}}
    for data in (DELETE, unchanged):
        text = orjson.dumps(data)
        assert compile_pipe(pipe(DEBEZIUM, schema=schema)).run(text, None) == text
        for refusing, refused_data in ((DEBEZIUM, {"id": 1, "change": {"op": "insert"}}), (HTTP, data)):
            with pytest.raises(Rejected, match="schema"):
                compile_pipe(pipe(refusing, schema=schema)).run(orjson.dumps(refused_data), None)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"id": {"type": "string"}}}, {"properties": {"id": {"type": "null"}}}]},
        {"oneOf": [{"required": ["mail"], "properties": {"id": {"type": "string"}}}, False]},
        {"properties": {"change": {"minProperties": 9}}},
        {"properties": {"change": {"anyOf": EITHER}}},
        {"additionalProperties": False},
    ],
)
def test_what_columns_left_out_cannot_decide_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match="schema"):
        compile_pipe(pipe(DEBEZIUM, schema=schema)).run(orjson.dumps(DELETE), None)


def test_the_check_says_so() -> None:
    (note,) = notes_on_changes(pipe(DEBEZIUM, **RULES))
    assert "schema, fields.text, fields.lang" in note
    assert not list(notes_on_changes(pipe(HTTP, **RULES)))
    assert not list(notes_on_changes(pipe(DEBEZIUM, fields={"text": "body"})))
