"""Hostile records of a real topic: each bad one is one dead letter with its id, and its neighbours pass."""

from pathlib import Path
from typing import Any

import cramjam
import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.collect.collected_stream import CollectedStream, collected_stream, fields
from tests.support.kafka.raw_batches import batch_of, send_batch

EVENT = [("ce_specversion", b"1.0"), ("ce_source", b"/shop"), ("ce_type", b"order")]
MICROSECONDS_AS_MS = 1_790_000_000_000_000
BOM = b"\xef\xbb\xbf"
WIDE = b'{"wide":1e999999}'

GOOD: list[dict[str, Any]] = [
    {"value": b'{"n":0}'},
    {"value": b'{"n":1}', "headers": [*EVENT, ("ce_id", b"null-subject"), ("ce_subject", None)]},
    {"value": b'{"n":2}', "headers": [*EVENT, ("ce_id", b"null-type"), ("content-type", None)]},
    {"value": b'{"n":3}', "headers": [("content-type", None), ("ce_specversion", None)]},
    {"value": b'{"n":4}', "timestamp_ms": MICROSECONDS_AS_MS},
    {"value": b'{"n":5}', "timestamp_ms": 2**63 - 1},
    {"value": BOM + b'{"n":6}'},
    {"value": None, "key": b"k", "headers": [*EVENT, ("ce_id", b"without-data")]},
    {"value": None, "key": b"deleted"},
    {"value": WIDE},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"value": b'{"n":'}, "not-json"),
    ({"value": BOM}, "not-json"),
    ({"value": b"\x00"}, "not-json"),
    ({"value": b'{"n":"\xff"}'}, "not-json"),
    ({"value": b'{"a":' * 20_000 + b"1" + b"}" * 20_000}, "not-json"),
    ({"value": b"[" * 100_000}, "not-json"),
    ({"value": None, "key": b""}, "no-data"),
    ({"value": None, "key": b"\xff"}, "no-data"),
    ({"value": b"{}", "headers": [*EVENT, ("ce_id", None)]}, "not-a-cloudevent"),
    (
        {"value": None, "key": b"k", "headers": [("content-type", b"application/cloudevents+json")]},
        "not-a-cloudevent",
    ),
    ({"value": b"{}", "headers": [*EVENT, ("ce_id", b"\xff")]}, "not-a-cloudevent"),
    ({"value": b"x" * 70_000, "key": b"k" * 70_000}, "too-large"),
]


NAMES = batch_of(
    [b'{"n":7}', b'{"n":8}'],
    header="HEADER",
    change=lambda raw: raw.replace(b"HEADER", b"H\xe4\xf6\xfcER", 1),
)
BOMB = batch_of([b"\0" * (80 * 1024 * 1024)], codec=4, change=lambda raw: bytes(cramjam.zstd.compress(raw)))
BATCHES = [(NAMES, 1, "unreadable-record"), (BOMB, 0, "too-large")]
"""Batches with one bad record each: the bytes, the number of good records, the reason."""


async def write_records(stream: CollectedStream, topic: str) -> None:
    """Write all records to a new topic, good ones between bad ones."""
    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    # As before Kafka 3.6: a producer may give its records any time.
    accepts = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
    creation = await admin.create_topics([NewTopic(topic, 1, 1, topic_configs=accepts)])
    assert all(error[1] == 0 for error in creation.topic_errors), creation
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=stream.kafka)
    await producer.start()
    bad_records = [record for record, _ in BAD]
    for index in range(max(len(GOOD), len(bad_records))):
        for record in (*GOOD[index : index + 1], *bad_records[index : index + 1]):
            await producer.send_and_wait(topic, partition=0, **record)
    for batch, _, _ in BATCHES:
        await send_batch(producer, topic, batch)
    await producer.send_and_wait(topic, b'{"n":9}', partition=0)
    await producer.stop()


async def test_each_bad_record_is_one_dead_letter_with_its_id_and_all_others_pass(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream:
        topics = stream.topics
        await write_records(stream, topic := f"{stream.source}-hostile")
        await stream.publish(stream.pipe(topic=topic))
        await stream.start("normalize")
        collect, _ = await stream.start("collect")
        expected_count = len(GOOD) + sum(count for _, count, _ in BATCHES) + 1
        reasons = [reason for _, reason in BAD] + [reason for *_, reason in BATCHES]
        normalized_records = await stream.read(
            topics.normalized, lambda records: len(records) == expected_count
        )
        dead_letters = await stream.read(topics.dead_letter, lambda records: len(records) == len(reasons))
        assert sorted(fields(record)["hifi_reason"].decode() for record in dead_letters) == sorted(reasons)
        ids = [fields(record)["ce_id"] for record in (*normalized_records, *dead_letters)]
        assert len(set(ids)) == len(ids) == expected_count + len(reasons)
        records_by_id = {fields(record)["ce_id"]: record for record in normalized_records}
        assert not records_by_id[b"without-data"].value
        assert fields(records_by_id[b"without-data"])["ce_type"] == b"order"
        record_texts = [record.value for record in normalized_records if record.value]
        assert WIDE in record_texts
        data = [orjson.loads(text) for text in record_texts if text != WIDE]
        assert sorted(document["n"] for document in data if "n" in document) == [*range(7), 8, 9]
        assert [document for document in data if "n" not in document] == [{"key": "deleted", "deleted": True}]
        assert "handler-failed" not in log.read_text()
        assert collect.poll() is None
