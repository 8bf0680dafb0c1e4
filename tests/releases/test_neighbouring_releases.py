"""Instances of two neighbouring releases work side by side, and take over from each other.

The other release is made from this checkout: it writes what the next release may write (`next_release`). With
HIFI_TEST_OTHER_RELEASE it is a release of your choice: a checkout of another commit, or a virtual environment.
"""

import asyncio
import contextlib
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi.control.releases.desired_release import INSTALLED
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "services" / "egest")]
from fake_destination import OK, ReceivedRequest, answer, destination
from next_release import FIELD, make_next_release
from recorded_stream import PARTITIONS, WRITE_KEY, pipe, restore

pytestmark = pytest.mark.timeout(600)
OTHER = os.environ.get("HIFI_TEST_OTHER_RELEASE", "")
MIXED = ("ingest", "normalize", "egest", "retrier", "observe")
"""Services with an instance of each release. Enrich has one active instance, which changes its release."""
SWAPPED = (
    ("normalize-1", True),
    ("egest-1", True),
    ("enrich-1", True),
    ("normalize-2", False),
    ("egest-2", False),
    ("observe-1", True),
)
"""Instance, and whether it gets the other release; under load."""
EVENTS_PER_S = 40
RETRIED_EVERY, REFUSED_EVERY = 50, 60
AGE_S = 65
"""So long before it is sent an event happened: its minute is over, and closes without a wait."""
RETRY_FOR_S = 3
"""Longer than egest repeats a request itself: the delivery goes to the retrier."""
WITHIN_S = 150


class Outside:
    """Sender and destination.

    Attributes:
        accepted: numbers of the events that ingest acknowledged.
        refused: those of them that normalize refuses.
        received: number of an event to how often it arrived.
    """

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.refused: set[int] = set()
        self.received: Counter[int] = Counter()
        self.recorded: Counter[int] = Counter()
        self._first_s: dict[int, float] = {}

    async def take(self, request: ReceivedRequest) -> bytes:
        """Answer as the destination."""
        body = orjson.loads(request.body)
        assert body["twice"] == 2 * body["n"]
        number = body["n"]
        if "live" not in body:
            self.recorded[number] += 1
            return OK
        first_s = self._first_s.setdefault(number, time.monotonic())
        if number % RETRIED_EVERY == 0 and time.monotonic() - first_s < RETRY_FOR_S:
            return answer(503)
        self.received[number] += 1
        return OK

    async def send(self, url: str) -> None:
        """Send events at a steady rate until cancelled."""
        number, began = 0, time.monotonic()
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as posts:
            while True:
                while number < (time.monotonic() - began) * EVENTS_PER_S:
                    posts.create_task(self._post(session, url, number))
                    number += 1
                await asyncio.sleep(0.02)

    async def _post(self, session: aiohttp.ClientSession, url: str, number: int) -> None:
        refused = number % REFUSED_EVERY == 1
        headers = {
            "authorization": f"Bearer {WRITE_KEY}",
            "ce-specversion": "1.0",
            "ce-id": str(number),
            "ce-source": "/live",
            "ce-type": "made",
            "ce-time": (datetime.now(UTC) - timedelta(seconds=AGE_S)).isoformat(),
            "ce-partitionkey": f"key-{number % 100}",
        }
        data = {"n": str(number) if refused else number, "live": True}
        async with session.post(f"{url}/v1/pipes/live/events", json=data, headers=headers) as answered:
            assert answered.status == 202, await answered.text()
        self.accepted.add(number)
        if refused:
            self.refused.add(number)

    @property
    def expected(self) -> Counter[int]:
        """What the destination gets of what was accepted."""
        return Counter(self.accepted - self.refused)


@contextlib.asynccontextmanager
async def mixed_mesh(kafka: str, url: str, folder: Path, other: str) -> AsyncIterator[Mesh]:
    """A mesh with an instance of each release, on a stream that an earlier release has left."""
    plan = Plan(
        folder / "data",
        stream=f"s{uuid.uuid4().hex[:8]}",
        kafka=kafka,
        partitions=PARTITIONS,
        port=free_port(),
        console_port=free_port(),
        scale={"observe": 1},
        env={"RECORDED_KEY": "another-key", "LIVE_KEY": WRITE_KEY, "HIFI_OBSERVE_SETTLE_S": "1"},
    )
    mesh = Mesh(plan)
    mesh.prepare()
    await prepare(kafka, mesh.topics, PARTITIONS)
    for name in ("recorded", "live"):
        await put_in_force(kafka, mesh.topics, [pipe(name, url)], variables=plan.env)
    await restore(kafka, mesh.topics)
    await mesh.start()
    try:
        for service in MIXED:
            mesh.set_default_release(service, other)
            await mesh.scale(service, 2)
        await mesh.wait_ready(WITHIN_S)
        yield mesh
    finally:
        await mesh.stop()


async def test_two_releases_side_by_side_lose_nothing_and_repeat_nothing(kafka: str, tmp_path: Path) -> None:
    other = OTHER or str(make_next_release(tmp_path / "next"))
    outside = Outside()
    async with destination(outside.take) as there, mixed_mesh(kafka, there.url, tmp_path, other) as mesh:
        sending = asyncio.create_task(outside.send(mesh.plan.url))
        for name, to_other in SWAPPED:
            await mesh.set_release(name, other if to_other else INSTALLED, "swapped by the test")
            await mesh.wait_ready(WITHIN_S)
            assert not sending.done(), sending.exception()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        # What the earlier release had left: everything but the one event that it had delivered, once.
        due = Counter(set(range(2 * 9)) - {0, 9})
        await until(lambda: outside.received == outside.expected and outside.recorded == due, outside)
        assert outside.refused
        await until_observed(mesh, outside)
        releases = {one.name: one.spec.release for one in mesh.all()}
        assert set(releases.values()) == {INSTALLED, other}
        for service in ("normalize", "egest"):  # each release works on a partition
            assert await assigned(mesh, service) == [1, 1]
        if not OTHER:
            for topic in (mesh.topics.raw, mesh.topics.normalized, mesh.topics.enriched, mesh.topics.receipts):
                assert min(await written_by_each(kafka, topic)) > 0, f"{topic}: one release wrote nothing"


async def until(condition: Any, outside: Outside) -> None:
    """Wait for a condition."""
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, (outside.expected - outside.received, outside.received, outside.recorded)
        await asyncio.sleep(0.1)


async def until_observed(mesh: Mesh, outside: Outside) -> None:
    """Wait until observe has every event and its end, and has read each record."""
    end = time.monotonic() + WITHIN_S
    dead = len(outside.refused)
    wanted = {
        "in": len(outside.accepted),
        "acknowledged": len(outside.accepted),
        "delivered": len(outside.accepted) - dead,
        "dead": dead,
        "duplicates": 0,
        "in_flight": 0,
        "waiting": 0,
        "lost": 0,
        "unacknowledged": 0,
    }
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{mesh.plan.console}/api/v1/pipes/live/minutes?last=60") as answered:
                minutes = (await answered.json())["minutes"] if answered.status == 200 else []
            found = {name: sum(one[name] for one in minutes) for name in wanted}
            if found == wanted:
                break
            assert time.monotonic() < end, (found, wanted)
            await asyncio.sleep(0.5)
        async with session.get(f"{mesh.plan.console}/api/v1/status") as answered:
            assert (await answered.json())["foreign"] == 0


async def assigned(mesh: Mesh, service: str) -> list[int]:
    """Partitions of the first topic that each instance of a service reads."""
    found = []
    async with aiohttp.ClientSession() as session:
        for instance in mesh.instances[service]:
            async with session.get(f"http://127.0.0.1:{instance.spec.port}/metrics") as answered:
                lines = (await answered.text()).splitlines()
            numbers = [line for line in lines if line.startswith("hifi_assigned_partitions{")]
            found.append(round(float(numbers[0].rpartition(" ")[2])))
    return found


async def written_by_each(kafka: str, topic: str) -> tuple[int, int]:
    """Records of a topic that the two releases wrote: this one, the next one."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    names = ("hifi", "hifi_hop", "hifi_receipt")
    place = 0 if topic.endswith(".raw") else 2 if topic.endswith(".receipts") else 1
    found: Counter[bool] = Counter()
    async with AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    name, text = record.headers[place]
                    assert name == names[place]
                    found[text.endswith(b";" + FIELD)] += 1
    return found[False], found[True]
