"""Writes events of a topic to a destination, by hand with aiokafka, psycopg or pyarrow, until it is ended.

`python destination_loop.py KIND KAFKA SOURCE TARGET BATCH [RECEIPTS]`: KIND is `kafka` (transactions with the read
offsets: exactly once), `upsert` (a row is replaced by its position), `append` (rows that exist already are left out),
`ndjson` or `parquet` (files that are on disk before the commit). With RECEIPTS, a topic, it writes a receipt for each
event before it commits, as egest does. No retries, no dead letters: an event that cannot be written ends the program.
"""

import asyncio
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pyarrow as pa
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from pyarrow import parquet

LOG = "0a" * 16
"""Identity of the log in the rows; the loop reads one."""
COLUMNS = f"(id, total, note, hifi_partition, hifi_offset, hifi_log) VALUES (%s, %s, %s, %s, %s, '{LOG}')"
UPSERT = (
    f"INSERT INTO orders AS present {COLUMNS} ON CONFLICT (id) DO UPDATE SET total = EXCLUDED.total,"
    " note = EXCLUDED.note, hifi_partition = EXCLUDED.hifi_partition, hifi_offset = EXCLUDED.hifi_offset"
    " WHERE present.hifi_partition <> EXCLUDED.hifi_partition OR present.hifi_offset <= EXCLUDED.hifi_offset"
)
APPEND = f"INSERT INTO orders {COLUMNS} ON CONFLICT (hifi_log, hifi_partition, hifi_offset) DO NOTHING"


async def batches(consumer: AIOKafkaConsumer, size: int) -> AsyncIterator[dict[TopicPartition, Any]]:
    """Records by partition, at most `size` of all partitions together."""
    while True:
        batch = await consumer.getmany(timeout_ms=500, max_records=size)
        if batch:
            yield batch


def offsets_after(
    batch: dict[TopicPartition, list[ConsumerRecord]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit after a batch."""
    return {tp: OffsetAndMetadata(records[-1].offset + 1, "") for tp, records in batch.items()}


class Receipts:
    """Writes a receipt for each event, if there is a topic for them."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._topic = topic
        self._producer = AIOKafkaProducer(
            bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=128 * 1024
        )

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def write(self, records_by_partition: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Write the receipts of a batch, and return when Kafka has them."""
        if not self._topic:
            return
        outcome = b"delivered;200;%d" % (time.time_ns() // 1000)
        futures = []
        for tp, records in records_by_partition.items():
            batch = self._producer.create_batch()
            for record in records:
                receipt = {
                    "key": record.key,
                    "value": None,
                    "headers": [*record.headers[:1], ("receipt", outcome)],
                }
                if batch.append(timestamp=None, **receipt) is None:
                    futures.append(
                        await self._producer.send_batch(batch, self._topic, partition=tp.partition)
                    )
                    batch = self._producer.create_batch()
                    batch.append(timestamp=None, **receipt)
            futures.append(await self._producer.send_batch(batch, self._topic, partition=tp.partition))
        await asyncio.gather(*futures)


async def to_kafka(
    consumer: AIOKafkaConsumer, kafka: str, group: str, target: str, size: int, receipts: Receipts
) -> None:
    """Write each batch and its offsets in a transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=group)
    async with producer:
        async for batch in batches(consumer, size):
            async with producer.transaction():
                futures = [
                    await producer.send(target, record.value, key=record.key)
                    for records in batch.values()
                    for record in records
                    if isinstance(orjson.loads(record.value), dict)
                ]
                await asyncio.gather(*futures)
                await receipts.write(batch)
                await producer.send_offsets_to_transaction(offsets_after(batch), group)


async def to_postgres(
    consumer: AIOKafkaConsumer, url: str, statement: str, size: int, receipts: Receipts
) -> None:
    """Write each batch in a transaction, and commit its offsets afterwards."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        async for batch in batches(consumer, size):
            rows = []
            for tp, records in batch.items():
                for record in records:
                    data = orjson.loads(record.value)
                    rows.append((data["id"], data["total"], data["note"], tp.partition, record.offset))
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.executemany(statement, rows)
            await receipts.write(batch)
            await consumer.commit(offsets_after(batch))


async def to_files(
    consumer: AIOKafkaConsumer, folder: Path, kind: str, size: int, receipts: Receipts
) -> None:
    """Write a file for each partition of a batch, and commit when all are on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    async for batch in batches(consumer, size):
        for tp, records in batch.items():
            rows = [row(record, tp.partition) for record in records]
            content = await asyncio.to_thread(encode, rows, kind)
            name = f"{tp.partition}.{records[0].offset:010d}.{kind}"
            await asyncio.to_thread(store, folder, name, content)
        await receipts.write(batch)
        await consumer.commit(offsets_after(batch))


def row(record: ConsumerRecord, partition: int) -> dict[str, Any]:
    """The columns of an event, which are those that egest writes."""
    data = orjson.loads(record.value)
    headers = dict(record.headers)
    accepted_us = int(headers["hifi"].split(b";")[4])
    attributes = {
        f"ce_{name}": text.decode() if (text := headers.get(f"ce_{name}")) is not None else None
        for name in ("id", "source", "type", "subject", "time")
    }
    return {
        "hifi_log": LOG,
        "hifi_partition": partition,
        "hifi_offset": record.offset,
        "hifi_accepted": datetime.fromtimestamp(accepted_us / 1e6, UTC),
        **attributes,
        "id": data["id"],
        "total": data["total"],
        "note": data["note"],
    }


def encode(rows: Sequence[dict[str, Any]], kind: str) -> bytes:
    """The content of a file."""
    if kind == "ndjson":
        return b"".join(orjson.dumps(file_row, option=orjson.OPT_APPEND_NEWLINE) for file_row in rows)
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(list(rows)), sink, compression="zstd")
    return sink.getvalue()


def store(folder: Path, name: str, content: bytes) -> None:
    """Give the file its name only when it is on disk."""
    temporary_file = folder / f".{name}"
    with temporary_file.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary_file.rename(folder / name)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


async def main(kind: str, kafka: str, source: str, target: str, batch: str, topic: str = "") -> None:
    """Write until ended."""
    group, size = f"{source}-{kind}-bare", int(batch)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=kafka,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    receipts = Receipts(kafka, topic)
    await receipts.start()
    async with consumer:
        if kind == "kafka":
            await to_kafka(consumer, kafka, group, target, size, receipts)
        elif kind in ("ndjson", "parquet"):
            await to_files(consumer, Path(target), kind, size, receipts)
        else:
            await to_postgres(consumer, target, UPSERT if kind == "upsert" else APPEND, size, receipts)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
