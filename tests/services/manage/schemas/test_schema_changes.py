"""Normal forms of schemas, and references to what is deleted. No Kafka."""

import json
from typing import Any

import pytest

from hifi_manage.schemas.changes import RegistryChange, deletion, find, registration
from hifi_manage.schemas.normalized import normalized
from hifi_manage.schemas.refusals import RegistryRefusal
from hifi_manage.schemas.registered import Reference, Registered, SchemaBody

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": {"type": "long"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "string"}}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "doc": "when"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}, "default": "NEW"},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
SAME: dict[str, Any] = {
    "name": "shop.Order",
    "fields": [
        {"type": "long", "name": "id"},
        {"name": "lines", "type": {"items": "string", "type": "array"}},
        {"doc": "when", "name": "at", "type": {"logicalType": "timestamp-micros", "type": "long"}},
        {
            "name": "state",
            "type": {"type": "enum", "name": "State", "namespace": "shop", "symbols": ["NEW"]},
            "default": "NEW",
        },
        {"name": "next", "type": ["null", "shop.Order"], "default": None},
    ],
    "type": "record",
}


def body(tree: Any, *references: Reference) -> SchemaBody:
    return SchemaBody(json.dumps(tree), references)


def take(registered: Registered, change: RegistryChange) -> Any:
    for record in change.records:
        registered.take(record.key, record.value, registered.last_offset + 1)
    return change.answer


def test_schemas_that_mean_the_same_have_one_normal_form() -> None:
    assert normalized(body(ORDER)) == normalized(body(SAME))
    assert normalized(normalized(body(SAME))) == normalized(body(SAME))
    assert normalized(body({"type": "string"})) == normalized(SchemaBody("string"))
    other_schema = json.loads(json.dumps(ORDER).replace("NEW", "OLD"))
    assert normalized(body(other_schema)) != normalized(body(ORDER))


def test_a_schema_is_normalized_where_that_is_asked_for() -> None:
    registered = Registered()
    first_answer = take(registered, registration(registered, "orders", body(ORDER), normalize=True))
    assert json.loads(first_answer["schema"])["name"] == "shop.Order"
    repeated_change = registration(registered, "orders", body(SAME), normalize=True)
    assert (repeated_change.records, repeated_change.answer["id"]) == ((), first_answer["id"])
    assert find(registered, "orders", body(SAME)) is None
    version = find(registered, "orders", body(SAME), normalize=True)
    assert version is not None
    assert version.number == 1
    assert take(registered, registration(registered, "orders", body(SAME)))["version"] == 2
    with pytest.raises(RegistryRefusal, match="Invalid schema"):
        registration(registered, "orders", body({"type": "record"}), normalize=True)


def test_a_new_schema_refers_to_no_deleted_version() -> None:
    registered = Registered()
    take(registered, registration(registered, "state", body({"type": "enum", "name": "S", "symbols": ["X"]})))
    reference = Reference("S", "state", 1)
    user = body({"type": "record", "name": "R", "fields": [{"name": "s", "type": "S"}]}, reference)
    take(registered, deletion(registered, "state", permanent=False))
    with pytest.raises(RegistryRefusal, match="referenced subject 'state'") as error:
        registration(registered, "users", user)
    assert error.value.code == 40402
