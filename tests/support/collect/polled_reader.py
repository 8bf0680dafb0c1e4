"""Shared by the tests of sources that keep no position: counting, and killing the instance that reads."""

import asyncio
import subprocess
import urllib.request
from collections import Counter
from typing import Any, Self

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.collect.collected_stream import CollectedStream, fields
from tests.support.stream_process import PARTITIONS

Instance = tuple[subprocess.Popen[bytes], int]


def field(records: list[Any], name: str) -> list[Any]:
    """A field of the data of each record."""
    return [orjson.loads(record.value)[name] for record in records]


def written(admin: int) -> float:
    """Events that an instance of collect has written."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("hifi_collect_events_total{"))


class RawEnd:
    """Counts the records of `raw`, or of another topic, while they are written."""

    def __init__(self, stream: CollectedStream, topic: str = "") -> None:
        topic = topic or stream.topics.raw
        self._partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self._consumer = AIOKafkaConsumer(bootstrap_servers=stream.kafka)

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def count(self) -> int:
        return sum((await self._consumer.end_offsets(self._partitions)).values())

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(120):
            while await self.count() < count:
                await asyncio.sleep(0.002)


async def take_reader(instances: list[Instance]) -> Instance:
    """The instance that reads the source, removed from the list; the others are only candidates."""
    counts: list[float] = []
    async with asyncio.timeout(120):
        while not any(counts):  # it counts an event after Kafka has acknowledged it
            counts = [await asyncio.to_thread(written, admin) for _, admin in instances]
    assert sum(count > 0 for count in counts) == 1, "exactly one instance reads a source"
    return instances.pop(counts.index(max(counts)))


async def assert_each_once(stream: CollectedStream, normalized_records: list[Any]) -> None:
    """No event passed twice, no event was taken for a copy of another, and a copy has the times of the first."""
    raw = await stream.all(stream.topics.raw)
    assert set(Counter(fields(record)["ce_id"] for record in normalized_records).values()) == {1}, (
        "an event passed twice"
    )
    distinct = {fields(record)["ce_id"] for record in raw}
    copies = len(raw) - len(distinct)
    assert copies > 0, "nothing was read again, so the test shows nothing"
    receipts = await stream.read(stream.topics.receipts, lambda records: len(records) >= copies)
    assert len(receipts) == copies, "an event that was not written before was taken for a copy"
    assert {fields(receipt)["hifi_outcome"] for receipt in receipts} == {b"duplicate"}
    stamps: dict[bytes, set[tuple[bytes, bytes]]] = {}
    for stamped in map(fields, raw):
        stamps.setdefault(stamped["ce_id"], set()).add((stamped["hifi_accepted"], stamped["hifi_minute"]))
    assert {len(pairs) for pairs in stamps.values()} == {1}, "a copy has the accepted time of the first"
    assert distinct == {fields(record)["ce_id"] for record in normalized_records}
