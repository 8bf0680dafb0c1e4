"""A small stream of an earlier release, as recorded bytes.

`format-2.json` has the records of the event topics of a stream of two partitions: nine events each, the receipts of the
first two, one of which was delivered, and the retry of the other.

`python -m tests.releases.recorded_stream FILE` records a file with the checkout that it runs in. The files of earlier
formats stay as they are: they are what an earlier release wrote.
Nothing was released with format 1.
"""

import asyncio
import base64
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.egest.fake_destination import OK, ReceivedRequest, answer, destination

from hifi.pipe.model import Pipe
from hifi.record.partitioner import partition_of
from hifi.record.record import Record
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

FILE = Path(__file__).with_name("format-2.json")
PARTITIONS = 2
WRITE_KEY = "write-key"
EVENTS = 9
"""In each partition, numbered from 0."""
PROCESSED = 2
"""Events of each partition whose receipts are recorded. The last of them, the destination refused."""
REFUSED = "refused"
"""Marks the event that the destination refuses."""
_WITHIN_S = 900
_Partition = list[Record]


def pipe(url: str) -> Pipe:
    """The pipe of the recorded events."""
    return Pipe.model_validate(
        {
            "pipe": "recorded",
            "source": {"keys": [{"env": "RECORDED_KEY"}]},
            "normalize": {"schema": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
            "enrich": {"fields": {"n": "int"}, "derive": {"twice": "n * 2"}},
            "destinations": [
                {"name": "crm", "url": url, "retry": {"max_age": "36500d", "max_attempts": 1000}}
            ],
        }
    )


def recorded(file: Path = FILE) -> dict[str, list[_Partition]]:
    """Kind of topic to the records of each partition."""
    return {
        kind: [[_decoded(*encoded_record) for encoded_record in partition] for partition in partitions]
        for kind, partitions in json.loads(file.read_text("utf-8")).items()
    }


async def record(file: Path) -> None:
    """Run a mesh, send events, and write all records of its topics."""

    async def refuse(request: ReceivedRequest) -> bytes:
        return answer(503) if REFUSED.encode() in request.body else OK

    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            Path(folder) / "data", port=free_port(), partitions=PARTITIONS, env={"RECORDED_KEY": WRITE_KEY}
        )
        mesh = Mesh(plan)
        mesh.prepare()
        async with destination(refuse) as receiver:
            await mesh.start([pipe(receiver.url)])
            try:
                await mesh.wait_ready(_WITHIN_S)
                await _send(mesh, 0, PROCESSED)
                receipts = await _records(mesh, "receipts", mesh.topics.receipts, PROCESSED)
                await _send(mesh, PROCESSED, EVENTS)
                topics = mesh.topics
                recorded_topics = {
                    "raw": await _records(mesh, "raw", topics.raw, EVENTS),
                    "normalized": await _records(mesh, "normalized", topics.normalized, EVENTS),
                    "enriched": await _records(mesh, "enriched", topics.enriched, EVENTS),
                    "receipts": receipts,
                    "retry-in": await _records(mesh, "retry-in", topics.retry_in(topics.tiers[0]), 1),
                }
            finally:
                await mesh.kill()
    file.write_text(json.dumps(recorded_topics, indent=1) + "\n", "utf-8")


async def _send(mesh: Mesh, first: int, end: int) -> None:
    """Send events from `first` up to, not including, `end` to each partition, one after the other."""
    headers = {
        "authorization": f"Bearer {WRITE_KEY}",
        "ce-specversion": "1.0",
        "ce-source": "/recorded",
        "ce-type": "made",
    }
    async with aiohttp.ClientSession() as session:
        for number in range(first, end):
            for partition in range(PARTITIONS):
                data: dict[str, Any] = {"n": partition * EVENTS + number}
                if number == PROCESSED - 1:
                    data[REFUSED] = True
                event_headers = {"ce-id": f"{partition}-{number}", "ce-partitionkey": _key(partition)}
                url = f"{mesh.plan.url}/v1/pipes/recorded/events"
                async with session.post(url, json=data, headers=headers | event_headers) as answer:
                    assert answer.status == 202, await answer.text()


def _key(partition: int) -> str:
    """A key whose events are in a partition."""
    keys = (f"key-{number}" for number in itertools.count())
    return next(key for key in keys if partition_of(key.encode(), PARTITIONS) == partition)


async def _records(mesh: Mesh, kind: str, topic: str, count: int) -> list[Any]:
    """Wait for the first `count` records of a topic; returns them by partition."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    partition_records: list[list[Any]] = [[] for _ in tps]
    async with AIOKafkaConsumer(bootstrap_servers=mesh.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        async with asyncio.timeout(_WITHIN_S):
            while any(len(records) < count for records in partition_records):
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    partition_records[tp.partition] += [_encoded(record) for record in records]
    return [records[:count] for records in partition_records]


def _encoded(record: Any) -> list[Any]:
    key, value = (
        None if content is None else base64.b64encode(content).decode()
        for content in (record.key, record.value)
    )
    return [key, value, [[name, text.decode("ascii")] for name, text in record.headers]]


def _decoded(key: str | None, value: str | None, headers: list[list[str]]) -> Record:
    key_bytes, value_bytes = (
        None if encoded is None else base64.b64decode(encoded) for encoded in (key, value)
    )
    return Record(key_bytes, value_bytes, [(name, text.encode("ascii")) for name, text in headers])


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1])))
