"""Passes records on with aiokafka alone: `python aiokafka_service.py KAFKA SOURCE TARGET`, until it is ended."""

import asyncio
import sys
import time

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

COMMIT_S = 0.5


async def main(kafka: str, source: str, target: str) -> None:
    """Read, write, wait for the acknowledgement, commit twice a second."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=128 * 1024
    )
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=kafka,
        group_id=f"{source}-bare",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with producer, consumer:
        committed_s = time.monotonic()
        while True:
            futures = []
            for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                batch = producer.create_batch()
                for record in records:
                    content = {"key": record.key, "value": record.value, "headers": list(record.headers)}
                    if batch.append(timestamp=None, **content) is None:
                        futures.append(await producer.send_batch(batch, target, partition=tp.partition))
                        batch = producer.create_batch()
                        batch.append(timestamp=None, **content)
                futures.append(await producer.send_batch(batch, target, partition=tp.partition))
            await asyncio.gather(*futures)
            if time.monotonic() - committed_s > COMMIT_S:
                await consumer.commit()
                committed_s = time.monotonic()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
