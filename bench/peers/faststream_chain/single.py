"""The chain as FastStream's documentation writes services: one message at a time."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import door
import flights
import uvloop
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

DESTINATION = os.environ.get("CHAIN_DESTINATION", "")
broker = KafkaBroker(os.environ["CHAIN_KAFKA"], acks="all", log_level=10)
reading: dict[str, Any] = {"auto_offset_reset": "earliest"}
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
        for event in events:
            await broker.publish(event, "raw", key=door.key(event))

    door.serve(publish, lifespan)


def normalize() -> None:
    @broker.subscriber("raw", group_id="normalize", **reading)
    @broker.publisher("normalized")
    async def handle(event: dict[str, Any]) -> dict[str, Any]:
        return event | {"data": flights.normalize(event["data"])}

    uvloop.run(app.run())


def enrich() -> None:
    lookups = flights.Lookups(Path(os.environ["FLIGHTS_DATA"]))

    @broker.subscriber("normalized", group_id="enrich", **reading)
    @broker.publisher("enriched")
    async def handle(event: dict[str, Any]) -> dict[str, Any]:
        return event | {"data": flights.enrich(event["data"], lookups)}

    uvloop.run(app.run())


def egest() -> None:
    @app.on_startup
    async def open_session() -> None:
        global session  # noqa: PLW0603
        session = aiohttp.ClientSession(DESTINATION)

    @app.after_shutdown
    async def close_session() -> None:
        await session.close()

    @broker.subscriber("enriched", group_id="egest", **reading)
    async def handle(event: dict[str, Any]) -> None:
        for path, headers, body in flights.deliveries(event):
            async with session.post(path, json=body, headers=headers) as answer:
                answer.raise_for_status()

    uvloop.run(app.run())


if __name__ == "__main__":
    {"ingest": ingest, "normalize": normalize, "enrich": enrich, "egest": egest}[sys.argv[1]]()
