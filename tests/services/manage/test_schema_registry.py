"""The schema registry of two instances of manage on a real Kafka, used by Confluent's own client, unchanged."""

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.manage.managed_stream import Managed

from hifi.avro.registry_client import RegistryAccess, RegistryClient, RegistryRefused
from hifi.control.principals.audit import Audit, AuditOutcome
from hifi.control.principals.principal import Role
from hifi.runtime.errors import Retryable


def record(*fields: Any, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": list(fields)})


def field(name: str, schema_type: Any, **options: Any) -> dict[str, Any]:
    return {"name": name, "type": schema_type, **options}


FIRST = record(field("id", "long"), field("price", "double"))
WITH_DEFAULT = record(
    field("id", "long"), field("price", "double"), field("note", ["null", "string"], default=None)
)
WITHOUT_DEFAULT = record(field("id", "long"), field("price", "double"), field("vat", "double"))
WITHOUT_PRICE = record(field("id", "long"))


def avro(text: str, *references: SchemaReference) -> Schema:
    return Schema(text, "AVRO", list(references))


def client(managed: Managed, instance: int, principal: str = "ann") -> SchemaRegistryClient:
    url = managed.urls[instance].removesuffix("/api/v1") + "/registry"
    return SchemaRegistryClient(
        {"url": url, "basic.auth.user.info": f"{principal}:{managed.tokens[principal]}", "max.retries": 0}
    )


def code(call: Any, *args: Any, **options: Any) -> int:
    """The error code of a call that is refused."""
    with pytest.raises(SchemaRegistryError) as error:
        call(*args, **options)
    return int(error.value.error_code)


def use_serializers(managed: Managed) -> None:
    first_client, second_client = client(managed, 0), client(managed, 1)
    context = SerializationContext("orders", MessageField.VALUE)
    event = {"id": 7, "price": 1.5}
    message = AvroSerializer(first_client, FIRST)(event, context)
    assert message is not None
    assert message[:5] == b"\0\0\0\0\1"
    assert AvroDeserializer(second_client)(message, context) == event
    assert second_client.register_schema("orders-value", avro(WITH_DEFAULT)) == 2
    assert AvroDeserializer(first_client, WITH_DEFAULT)(message, context) == {**event, "note": None}


def register_and_look_up(managed: Managed) -> None:
    first_client, second_client = client(managed, 0), client(managed, 1)
    assert first_client.register_schema("orders-value", avro(FIRST)) == 1
    reordered_schema = json.dumps(dict(reversed(json.loads(FIRST).items())), indent=2)
    assert second_client.register_schema("orders-value", avro(reordered_schema)) == 1
    assert second_client.register_schema("copies-value", avro(FIRST)) == 1, "a schema has one id"
    assert code(first_client.register_schema, "orders-value", avro(WITHOUT_DEFAULT)) == 409
    assert not first_client.test_compatibility("orders-value", avro(WITHOUT_DEFAULT))
    assert first_client.test_compatibility("orders-value", avro(WITHOUT_PRICE))
    assert code(first_client.register_schema, "orders-value", avro('{"type": "record"}')) == 42201
    assert code(first_client.register_schema, "orders-value", Schema("{}", "JSON")) == 42201
    assert first_client.get_subjects() == ["copies-value", "orders-value"]
    assert first_client.get_versions("orders-value") == [1, 2]
    latest_version = first_client.get_latest_version("orders-value")
    assert (latest_version.schema_id, latest_version.version) == (2, 2)
    assert json.loads(str(latest_version.schema.schema_str)) == json.loads(WITH_DEFAULT)
    version = client(managed, 1).lookup_schema("orders-value", avro(FIRST))
    assert (version.schema_id, version.version) == (1, 1)
    assert code(first_client.get_schema, 99) == 40403
    assert code(first_client.get_schema, "9" * 5000) == 40403, "int reads no more than 4,300 digits"
    assert code(first_client.get_version, "orders-value", "9" * 5000) == 42202
    assert code(first_client.get_versions, "nothing") == 40401
    assert code(first_client.get_version, "orders-value", 9) == 40402
    assert code(first_client.lookup_schema, "orders-value", avro(WITHOUT_PRICE)) == 40403


def use_references(managed: Managed) -> None:
    first_client, second_client = client(managed, 0), client(managed, 1)
    first_client.register_schema("items", avro(record(field("sku", "string"), name="Item")))
    cart = json.dumps({"type": "array", "items": "shop.Item"})
    assert code(second_client.register_schema, "carts/all", avro(cart)) == 42201
    number = second_client.register_schema("carts/all", avro(cart, SchemaReference("shop.Item", "items", 1)))
    schema = client(managed, 0).get_schema(number)
    assert [(reference.subject, reference.version) for reference in schema.references or []] == [("items", 1)]
    assert code(first_client.delete_subject, "items") == 42206
    assert first_client.delete_subject("carts/all") == [1]


def delete_and_remove(managed: Managed) -> None:
    def new() -> SchemaRegistryClient:  # without what others have cached
        return client(managed, 1)

    first_id, second_id = (
        new().register_schema("gone", avro(record(field(name, "int", default=0)))) for name in "ab"
    )
    assert new().delete_version("gone", 1) == 1
    assert new().get_versions("gone") == [2]
    assert new().get_schema(first_id).schema_str, "data that was written with it can still be read"
    assert code(new().delete_version, "gone", 1) == 40406
    assert new().delete_subject("gone") == [2]
    assert code(new().delete_subject, "gone") == 40404
    assert "gone" not in new().get_subjects()
    assert "gone" in new().get_subjects(deleted=True)
    assert new().register_schema("gone", avro(record(field("a", "int", default=0)))) == first_id
    assert new().get_latest_version("gone").version == 3
    assert code(new().delete_subject, "gone", permanent=True) == 40405
    assert new().delete_subject("gone") == [3]
    assert new().delete_subject("gone", permanent=True) == [1, 2, 3]
    assert code(new().get_schema, second_id) == 40403
    assert new().register_schema("gone", avro(record(field("c", "int", default=0)))) == second_id + 1


def set_levels(managed: Managed) -> None:
    first_client, second_client = client(managed, 0), client(managed, 1)
    assert first_client.get_compatibility() == "BACKWARD"
    assert code(first_client.get_compatibility, "s") == 40408
    assert code(first_client.set_compatibility, "s", "SOMEHOW") == 42203
    first_client.set_compatibility(level="FORWARD")
    assert second_client.get_compatibility() == "FORWARD"
    first_client.register_schema("s", avro(FIRST))
    first_client.register_schema("s", avro(WITHOUT_DEFAULT))
    assert code(first_client.register_schema, "s", avro(WITHOUT_PRICE)) == 409
    second_client.set_compatibility("s", "FULL")
    assert code(first_client.register_schema, "s", avro(FIRST.replace("double", "string"))) == 409
    second_client.set_compatibility("s", "NONE")
    first_client.register_schema("s", avro(WITHOUT_PRICE))
    # Version 1 has a number where this has text, the newest one has nothing.
    changed_schema = record(field("id", "long"), field("price", "string", default=""))
    second_client.set_compatibility("s", "BACKWARD_TRANSITIVE")
    assert code(first_client.register_schema, "s", avro(changed_schema)) == 409
    second_client.set_compatibility("s", "BACKWARD")
    first_client.register_schema("s", avro(changed_schema))
    assert first_client.get_versions("s") == [1, 2, 3, 4]


async def test_confluents_client_and_serializers_work_unchanged(managed: Managed) -> None:
    for scenario in (use_serializers, register_and_look_up, use_references, delete_and_remove, set_levels):
        await asyncio.to_thread(scenario, managed)


def hifi_client(managed: Managed, instance: int, principal: str = "ann") -> RegistryClient:
    """hifi's own client."""
    url = managed.urls[instance].removesuffix("/api/v1") + "/registry"
    password = managed.folder / f"{principal}-password"
    password.write_text(managed.tokens[principal] + "\n")
    return RegistryClient(RegistryAccess(url, principal, password))


async def register_at_both(managed: Managed, names: list[str]) -> dict[str, int]:
    """Register a schema for each name at both instances at once; returns the ids of registered ones."""
    calls = [
        (name, hifi_client(managed, instance).register(f"race-{name}", record(field(name, "int"), name=name)))
        for name in names
        for instance in range(2)
    ]
    answers = await asyncio.gather(*(call for _, call in calls), return_exceptions=True)
    ids: dict[str, int] = {}
    for (name, _), answer in zip(calls, answers, strict=True):
        if isinstance(answer, int):
            assert ids.setdefault(name, answer) == answer, "one schema, one id"
    return ids


@pytest.mark.more
async def test_instances_that_register_at_once_give_no_id_twice_also_when_one_is_killed_and_only_principals_may(
    managed: Managed,
) -> None:
    first_ids = await register_at_both(managed, [f"a{number}" for number in range(12)])
    assert sorted(first_ids.values()) == [*range(1, 13)]
    race_task = asyncio.create_task(register_at_both(managed, [f"b{number}" for number in range(12)]))
    await managed.read_until(managed.control.schemas, lambda registered: registered.last_id > 14)
    managed.processes[0].kill()
    await race_task
    assert await register_at_both(managed, [*(f"b{number}" for number in range(12))])
    registered = await managed.read_until(
        managed.control.schemas, lambda registry: len(registry.subjects) == 24
    )
    assert sorted(version.id for version in registered.all()) == [*range(1, 25)]

    audit = Audit()
    await managed.read(managed.control.audit, audit.take)
    changed_subjects = {
        entry.subject for entry in audit.entries.values() if entry.outcome is AuditOutcome.DONE
    }
    assert {f"schema/race-a{number}" for number in range(12)} <= changed_subjects

    for name, role, pipes in (
        ("vic", Role.VIEWER, ()),
        ("pat", Role.OPERATOR, ("flights",)),
        ("adm", Role.ADMIN, ("flights",)),
    ):
        await managed.create(name, role, pipes)
        await managed.until(1, "GET", "/pipes", 200, by=name)
    text = record(field("x", "int"), name="X")
    assert (await hifi_client(managed, 1, "vic").schema(1)).text
    for principal, subject, status in (
        ("vic", "flights", 403),
        ("pat", "orders", 403),
        ("pat", "flights-value", None),
    ):
        if status is None:
            assert await hifi_client(managed, 1, principal).register(subject, text)
        else:
            with pytest.raises(Retryable, match=str(status)):
                await hifi_client(managed, 1, principal).register(subject, text)
    with pytest.raises(Retryable, match="403"):
        await hifi_client(managed, 1, "pat").request("DELETE", "/subjects/flights-value")
    assert await hifi_client(managed, 1, "adm").request("DELETE", "/subjects/flights-value") == [1]
    with pytest.raises(Retryable, match="403"):
        await hifi_client(managed, 1, "adm").request("PUT", "/config", {"compatibility": "NONE"})
    managed.tokens["eve"] = managed.tokens["ann"]
    with pytest.raises(Retryable, match="401"):
        await hifi_client(managed, 1, "eve").schema(1)
    with pytest.raises(RegistryRefused) as error:
        await hifi_client(managed, 1).request("PUT", "/config", {"compatibility": "x"})
    assert error.value.code == 42203
