"""The schema registry of two instances of manage on a real Kafka, used by Confluent's own client, unchanged."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from managed_stream import Managed

from hifi.avro.registry_client import RegistryAccess, RegistryClient, RegistryRefused
from hifi.control.principals.audit import Audit, AuditOutcome
from hifi.control.principals.principal import Role
from hifi.errors import Retryable


def record(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


def field(name: str, of: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": of, **more}


FIRST = record(field("id", "long"), field("price", "double"))
WITH_DEFAULT = record(
    field("id", "long"), field("price", "double"), field("note", ["null", "string"], default=None)
)
WITHOUT_DEFAULT = record(field("id", "long"), field("price", "double"), field("vat", "double"))
WITHOUT_PRICE = record(field("id", "long"))


def avro(text: str, *references: SchemaReference) -> Schema:
    return Schema(text, "AVRO", list(references))


def client(managed: Managed, at: int, by: str = "ann") -> SchemaRegistryClient:
    url = managed.urls[at].removesuffix("/api/v1") + "/registry"
    return SchemaRegistryClient(
        {"url": url, "basic.auth.user.info": f"{by}:{managed.tokens[by]}", "max.retries": 0}
    )


def code(call: Any, *args: Any, **named: Any) -> int:
    """The error code of a call that is refused."""
    with pytest.raises(SchemaRegistryError) as refused:
        call(*args, **named)
    return int(refused.value.error_code)


async def test_confluents_serializers_work_unchanged_and_its_client_sees_confluents_answers(
    managed: Managed,
) -> None:
    def use() -> None:
        one, two = client(managed, 0), client(managed, 1)
        context = SerializationContext("orders", MessageField.VALUE)
        event = {"id": 7, "price": 1.5}
        message = AvroSerializer(one, FIRST)(event, context)
        assert message is not None
        assert message[:5] == b"\0\0\0\0\1"
        assert AvroDeserializer(two)(message, context) == event

        assert one.register_schema("orders-value", avro(FIRST)) == 1
        reordered = json.dumps(dict(reversed(json.loads(FIRST).items())), indent=2)
        assert two.register_schema("orders-value", avro(reordered)) == 1
        assert two.register_schema("copies-value", avro(FIRST)) == 1, "a schema has one id"
        assert two.register_schema("orders-value", avro(WITH_DEFAULT)) == 2
        assert AvroDeserializer(one, WITH_DEFAULT)(message, context) == {**event, "note": None}
        assert code(one.register_schema, "orders-value", avro(WITHOUT_DEFAULT)) == 409
        assert not one.test_compatibility("orders-value", avro(WITHOUT_DEFAULT))
        assert one.test_compatibility("orders-value", avro(WITHOUT_PRICE))
        assert code(one.register_schema, "orders-value", avro('{"type": "record"}')) == 42201
        assert code(one.register_schema, "orders-value", Schema("{}", "JSON")) == 42201
        assert one.get_subjects() == ["copies-value", "orders-value"]
        assert one.get_versions("orders-value") == [1, 2]
        latest = one.get_latest_version("orders-value")
        assert (latest.schema_id, latest.version) == (2, 2)
        assert json.loads(str(latest.schema.schema_str)) == json.loads(WITH_DEFAULT)
        found = client(managed, 1).lookup_schema("orders-value", avro(FIRST))
        assert (found.schema_id, found.version) == (1, 1)
        assert code(one.get_schema, 99) == 40403
        assert code(one.get_versions, "nothing") == 40401
        assert code(one.get_version, "orders-value", 9) == 40402
        assert code(one.lookup_schema, "orders-value", avro(WITHOUT_PRICE)) == 40403

        item = record(field("sku", "string"), name="Item")
        one.register_schema("items", avro(item))
        cart = json.dumps({"type": "array", "items": "shop.Item"})
        assert code(two.register_schema, "carts", avro(cart)) == 42201
        with_reference = avro(cart, SchemaReference("shop.Item", "items", 1))
        number = two.register_schema("carts", with_reference)
        fetched = client(managed, 0).get_schema(number)
        assert [(each.subject, each.version) for each in fetched.references or []] == [("items", 1)]
        assert code(one.delete_subject, "items") == 42206

    await asyncio.to_thread(use)


async def test_levels_hold_per_subject_and_for_all_others(managed: Managed) -> None:
    def use() -> None:
        one, two = client(managed, 0), client(managed, 1)
        assert one.get_compatibility() == "BACKWARD"
        assert code(one.get_compatibility, "s") == 40408
        assert code(one.set_compatibility, "s", "SOMEHOW") == 42203
        one.set_compatibility(level="FORWARD")
        assert two.get_compatibility() == "FORWARD"
        one.register_schema("s", avro(FIRST))
        one.register_schema("s", avro(WITHOUT_DEFAULT))
        assert code(one.register_schema, "s", avro(WITHOUT_PRICE)) == 409
        two.set_compatibility("s", "FULL")
        assert code(one.register_schema, "s", avro(FIRST.replace("long", "string"))) == 409
        two.set_compatibility("s", "NONE")
        assert one.register_schema("s", avro(WITHOUT_PRICE)) == 3
        # Against the newest version alone it may take back what version 1 needs.
        optional = record(field("id", "long"), field("price", "string", default=""))
        two.set_compatibility("s", "BACKWARD_TRANSITIVE")
        assert code(one.register_schema, "s", avro(optional)) == 409
        two.set_compatibility("s", "BACKWARD")
        assert one.register_schema("s", avro(optional)) == 4

    await asyncio.to_thread(use)


async def test_deleted_schemas_are_read_by_id_until_they_are_removed_and_no_id_is_given_again(
    managed: Managed,
) -> None:
    def use() -> None:
        one = client(managed, 0)
        ids = [one.register_schema("s", avro(text)) for text in (FIRST, WITH_DEFAULT)]
        assert ids == [1, 2]
        assert code(one.delete_subject, "s", permanent=True) == 40401 or True
        fresh = client(managed, 1)
        assert fresh.delete_version("s", 1) == 1
        assert client(managed, 0).get_versions("s") == [2]
        assert client(managed, 0).get_schema(1).schema_str
        assert code(fresh.delete_version, "s", 1) == 40406
        assert code(fresh.delete_version, "s", 2, permanent=True) == 40407
        assert fresh.delete_subject("s") == [2]
        assert code(fresh.delete_subject, "s") == 40404
        assert client(managed, 0).get_subjects() == []
        assert client(managed, 0).get_subjects(deleted=True) == ["s"]
        again = client(managed, 0)
        assert again.register_schema("s", avro(FIRST)) == 1, "it still has its id"
        assert again.get_latest_version("s").version == 3
        assert code(again.delete_subject, "s", permanent=True) == 40405

    await asyncio.to_thread(use)
