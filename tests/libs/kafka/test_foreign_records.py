"""A record or batch of another producer that cannot be read takes no other with it, and no memory."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.codec import snappy_encode
from tests.support.kafka.raw_batches import batch_of, send_batch

from hifi.kafka.consumer import AssignedPartition, Batch, Consumer, ConsumerOptions
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.service import Service
from hifi_infra.kafka.cluster import KafkaCluster

UNPACKED = 1024 * 1024
MAXIMUM = "the batch with the offsets {0} to {0} of {1}[0] unpacks to more than 1048576 bytes"


def lz4(raw: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(level=9, content_checksum=False, block_linked=False)
    compressor.compress(raw)
    return bytes(compressor.finish())


def zstd(raw: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(raw))


def raw_snappy(raw: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(raw))


CODECS = {
    "gzip": (1, gzip.compress),
    "snappy": (2, raw_snappy),
    "xerial": (2, snappy_encode),
    "lz4": (3, lz4),
    "zstd": (4, zstd),
}


def latin(records: bytes, count: int = -1) -> bytes:
    """The records with another name of their header, of the first ones."""
    return records.replace(b"HEADER", b"H\xe4\xf6\xfcER", count)


class Reading:
    """Reads a topic as collect does."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.service = Service("read", settings := ServiceSettings(kafka=kafka, commit_interval_s=0.1))
        options = ConsumerOptions([topic], f"{topic}-group", foreign=True, unpacked_bytes=UNPACKED)
        self.consumer = Consumer(self.service, settings, options, self.step, self.put_away)
        self.read: list[ConsumerRecord] = []
        self.memberships = 0

    async def step(self, work: AssignedPartition, records: Batch) -> None:
        self.read += records
        work.complete_through(records[-1].offset)

    async def put_away(self, _: AssignedPartition, record: ConsumerRecord, __: Exception) -> None:
        raise AssertionError(record)

    async def until(self, count: int) -> list[Any]:
        """Wait for `count` records; returns their details or values."""
        async with asyncio.timeout(60):
            while len(self.read) < count:
                await asyncio.sleep(0.02)
        return [getattr(record, "detail", record.value) for record in self.read]


@contextlib.asynccontextmanager
async def running_reader(kafka: str, topic: str) -> AsyncIterator[Reading]:
    reader = Reading(kafka, topic)
    task = asyncio.create_task(reader.consumer.run())
    try:
        yield reader
    finally:
        reader.service.stop()
        await task


@contextlib.asynccontextmanager
async def producing(kafka: str) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=kafka, max_request_size=8 * UNPACKED)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@pytest.mark.parametrize("codec", [None, *CODECS])
async def test_a_record_with_a_header_name_that_is_not_utf8_is_unreadable_and_its_neighbours_pass(
    kafka: str, topic: Any, codec: str | None
) -> None:
    name = await topic()
    number, compress = CODECS[codec] if codec else (0, bytes)
    bad_batch = batch_of([b"a", b"b"], header="HEADER", codec=number, change=lambda raw: compress(latin(raw)))
    mixed_batch = batch_of(
        [b"c", b"d", b"e"],
        header="HEADER",
        codec=number,
        change=lambda raw: compress(latin(raw, 2)),
    )
    async with producing(kafka) as producer, running_reader(kafka, name) as reader:
        await send_batch(producer, name, batch_of([b"first"]))
        await send_batch(producer, name, bad_batch)
        await send_batch(producer, name, mixed_batch)
        await send_batch(producer, name, batch_of([b"last"]))
        problem = f"of {name}[0] has a header whose name is not UTF-8"
        assert await reader.until(7) == [
            b"first",
            f"the record at offset 1 {problem}",
            f"the record at offset 2 {problem}",
            f"the record at offset 3 {problem}",
            f"the record at offset 4 {problem}",
            b"e",
            b"last",
        ]
        assert [record.offset for record in reader.read] == [*range(7)]


@pytest.mark.parametrize("codec", CODECS)
async def test_a_batch_that_unpacks_too_far_is_unreadable_and_the_others_pass(
    kafka: str, topic: Any, codec: str
) -> None:
    name = await topic()
    number, compress = CODECS[codec]
    bomb = batch_of([b"\0" * (4 * UNPACKED)], codec=number, change=compress)
    fitting_batch = batch_of([b"\0" * (UNPACKED - 100)], codec=number, change=compress)
    async with producing(kafka) as producer, running_reader(kafka, name) as reader:
        await send_batch(producer, name, fitting_batch)
        await send_batch(producer, name, bomb)
        await send_batch(producer, name, batch_of([b"x", b"y"], codec=number, change=compress))
        assert await reader.until(4) == [
            b"\0" * (UNPACKED - 100),
            MAXIMUM.format(1, name),
            b"x",
            b"y",
        ]
        assert [record.offset for record in reader.read] == [0, 1, 2, 3]
        assert getattr(reader.read[1], "reason", "") == "too-large"


async def test_a_partition_stops_at_a_corrupt_batch_with_a_warning_and_goes_on_when_it_is_whole(
    tmp_path: Path,
) -> None:
    cluster = KafkaCluster(tmp_path)
    await cluster.start()
    try:
        kafka, name = cluster.bootstrap, "corrupt"
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        await admin.create_topics([NewTopic(name, 2, 1)])
        await admin.close()
        async with producing(kafka) as producer:
            for value in (b"before", b"ROTTEN", b"after"):
                await send_batch(producer, name, batch_of([value]))
            [segment] = tmp_path.rglob(f"{name}-0/*0.log")
            content = segment.read_bytes()
            _overwrite(segment, content.replace(b"ROTTEN", b"rotten"))
            async with running_reader(kafka, name) as reader:
                assert await reader.until(1) == [b"before"]
                await _until_warned(reader, True)
                [(subject, warning)] = reader.service.health.warnings.items()
                assert subject == "corrupt batch of corrupt[0]"
                assert warning.startswith("the batch at offset 1 has a wrong checksum, so nothing is read")
                member = reader.consumer.member
                await send_batch(producer, name, batch_of([b"elsewhere"]), partition=1)
                assert await reader.until(2) == [b"before", b"elsewhere"]
                _overwrite(segment, content)
                assert (await reader.until(4))[2:] == [b"ROTTEN", b"after"]
                await _until_warned(reader, False)
                assert reader.consumer.member is member, "it stays a member of the group"
    finally:
        await cluster.kill()


def _overwrite(file: Path, data: bytes) -> None:
    with file.open("r+b") as open_file:
        open_file.write(data)


async def _until_warned(reader: Reading, warned: bool) -> None:
    async with asyncio.timeout(60):
        while bool(reader.service.health.warnings) != warned:
            await asyncio.sleep(0.02)
