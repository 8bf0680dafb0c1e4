"""What a JSON Schema allows and a declared Avro schema does not take is named with its field."""

import json
from typing import Any

import pytest

from hifi.avro.schema import read_schema
from hifi_kafka.avro.schema_fit import disagreements


def data(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def field(name: str, of: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": of, **more}


@pytest.mark.parametrize(
    ("properties", "required", "fields", "problems"),
    [
        ({"a": {"type": "integer"}}, ["a"], [field("a", "long")], []),
        ({"a": {"type": "integer", "minimum": 0, "maximum": 9}}, ["a"], [field("a", "int")], []),
        (
            {"a": {"type": "integer"}},
            ["a"],
            [field("a", "int")],
            ["/a: the JSON Schema allows an integer, which does not fit int"],
        ),
        (
            {"a": {"type": "string"}},
            ["a"],
            [field("a", {"type": "long", "logicalType": "timestamp-micros"})],
            [],
        ),
        (
            {"a": {"type": "number"}},
            ["a"],
            [field("a", {"type": "bytes", "logicalType": "decimal", "precision": 9})],
            [],
        ),
        ({"a": {"type": "string"}}, [], [field("a", "string", default="")], []),
        (
            {"a": {"type": "string"}},
            [],
            [field("a", "string")],
            ["/a: the JSON Schema allows null, which does not fit string"],
        ),
        (
            {"a": {"type": "string"}},
            ["a"],
            [],
            ["/a: the JSON Schema has the field, and the Avro schema does not"],
        ),
        (
            {},
            [],
            [field("b", "int")],
            ["/b: the Avro schema needs the field, and the JSON Schema does not have it"],
        ),
        (
            {"a": data(["x"], x={"type": "string"})},
            ["a"],
            [field("a", ["null", {"type": "record", "name": "A", "fields": [field("x", "long")]}])],
            ["/a/x: the JSON Schema allows a text, which does not fit long"],
        ),
    ],
)
def test_a_declared_schema_that_does_not_take_what_the_json_schema_allows_is_found(
    properties: Any, required: Any, fields: Any, problems: list[str]
) -> None:
    json_schema = data([*required, "id"], id={"type": "boolean"}, **properties)
    declared = read_schema(
        json.dumps({"type": "record", "name": "R", "fields": [field("id", "boolean"), *fields]})
    )
    assert disagreements(json_schema, "orders", declared, drop_unknown=False) == problems
