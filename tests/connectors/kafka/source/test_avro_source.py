"""Records that Confluent's serializer wrote become events; without its registry a partition waits and loses nothing."""

import asyncio
import json
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.collect.collected_stream import collected_stream, fields, until
from tests.support.schema_registry import SchemaRegistryProcess, schema_registry
from tests.support.stream_process import readyz


def logical_type(base: str, logical: str, **attributes: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **attributes}


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": logical_type("bytes", "decimal", precision=20, scale=8)},
        {"name": "at", "type": logical_type("long", "timestamp-micros")},
        {"name": "day", "type": logical_type("int", "date")},
        {"name": "key", "type": logical_type("string", "uuid")},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string", "long"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
    ],
}
ORDER = {
    "id": 7,
    "price": Decimal("0.00000001"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "day": date(2026, 1, 2),
    "key": uuid.UUID(int=5),
    "raw": b"\xff\0",
    "state": "PAID",
    "note": None,
    "lines": [{"a": 1}, {}],
}
AS_JSON = {
    "id": 7,
    "price": "0.00000001",
    "at": "2026-01-02T03:04:05.678901Z",
    "day": "2026-01-02",
    "key": "00000000-0000-0000-0000-000000000005",
    "raw": "/wA=",
    "state": "PAID",
    "note": None,
    "lines": [{"a": 1}, {}],
}


async def serialized(
    registry: SchemaRegistryProcess, topic: str, schema: Any, value: Any, field: str
) -> bytes:
    """A message as a producer with Confluent's serializer writes it, which registers the schema."""

    def serialize() -> bytes | None:
        serializer = AvroSerializer(registry.confluent(), json.dumps(schema))
        message: bytes | None = serializer(value, SerializationContext(topic, MessageField(field)))
        return message

    message = await asyncio.to_thread(serialize)
    assert message is not None
    return message


async def test_avro_becomes_json_and_without_its_registry_a_partition_waits(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    async with collected_stream(kafka, log) as stream, schema_registry(kafka, tmp_path) as registry:
        topics, send = stream.topics, stream.producer.send_and_wait
        avro = {"format": "avro", "key_format": "avro", "registry": registry.declared}
        await stream.publish(stream.pipe(partition_key="id", **avro))
        await stream.start("normalize")
        _, admin = await stream.start("collect")

        order = await serialized(registry, stream.source, SCHEMA, ORDER, "value")
        key = await serialized(registry, stream.source, "string", "order 7", "key")
        await send(stream.source, order, key=key, partition=0)
        await send(stream.source, None, key=key, partition=0)
        normalized_records = await stream.read(topics.normalized, lambda records: len(records) == 2)
        event, deletion = sorted(normalized_records, key=lambda record: fields(record)["ce_id"])
        assert (orjson.loads(event.value), event.key) == (AS_JSON, b"7")
        assert fields(event)["content-type"] == b"application/json"
        assert orjson.loads(deletion.value) == {"key": "order 7", "deleted": True}

        number = int.from_bytes(order[1:5], "big")
        bad_values = {
            b"no": "not-avro",
            b"{}garbage": "not-avro",
            b"\0" + (number + 99).to_bytes(4, "big") + order[5:]: "unknown-schema",
            order[:-3]: "not-avro",
            order + b"\0": "not-avro",
        }
        for value in bad_values:
            await send(stream.source, value, key=key, partition=1)
        dead_letters = await stream.read(topics.dead_letter, lambda records: len(records) == len(bad_values))
        reasons = {
            int(letter["ce_id"].split(b"/")[-1]): letter["hifi_reason"].decode()
            for letter in map(fields, dead_letters)
        }
        assert [reasons[position] for position in sorted(reasons)] == list(bad_values.values())

        changed_schema = {
            **SCHEMA,
            "fields": [*SCHEMA["fields"], {"name": "more", "type": "string", "default": ""}],
        }
        new = await serialized(registry, stream.source, changed_schema, {**ORDER, "more": "x"}, "value")
        await registry.kill()
        for index in range(30):
            await send(stream.source, new, partition=index % 3)
        await until(lambda: "source of orders: schema registry" in readyz(admin)[1]["warnings"])
        assert readyz(admin)[0] == 200, "other sources go on"
        assert len(await stream.all(topics.raw)) == 2 + len(bad_values)
        await registry.start()
        normalized_records = await stream.read(topics.normalized, lambda records: len(records) == 32)
        assert [orjson.loads(record.value) for record in normalized_records].count(
            AS_JSON | {"more": "x"}
        ) == 30
        assert len(await stream.all(topics.dead_letter)) == len(bad_values)
        await until(lambda: readyz(admin)[1]["warnings"] == {})
