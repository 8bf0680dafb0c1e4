"""Lag of a pipe while collect reads the backlog of another one's source."""

import asyncio
import time
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from cases import Case, in_scene, scene
from growth_sections import BESIDE_BACKFILL, WITHOUT_BACKFILL
from mesh_row import WARM_UP_S, Keep, attempt, described, rating_of, steps
from second_destination import second_destination

from hifi.kafka.security import client_options
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import pipe_record
from hifi.runtime.errors import Retryable
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.mesh_state.observe_api import ObserveApi, read_token
from hifi_cli.rate.event_load import EventLoad

RATE, SECONDS, STEPS = 100.0, 15.0, 2
RECORDS, PARTITIONS = 200_000, 4
TOPIC, PIPE = "archive", "archive"
OLD_MS = 86_400_000
RAMP_S = 10.0
"""After this time a backfill has its whole rate, if the mesh can bear it."""
LIMIT_S = 1500.0


def backfill(keep: Keep) -> None:
    """100 ev/s on a pipe, alone and beside a backfill of 200,000 records of another one. About 8 minutes."""
    case = Case(
        "real-time",
        first=RATE,
        plan={"scale": {"observe": 1, "collect": 1}},
        env={"HIFI_OBSERVE_SETTLE_S": "10"},
    )
    attempt(
        keep,
        BESIDE_BACKFILL,
        lambda: in_scene(
            lambda folder: scene(case, folder), lambda load_test: _measure(load_test, keep), LIMIT_S
        ),
    )


async def _measure(load_test: LoadTest, keep: Keep) -> None:
    async with second_destination(load_test, "archive") as (other, _):
        rating = rating_of(load_test, EventLoad(), RATE)
        warm_up = await rating.begin(WARM_UP_S)
        kafka = load_test.mesh.bootstrap
        assert kafka is not None
        await _fill(kafka)
        print(f"{RECORDS:,} records are in the source", flush=True)
        keep(WITHOUT_BACKFILL, described(rating, warm_up, await steps(rating, RATE, STEPS, SECONDS)))
        begun_s = time.monotonic()
        await publish(kafka, load_test.mesh.plan.topics, [pipe_record(_pipe(kafka, other.destination_port))])
        await asyncio.sleep(RAMP_S)
        step_report = described(rating, warm_up, await steps(rating, RATE, STEPS, SECONDS))
        source = (await _get(load_test, f"pipes/{PIPE}"))["now"]["source"]
        if not source["backfill"]:
            raise Retryable("the backfill was over before the lag beside it was measured")
        print(f"measured beside {source}", flush=True)
        keep(BESIDE_BACKFILL, step_report | {"backfill": source})
        minutes = await _ended(load_test)
        seconds = time.monotonic() - begun_s
        totals = {
            name: sum(minute[name] for minute in minutes) for name in ("in", "delivered", "backfill", "lost")
        }
        totals |= {"down": sum(minute["state"] == "down" for minute in minutes), "minutes": len(minutes)}
        totals |= {
            "records": RECORDS,
            "seconds": round(seconds, 1),
            "per_second": round(RECORDS / seconds, 1),
        }
        print(f"the whole backfill: {totals}", flush=True)
        keep(BESIDE_BACKFILL, step_report | {"backfill": source, "whole": totals})
        if totals["delivered"] != RECORDS or totals["lost"] or totals["down"]:
            raise Retryable(f"the minutes of the backfill do not balance, or some are down: {totals}")


def _pipe(kafka: str, port: int) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": PIPE,
            "source": {"kind": "kafka", "bootstrap": kafka, "topic": TOPIC},
            "destinations": [
                {"name": "d", "url": f"http://127.0.0.1:{port}/archive", "batch": {"size": 100}}
            ],
        }
    )


async def _fill(kafka: str) -> None:
    """Create the source topic and write records of the day before."""
    admin = AIOKafkaAdminClient(**client_options(kafka))
    await admin.start()
    try:
        topic = NewTopic(TOPIC, PARTITIONS, 1, topic_configs={"message.timestamp.type": "CreateTime"})
        await admin.create_topics([topic])
    finally:
        await admin.close()
    producer = AIOKafkaProducer(**client_options(kafka), linger_ms=20)
    await producer.start()
    try:
        at_ms = round(time.time() * 1000) - OLD_MS
        for number in range(RECORDS):
            value = orjson.dumps({"n": number, "text": "x" * 200})
            await producer.send(TOPIC, value, b"k%d" % (number % 10_000), timestamp_ms=at_ms)
        await producer.flush()
    finally:
        await producer.stop()


async def _ended(load_test: LoadTest) -> list[dict[str, Any]]:
    """The closed minutes of the backfill, when all of it is in them."""
    while True:
        minutes: list[dict[str, Any]] = (await _get(load_test, f"pipes/{PIPE}/minutes?last=60"))["minutes"]
        if sum(minute["delivered"] for minute in minutes) >= RECORDS:
            return minutes
        await asyncio.sleep(2)


async def _get(load_test: LoadTest, path: str) -> dict[str, Any]:
    plan = load_test.mesh.plan
    observe = ObserveApi(f"http://127.0.0.1:{plan.console_port}", read_token(plan.token))
    return await asyncio.to_thread(observe.get, f"/api/v1/{path}")
