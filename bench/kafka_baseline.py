"""Throughput and CPU of aiokafka alone: one process and one broker, as fast as possible."""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hifi_cli.demo import flights
from hifi_infra.kafka.cluster import KafkaCluster

EVENTS = 40_000
PARTITIONS = 4


def measure(events: int = EVENTS) -> dict[str, Any]:
    """Messages a second and client CPU for each way of producing and consuming, for JSON."""
    with tempfile.TemporaryDirectory(prefix="hifi-raw-", ignore_cleanup_errors=True) as folder:
        return uvloop.run(_measure(Path(folder), events))


async def _measure(folder: Path, events: int) -> dict[str, Any]:
    bodies = [orjson.dumps(flights.event(*row)) for row in flights.rows(events)]
    cluster = KafkaCluster(folder / "kafka")
    await cluster.start()
    try:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("send", "batch")])
        await admin.close()
        return {
            "send": await _timed(cluster, events, lambda: _send(cluster.bootstrap, bodies)),
            "send_batch": await _timed(cluster, events, lambda: _send_batch(cluster.bootstrap, bodies)),
            "getmany": await _timed(cluster, events, lambda: _getmany(cluster.bootstrap, events)),
            "bytes": sum(map(len, bodies)) // events,
        }
    finally:
        await cluster.kill()


async def _timed(
    cluster: KafkaCluster, events: int, work: Callable[[], Awaitable[float]]
) -> dict[str, float]:
    broker_s, own_s = cluster.processes[1].cpu_seconds(), time.process_time()
    seconds = await work()
    return {
        "per_second": round(events / seconds),
        "cpu_seconds_per_million": round((time.process_time() - own_s) / events * 1e6, 1),
        "broker_cpu_seconds_per_million": round(
            (cluster.processes[1].cpu_seconds() - broker_s) / events * 1e6, 1
        ),
    }


async def _send(bootstrap: str, bodies: list[bytes]) -> float:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5
    ) as producer:
        began_s = time.monotonic()
        for chunk in _chunks(bodies, 2000):
            await asyncio.gather(
                *[
                    await producer.send("send", body, partition=number % PARTITIONS)
                    for number, body in enumerate(chunk)
                ]
            )
        return time.monotonic() - began_s


async def _send_batch(bootstrap: str, bodies: list[bytes]) -> float:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        began_s = time.monotonic()
        futures = []
        for number, chunk in enumerate(_chunks(bodies, 100)):
            batch = producer.create_batch()
            for body in chunk:
                if batch.append(key=None, value=body, timestamp=None) is None:
                    futures.append(await producer.send_batch(batch, "batch", partition=number % PARTITIONS))
                    batch = producer.create_batch()
                    batch.append(key=None, value=body, timestamp=None)
            futures.append(await producer.send_batch(batch, "batch", partition=number % PARTITIONS))
        await asyncio.gather(*futures)
        return time.monotonic() - began_s


async def _getmany(bootstrap: str, count: int) -> float:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("batch", number) for number in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        began_s, read_count = time.monotonic(), 0
        while read_count < count:
            read_count += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return time.monotonic() - began_s


def _chunks(items: list[bytes], size: int) -> Any:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


if __name__ == "__main__":
    print(orjson.dumps(measure(), option=orjson.OPT_INDENT_2).decode())
