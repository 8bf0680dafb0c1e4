"""A real mesh and two instances of observe: lost events are reported, waiting ones are not; nothing needs observe."""

import asyncio
import contextlib
import hashlib
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, FakeDestination, ReceivedRequest, answer, destination
from tests.support.observe import dashboard
from tests.support.observe_principal import signed

from hifi.pipe.model import Pipe
from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, command
from hifi_infra.ports import free_port

pytestmark = pytest.mark.timeout(500)
KEY = "write-key"
TRACE = "00-{:032x}-00f067aa0ba902b7-01"
BACK_AFTER_S = 3
WITHIN_S = 150


class Running:
    """A mesh, its sender and its destination, each with books of its own."""

    def __init__(self, mesh: Mesh, books: FakeDestination, session: aiohttp.ClientSession) -> None:
        self.mesh, self.books, self.session = mesh, books, session
        self.accepted: dict[str, int] = {}
        """Id to the minute of the event's own time."""

    async def send(self, name: str, **extra_headers: str) -> None:
        sent_s = time.time()
        headers = {
            "authorization": f"Bearer {KEY}",
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": "/test",
            "ce-type": "made",
            "ce-time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(sent_s))}Z",
            "content-type": "application/json",
            **extra_headers,
        }
        url = f"{self.mesh.plan.url}/v1/pipes/flights/events"
        async with self.session.post(url, data=b'{"a": 1}', headers=headers) as response:
            assert response.status == 202, await response.text()
        self.accepted[name] = int(sent_s) // 60

    async def steadily(self, prefix: str, condition: Callable[[], bool], per_s: float = 20) -> list[str]:
        """Send until a condition holds; returns the ids."""
        names: list[str] = []
        while not condition():
            names.append(f"{prefix}-{len(names)}")
            await self.send(names[-1])
            await asyncio.sleep(1 / per_s)
        return names

    def consoles(self) -> list[str]:
        """URLs of the instances of observe, from their logs: only the first one prints its URL."""
        logs = [process.log.read_bytes().splitlines() for process in self.mesh.instances["observe"]]
        start_lines = [[line for line in log if b'"console-started"' in line][-1] for log in logs]
        return [orjson.loads(line)["url"].rstrip("/") for line in start_lines]

    async def minutes(self, url: str) -> dict[int, dict[str, Any]]:
        async with self.session.get(
            f"{url}/api/v1/pipes/flights/minutes?last=30", headers=signed(self.mesh.plan)
        ) as response:
            minutes = (await response.json())["minutes"] if response.status == 200 else []
        return {minute_figures["minute"]: minute_figures for minute_figures in minutes}

    async def lost(self, url: str, minute: int) -> list[dict[str, Any]]:
        async with self.session.get(
            f"{url}/api/v1/pipes/flights/minutes/{minute}/lost", headers=signed(self.mesh.plan)
        ) as response:
            return list((await response.json())["lost"])

    async def counts_when(
        self, names: list[str], condition: Callable[[Counter[str]], bool]
    ) -> list[Counter[str]]:
        """The sums of these events' minutes by every instance, as soon as all of them meet the condition."""
        minutes = {self.accepted[name] for name in names}
        sums: list[Counter[str]] = []
        try:
            async with asyncio.timeout(WITHIN_S):
                while not sums or not all(map(condition, sums)):
                    sums = [self.sum(await self.minutes(url), minutes) for url in self.consoles()]
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"it stayed {sums}; closed minutes wanted: {minutes}")
        return sums

    def sum(self, rows: dict[int, dict[str, Any]], minutes: set[int]) -> Counter[str]:
        figure_names = ("in", "delivered", "in_flight", "waiting", "lost", "dead", "duplicates")
        return Counter(
            {
                name: sum(row[name] for minute, row in rows.items() if minute in minutes)
                for name in figure_names
            }
        )

    def count(self, names: list[str], prefix: str = "") -> int:
        """Number of accepted events with the prefix in the minutes of these events."""
        minutes = {self.accepted[name] for name in names}
        return sum(name.startswith(prefix) and minute in minutes for name, minute in self.accepted.items())

    async def arrived(self, names: list[str]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not set(names) <= set(self.books.ids):
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(kafka: str, folder: Path) -> AsyncIterator[Running]:
    first_seen_s: dict[str, float] = {}

    async def reply(request: ReceivedRequest) -> bytes:
        (name,) = request.ids
        since_s = time.monotonic() - first_seen_s.setdefault(name, time.monotonic())
        return answer(503) if name.startswith(("forgotten", "late")) and since_s < BACK_AFTER_S else OK

    async with destination(reply) as books, aiohttp.ClientSession() as session:
        pipe = {
            "pipe": "flights",
            "source": {"keys": [{"sha256": hashlib.sha256(KEY.encode()).hexdigest()}]},
            "destinations": [{"name": "crm", "url": books.url}],
            "slo": {"p95": 100_000, "loss": 0},
        }
        plan = Plan(
            folder,
            stream=f"m{uuid.uuid4().hex[:8]}",
            kafka=kafka,
            partitions=2,
            port=(port := free_port()),
            console_port=free_port(but={port}),
            scale={"observe": 2},
            env={"HIFI_OBSERVE_SETTLE_S": "2", "HIFI_OBSERVE_AMEND_INTERVAL_S": "0.5"},
        )
        mesh = Mesh(plan)
        mesh.prepare()
        await mesh.start([Pipe.model_validate(pipe)])
        try:
            await mesh.wait_ready(120)
            yield Running(mesh, books, session)
        finally:
            await mesh.kill()


@pytest.mark.more  # faster: tests/services/observe/ledger; `make chaos-quick` asks observe what was lost
async def test_only_lost_events_are_reported_lost_and_the_mesh_runs_without_observe(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrier_command = [
        sys.executable,
        "-P",
        str(Path(__file__).parents[2] / "support" / "programs" / "forgetful_retrier.py"),
    ]
    monkeypatch.setattr(
        fleet, "command", lambda name: retrier_command if name == "retrier" else command(name)
    )
    monkeypatch.setenv("HIFI_TIERS", "1s,2s,5s")
    async with running(kafka, tmp_path) as running_mesh:
        await the_retrier_forgets(running_mesh)
        await observe_is_killed(running_mesh)
        await enrich_stands_still(running_mesh)
        await the_dashboard_finds_its_metrics(running_mesh)
        ids = Counter(name for name in running_mesh.books.ids if not name.startswith(("forgotten", "late")))
        assert set(ids.values()) == {1}


async def the_retrier_forgets(running_mesh: Running) -> None:
    for number, kind in enumerate(("fine", "late") * 8):
        trace = TRACE.format(number + 1)
        await running_mesh.send(
            f"{kind}-{number}", **{"traceparent" if number % 4 < 2 else "ce-traceparent": trace}
        )
    for name in ("forgotten-1", "forgotten-2"):
        await running_mesh.send(name)
    event_ids = list(running_mesh.accepted)
    counts = await running_mesh.counts_when(
        event_ids,
        lambda figures: (
            (figures["in"], figures["lost"], figures["waiting"] + figures["in_flight"]) == (18, 2, 0)
        ),
    )
    for request in running_mesh.books.requests:
        kind, position = request.headers["ce-id"].split("-")
        if kind != "forgotten":
            assert request.headers["traceparent"] == TRACE.format(int(position) + 1)
    assert sum(name.startswith("late") for name in running_mesh.books.ids) > 8, "retries have it too"
    assert len(counts) == 2
    assert counts[0] == counts[1] == Counter({"in": 18, "delivered": 16, "lost": 2})
    for url in running_mesh.consoles():
        lost_events = [
            lost_event
            for minute in set(running_mesh.accepted.values())
            for lost_event in await running_mesh.lost(url, minute)
        ]
        assert sorted(
            (lost_event["hop"], lost_event["destination"], lost_event["ce_id"]) for lost_event in lost_events
        ) == [
            ("retrier", "crm", "forgotten-1"),
            ("retrier", "crm", "forgotten-2"),
        ]


async def observe_is_killed(running_mesh: Running) -> None:
    start_s = time.monotonic()
    for process in running_mesh.mesh.instances["observe"]:
        await process.kill()
    event_ids = await running_mesh.steadily("unseen", lambda: time.monotonic() > start_s + 5)
    await running_mesh.arrived(event_ids)
    await running_mesh.mesh.scale("observe", 0)
    await running_mesh.mesh.scale("observe", 2)
    await running_mesh.mesh.wait_ready(60)


async def enrich_stands_still(running_mesh: Running) -> None:
    """A backlog of a minute, of which whole minutes close: in flight, never lost; delivered when enrich is back."""
    await running_mesh.mesh.scale("enrich", 0)
    end_s = time.monotonic() + 60
    event_ids = await running_mesh.steadily("held", lambda: time.monotonic() > end_s)
    first_names = [
        name for name in event_ids if running_mesh.accepted[name] == running_mesh.accepted[event_ids[0]]
    ]
    accepted_count, lost_count = running_mesh.count(first_names), running_mesh.count(first_names, "forgotten")
    counts = await running_mesh.counts_when(
        first_names,
        lambda figures: (figures["in"], figures["in_flight"]) == (accepted_count, len(first_names)),
    )
    assert {figures["lost"] for figures in counts} == {lost_count}
    await running_mesh.mesh.scale("enrich", 1)
    max_counts: Counter[str] = Counter()
    watch_task = asyncio.create_task(
        watch(running_mesh, {running_mesh.accepted[name] for name in event_ids}, max_counts)
    )
    await running_mesh.arrived(event_ids)
    accepted_count, lost_count = running_mesh.count(event_ids), running_mesh.count(event_ids, "forgotten")
    counts = await running_mesh.counts_when(
        event_ids,
        lambda figures: (
            (figures["in"], figures["delivered"]) == (accepted_count, accepted_count - lost_count)
        ),
    )
    watch_task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch_task
    assert counts[0] == counts[1]
    assert (counts[0]["in_flight"], counts[0]["lost"], max_counts["lost"]) == (0, lost_count, lost_count)


async def watch(running_mesh: Running, minutes: set[int], max_counts: Counter[str]) -> None:
    """Keep the largest figures that any instance reports of these minutes, until cancelled."""
    while True:
        for url in running_mesh.consoles():
            max_counts |= running_mesh.sum(await running_mesh.minutes(url), minutes)
        await asyncio.sleep(0.1)


async def the_dashboard_finds_its_metrics(running_mesh: Running) -> None:
    exported_metrics = set()
    for process in running_mesh.mesh.all():
        async with running_mesh.session.get(f"http://127.0.0.1:{process.spec.port}/metrics") as response:
            exported_metrics |= {
                line.split()[2] for line in (await response.text()).splitlines() if "# TYPE" in line
            }
    metrics = {name for query, _ in dashboard.queries() for name in dashboard.metrics(query)}
    assert {name.removesuffix("_bucket") for name in metrics} <= exported_metrics
