"""Values that a JSON Schema allows fit the derived Avro schema, and a keyword without counterpart is named."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.avro.derive import derive
from hifi.avro.schema import AvroSchema, read_schema
from hifi.runtime.errors import Misconfigured, Rejected
from hifi_kafka.avro.encode import Encoder
from hifi_kafka.avro.schema_fit import disagreements


def schema(tree: Any) -> AvroSchema:
    return read_schema(json.dumps(tree))


def data(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required or [],
        "additionalProperties": False,
    }


ORDER = data(
    ["id", "lines"],
    id={"type": "integer", "minimum": -(2**40), "maximum": 2**40},
    price={"type": "number"},
    note={"type": ["string", "null"]},
    state={"enum": ["NEW", "PAID"]},
    size={"enum": ["10 x 10", "20 x 20"]},
    flag={"const": True},
    tags={"type": "object", "additionalProperties": {"type": "boolean"}},
    customer={"$ref": "#/$defs/person"},
    payer={"$ref": "#/$defs/person"},
    lines={
        "type": "array",
        "items": data(
            ["sku"],
            sku={"type": "string"},
            n={"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 9, "minimum": 0}]},
        ),
    },
    parent={"$ref": "#"},
) | {
    "$defs": {
        "person": data(
            name={"type": "string"}, friends={"type": "array", "items": {"$ref": "#/$defs/person"}}
        )
    }
}

PERSON = st.fixed_dictionaries({}, optional={"name": st.text(), "friends": st.just([])})
LINE = st.fixed_dictionaries({"sku": st.text()}, optional={"n": st.text() | st.integers(0, 9)})
ORDERS = st.fixed_dictionaries(
    {"id": st.integers(-(2**40), 2**40), "lines": st.lists(LINE, max_size=3)},
    optional={
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "note": st.text() | st.none(),
        "state": st.sampled_from(["NEW", "PAID"]),
        "size": st.sampled_from(["10 x 10", "20 x 20"]),
        "flag": st.just(True),
        "tags": st.dictionaries(st.text(), st.booleans(), max_size=3),
        "customer": PERSON,
        "payer": PERSON,
        "parent": st.just({"id": 1, "lines": []}),
    },
)
VALID = jsonschema_rs.validator_for(ORDER)
ENCODE = Encoder(schema(derive(ORDER, "orders-eu")))


@given(ORDERS)
def test_each_value_that_the_json_schema_allows_fits_the_derived_schema(value: dict[str, Any]) -> None:
    assert VALID.is_valid(value)
    assert ENCODE(value)


@pytest.mark.parametrize(
    "value",
    [{"lines": []}, {"id": "1", "lines": []}, {"id": 1, "lines": [{}]}, {"id": 1, "lines": [], "x": 1}],
)
def test_what_it_does_not_allow_by_type_does_not_fit(value: dict[str, Any]) -> None:
    assert not VALID.is_valid(value)
    with pytest.raises(Rejected):
        ENCODE(value)


def test_the_derived_schema_agrees_with_its_json_schema_and_has_the_pipes_name() -> None:
    derived = derive(ORDER, "orders-eu")
    assert (derived["namespace"], derived["name"]) == ("hifi", "orders_eu")
    assert disagreements(ORDER, "orders-eu", schema(derived), drop_unknown=False) == []


@pytest.mark.parametrize(
    ("json_schema", "pointer", "reason"),
    [
        (data(None, **{"a-b": {"type": "string"}}), "/properties/a-b", "letters, digits and _"),
        (data(a={}), "/properties/a", "any value"),
        (data(a=True), "/properties/a", "any value"),
        (data(a={"type": "object"}), "/properties/a", "object of any fields"),
        (data(a={"type": "array"}), "/properties/a", "array of any values"),
        (data(a={"allOf": [{"type": "string"}]}), "/properties/a", "`allOf`"),
        (
            data(a={"oneOf": [data(x={"type": "string"}), data(y={"type": "string"})]}),
            "/properties/a",
            "several objects",
        ),
        (data(a={"$ref": "http://x/y"}), "/properties/a", "no pointer"),
        (data(a={"$ref": "#/properties/a"}), "/properties/a", "contains itself"),
        (data(["b"], a={"type": "string"}), "its root", "`required` names b"),
        ({"type": "string"}, "", "no `properties`"),
        (
            data(a={"type": "string"}) | {"additionalProperties": {"type": "string"}},
            "its root",
            "other names",
        ),
    ],
)
def test_what_has_no_counterpart_in_avro_is_named(json_schema: Any, pointer: str, reason: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        derive(json_schema, "orders")
    assert pointer in str(refusal.value)
    assert reason in str(refusal.value)
