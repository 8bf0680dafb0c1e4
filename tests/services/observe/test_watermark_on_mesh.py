"""The watermark of a real mesh under load, held against the logs of the sender and of the destination."""

import asyncio
import contextlib
import hashlib
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination
from tests.support.observe_principal import signed

from hifi.pipe.model import Pipe
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port
from hifi_observe.watermark.statement import microseconds

pytestmark = [pytest.mark.more, pytest.mark.timeout(600)]
KEY = "write-key"
PER_S = 500
BATCH = 25
WARM_UP_S = 15
WITHIN_S = 60
CALM_S = 25
"""How long the mesh runs without faults, seconds."""


class Logs:
    """Acknowledgements of the sender's events, and their arrivals at the destination."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[float, str]] = []
        """Unix time after the 202, and id of the event, in the order of the times."""
        self.arrived: set[str] = set()
        self.stated_times: list[tuple[float, float]] = []
        """`settled_until` of each event `hifi.watermark` at the destination, and the truth when it came."""
        self._all_arrived = 0
        """Events at the beginning of `acknowledged` that have arrived."""

    def arrive(self, event: dict[str, Any]) -> None:
        """Record an event that the destination received."""
        if event["type"] == "hifi.watermark":
            self.stated_times.append(
                (microseconds(event["data"]["settled_until"]) / 1e6, self.settled_until_s())
            )
        else:
            self.arrived.add(event["id"])

    def settled_until_s(self) -> float:
        """The truth: when the first event was acknowledged that has not arrived; now, if there is none."""
        now_s = time.time()
        while self._all_arrived < len(self.acknowledged):
            at_s, event = self.acknowledged[self._all_arrived]
            if event not in self.arrived:
                return at_s
            self._all_arrived += 1
        return now_s


class WatermarkMesh:
    """A mesh with a sender and a destination."""

    def __init__(self, mesh: Mesh, logs: Logs, session: aiohttp.ClientSession) -> None:
        self.mesh, self.logs, self._session = mesh, logs, session
        self.statements: list[dict[str, Any]] = []
        self._number = 0

    async def send(self) -> None:
        """Send until cancelled; requests that fail are not sent again."""
        start_s, sent_count = time.monotonic(), 0
        async with asyncio.TaskGroup() as posts:
            while True:
                while sent_count < (time.monotonic() - start_s) * PER_S:
                    posts.create_task(self._post(range(self._number, self._number + BATCH)))
                    self._number += BATCH
                    sent_count += BATCH
                await asyncio.sleep(0.01)

    async def _post(self, numbers: range) -> None:
        events = [
            {
                "specversion": "1.0",
                "id": str(number),
                "source": "/test",
                "type": "made",
                "subject": f"key-{number % 200}",
                "data": {"number": number},
            }
            for number in numbers
        ]
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/cloudevents-batch+json"}
        url = f"{self.mesh.plan.url}/v1/pipes/flights/events"
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with self._session.post(url, data=orjson.dumps(events), headers=headers) as answer:
                if answer.status == 202:
                    await answer.read()
                    at_s = time.time()
                    self.logs.acknowledged += [(at_s, str(number)) for number in numbers]

    async def ask(self) -> dict[str, Any] | None:
        """The current statement; None: observe does not answer."""
        url = f"http://127.0.0.1:{self.mesh.plan.console_port}/api/v1/watermarks/flights"
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with self._session.get(url, headers=signed(self.mesh.plan), timeout=timeout) as answer:
                rows: list[dict[str, Any]] = (
                    (await answer.json())["watermarks"] if answer.status == 200 else []
                )
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return rows[0] if rows else None

    async def watch(self, for_s: float) -> list[float]:
        """Ask ten times a second and hold each statement against the logs; returns how far it is behind, seconds."""
        behind_s: list[float] = []
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            asked_s, statement = time.time(), await self.ask()
            truth_s = self.logs.settled_until_s()
            if statement is not None:
                self.statements.append(statement)
                settled_s = microseconds(statement["settled_until"]) / 1e6
                assert settled_s <= truth_s, f"{statement} at {time.time()}: an event of {truth_s} is open"
                is_valid = microseconds(statement["valid_until"]) / 1e6 >= asked_s
                assert is_valid or statement["verdict"] == "unknown", statement
                if settled_s:
                    behind_s.append(truth_s - settled_s)
            await asyncio.sleep(0.1)
        return behind_s


@contextlib.asynccontextmanager
async def watermark_mesh(kafka: str, folder: Path) -> AsyncIterator[WatermarkMesh]:
    logs = Logs()

    async def reply(request: ReceivedRequest) -> bytes:
        for event in orjson.loads(request.body):
            logs.arrive(event)
        return OK

    async with destination(reply) as books, aiohttp.ClientSession() as session:
        pipe = {
            "pipe": "flights",
            "source": {"keys": [{"sha256": hashlib.sha256(KEY.encode()).hexdigest()}]},
            "destinations": [{"name": "crm", "url": books.url, "batch": {"size": 50}, "watermark": "1s"}],
            "slo": {"p95": 100_000, "loss": 0},
        }
        plan = Plan(
            folder,
            stream=f"m{uuid.uuid4().hex[:8]}",
            kafka=kafka,
            partitions=2,
            scale={"observe": 1},
            port=(port := free_port()),
            console_port=free_port(but={port}),
        )
        mesh = Mesh(plan)
        mesh.prepare()
        await mesh.start([Pipe.model_validate(pipe)])
        try:
            await mesh.wait_ready(120)
            yield WatermarkMesh(mesh, logs, session)
        finally:
            await mesh.kill()


async def test_no_event_acknowledged_before_a_published_time_is_missing_while_ingest_and_egest_are_killed(
    kafka: str, tmp_path: Path
) -> None:
    async with watermark_mesh(kafka, tmp_path) as watched_mesh:
        load_task = asyncio.create_task(watched_mesh.send())
        await watched_mesh.watch(WARM_UP_S)
        calm_behind_s = await watched_mesh.watch(CALM_S)
        for name in ("ingest-1", "egest-1", "ingest-1"):
            await processes(watched_mesh.mesh)[name].kill()
            await watched_mesh.watch(12)
        load_task.cancel()
        await asyncio.wait([load_task])
        sent_s = time.time()
        async with asyncio.timeout(WITHIN_S):
            while microseconds((await watched_mesh.ask() or {}).get("settled_until")) / 1e6 < sent_s:
                await watched_mesh.watch(0.5)
        assert {event for _, event in watched_mesh.logs.acknowledged} <= watched_mesh.logs.arrived
        assert all(settled_s <= truth_s for settled_s, truth_s in watched_mesh.logs.stated_times), (
            watched_mesh.logs.stated_times
        )
        assert (
            max(settled_s for settled_s, _ in watched_mesh.logs.stated_times)
            > watched_mesh.logs.acknowledged[0][0]
        )
        assert len(watched_mesh.logs.stated_times) > CALM_S / 2
        p95_s = statistics.quantiles(calm_behind_s, n=20)[-1]
        rate = len(watched_mesh.logs.acknowledged) / (WARM_UP_S + CALM_S + 36)
        print(
            f"behind the truth: p50 {statistics.median(calm_behind_s):.2f} s, p95 {p95_s:.2f} s; {rate:.0f} events/s"
        )
        print(f"CPU seconds by service: {watched_mesh.mesh.fleet.cpu_seconds()}")
        assert len(watched_mesh.logs.acknowledged) > PER_S * CALM_S / 2


async def test_after_observe_stood_still_no_statement_that_has_expired_counts_and_none_is_wrong(
    kafka: str, tmp_path: Path
) -> None:
    async with watermark_mesh(kafka, tmp_path) as watched_mesh:
        load_task = asyncio.create_task(watched_mesh.send())
        async with asyncio.timeout(WITHIN_S):
            while (first_statement := await watched_mesh.ask()) is None or first_statement[
                "verdict"
            ] == "unknown":
                await watched_mesh.watch(0.5)
        observe = processes(watched_mesh.mesh)["observe-1"]
        observe.pause()
        await asyncio.sleep(8)
        observe.resume()
        watched_mesh.statements.clear()
        async with asyncio.timeout(WITHIN_S):
            while not watched_mesh.statements or watched_mesh.statements[-1]["verdict"] == "unknown":
                await watched_mesh.watch(0.5)
        await watched_mesh.watch(5)
        assert watched_mesh.statements[0]["settled_until"] >= first_statement["settled_until"]
        times = [statement["settled_until"] for statement in watched_mesh.statements]
        assert times == sorted(times)
        load_task.cancel()
        await asyncio.wait([load_task])
