"""Kafka destinations that write Avro: Confluent's deserializer reads it, and what does not fit is a dead letter."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.egest.egest_stream import EgestStream, outcomes, running_egest, texts
from tests.support.schema_registry import SchemaRegistryProcess, schema_registry

from hifi.delivery.installed_kinds import completed, read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.runtime.errors import Misconfigured, Retryable

MADE = b"1970-01-01T00:00:01.000002Z"
DECLARED = {
    "type": "record",
    "name": "Made",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def pipe(kafka: str, topic: str, avro: dict[str, Any]) -> Pipe:
    """A pipe with a JSON Schema."""
    settings = {"bootstrap": kafka, "topic": topic, "positions_topic": f"{topic}-positions"}
    properties = {"number": {"type": "integer"}, "note": {"type": "string"}}
    return Pipe.model_validate(
        {
            "pipe": "flights",
            "source": {"keys": [{"sha256": "0" * 64}]},
            "normalize": {"schema": {"type": "object", "required": ["number"], "properties": properties}},
            "destinations": [
                {"name": "d", "kind": "kafka", "settings": {**settings, "format": "avro", "avro": avro}}
            ],
        }
    )


def writer(declared: Pipe) -> DestinationWriter:
    (destination,) = declared.destinations
    assert isinstance(destination, ConnectorDestination)
    kind, settings = read_settings(destination)
    return kind.open(settings, WriterContext("s", "flights", "d", 16, 10.0))


def outbound(offset: int, **data: Any) -> OutboundEvent:
    return OutboundEvent(orjson.dumps(data), "application/json", {}, b"k", "0a" * 16, 0, offset, 0)


async def values(kafka: str, topic: str, registry: SchemaRegistryProcess, count: int) -> list[Any]:
    """The values of a topic, read with Confluent's deserializer."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level="read_committed")
    await consumer.start()
    values: list[bytes] = []
    try:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.seek(tp, 0)
        async with asyncio.timeout(60):
            while len(values) < count:
                for records in (await consumer.getmany(tp, timeout_ms=200)).values():
                    values += [record.value for record in records]
    finally:
        await consumer.stop()

    def read() -> list[Any]:
        deserialize = AvroDeserializer(registry.confluent())
        return [deserialize(value, SerializationContext(topic, MessageField.VALUE)) for value in values]

    return await asyncio.to_thread(read)


async def test_confluents_deserializer_reads_what_is_written_and_what_does_not_fit_is_a_dead_letter(
    kafka: str, stream: EgestStream, topic: Callable[..., Awaitable[str]], tmp_path: Path
) -> None:
    out_topic, second_topic = await topic(1, prefix="out"), await topic(1, prefix="out")
    async with schema_registry(kafka, tmp_path) as registry:
        published = completed(pipe(kafka, out_topic, {"registry": registry.declared}))
        async with running_egest(stream, published):
            data: list[dict[str, Any]] = [
                {"number": 1},
                {"number": 2, "note": "x"},
                {"number": "3"},
                {"number": 4, "more": 1},
            ]
            await stream.enriched(*(stream.record(key="k", data=value) for value in data))
            receipts = await stream.receipts(4)
            letters = [texts(record) for record in await stream.read(stream.topics.dead_letter)]
        assert outcomes(receipts) == ["delivered", "delivered", "dead-letter", "dead-letter"]
        assert {letter["hifi_reason"] for letter in letters} == {"avro-schema"}
        assert sorted(letter["hifi_detail"].split(" ")[0] for letter in letters) == ["/more", "/number"]
        assert await values(kafka, out_topic, registry, 2) == [
            {"number": 1, "note": None},
            {"number": 2, "note": "x"},
        ]
        assert (await registry.client().newest(f"{out_topic}-value")).id == 1

        # A schema of its own; the registry is away at first.
        await registry.kill()
        avro = {"registry": registry.declared, "subject": "made", "unknown_fields": "drop"}
        kafka_writer = writer(pipe(kafka, second_topic, avro | {"schema": DECLARED}))
        with pytest.raises(Retryable, match="does not answer"):
            await kafka_writer.write([outbound(1, number=1, at=MADE.decode())])
        await registry.start()
        await kafka_writer.write([outbound(1, number=1, at=MADE.decode(), more=2)])
        await kafka_writer.close()
        [value] = await values(kafka, second_topic, registry, 1)
        assert (value["number"], value["at"].microsecond, value["at"].second) == (1, 2, 1)

        newest = writer(pipe(kafka, second_topic, avro | {"schema": "newest"}))
        await newest.write([outbound(2, number=2, at=MADE.decode())])
        await newest.close()
        assert [value["number"] for value in await values(kafka, second_topic, registry, 2)] == [1, 2]

        changed_schema = {**DECLARED, "fields": [*DECLARED["fields"], {"name": "must", "type": "string"}]}
        refused_writer = writer(pipe(kafka, second_topic, avro | {"schema": changed_schema}))
        with pytest.raises(Misconfigured, match="incompatible"):
            await refused_writer.write([outbound(3, number=3, at=MADE.decode(), must="x")])
        await refused_writer.close()
        unregistered_writer = writer(
            pipe(kafka, second_topic, avro | {"schema": changed_schema, "register": False})
        )
        with pytest.raises(Misconfigured, match="40403"):
            await unregistered_writer.write([outbound(3, number=3, at=MADE.decode(), must="x")])
        await unregistered_writer.close()
