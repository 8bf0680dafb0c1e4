"""The chain tuned: batches from topic to topic, bytes in and out, requests in parallel."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import door
import flights
import orjson
import uvloop
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage, KafkaPublishMessage

DESTINATION = os.environ.get("CHAIN_DESTINATION", "")
OUT = int(os.environ.get("CHAIN_BATCH", "1"))
BINARY = {"Content-Type": "application/json"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}
broker = KafkaBroker(
    os.environ["CHAIN_KAFKA"],
    acks="all",
    linger_ms=5,
    max_batch_size=1024 * 1024,
    max_request_size=8 * 1024 * 1024,
    log_level=10,
    apply_types=False,
    serializer=None,
)
reading: dict[str, Any] = {
    "batch": True,
    "auto_offset_reset": "earliest",
    "max_partition_fetch_bytes": 64 * 1024,
    "fetch_max_wait_ms": 50,
    "batch_timeout_ms": 50,
    "max_records": 500,
}
if os.environ.get("CHAIN_ACK") != "default":
    reading["ack_policy"] = AckPolicy.NACK_ON_ERROR
app = FastStream(broker)
session: aiohttp.ClientSession


def ingest() -> None:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with broker:
            yield

    async def publish(events: list[dict[str, Any]]) -> None:
        if len(events) == 1:
            await broker.publish(orjson.dumps(events[0]), "raw", key=door.key(events[0]))
        else:
            await _publish("raw", events)

    door.serve(publish, lifespan)


def normalize() -> None:
    def change(event: dict[str, Any]) -> dict[str, Any]:
        event["data"] = flights.normalize(event["data"])
        return event

    _step("raw", "normalized", "normalize", change)


def enrich() -> None:
    lookups = flights.Lookups(Path(os.environ["FLIGHTS_DATA"]))

    def change(event: dict[str, Any]) -> dict[str, Any]:
        event["data"] = flights.enrich(event["data"], lookups)
        return event

    _step("normalized", "enriched", "enrich", change)


def egest() -> None:
    @app.on_startup
    async def open_session() -> None:
        global session  # noqa: PLW0603
        session = aiohttp.ClientSession(DESTINATION, connector=aiohttp.TCPConnector(limit=64))

    @app.after_shutdown
    async def close_session() -> None:
        await session.close()

    @broker.subscriber("enriched", group_id="egest", decoder=_raw, **reading)
    async def handle(bodies: list[bytes]) -> None:
        requests = [request for body in bodies for request in flights.deliveries(orjson.loads(body))]
        if OUT > 1:
            requests = list(_gathered(requests))
        await asyncio.gather(*(_post(*request) for request in requests))

    uvloop.run(app.run())


def _step(source: str, target: str, group: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    @broker.subscriber(source, group_id=group, decoder=_raw, **reading)
    async def handle(bodies: list[bytes]) -> None:
        await _publish(target, [change(orjson.loads(body)) for body in bodies])

    uvloop.run(app.run())


async def _publish(topic: str, events: list[dict[str, Any]]) -> None:
    """All of them as one batch, in one partition."""
    messages = [KafkaPublishMessage(orjson.dumps(event), key=door.key(event)) for event in events]
    await broker.publish_batch(*messages, topic=topic)


async def _raw(message: KafkaMessage) -> list[bytes]:
    return list(message.body)


def _gathered(requests: list[Any]) -> Any:
    """The same as batches of `OUT`."""
    by_path: dict[str, list[Any]] = {}
    for path, headers, body in requests:
        envelope = {name[3:]: value for name, value in headers.items()} | {"data": body} if headers else body
        by_path.setdefault(path, []).append(envelope)
    for path, bodies in by_path.items():
        for first in range(0, len(bodies), OUT):
            yield path, BATCH, bodies[first : first + OUT]


async def _post(path: str, headers: dict[str, str], body: Any) -> None:
    async with session.post(path, data=orjson.dumps(body), headers=BINARY | headers) as answer:
        answer.raise_for_status()


if __name__ == "__main__":
    {"ingest": ingest, "normalize": normalize, "enrich": enrich, "egest": egest}[sys.argv[1]]()
