"""Two real meshes behind two fronts: a burst is split and joined, and a front that was killed refuses nobody."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from hifi.control.action import ActionKind
from hifi.control.colours import WHOLE_SHARE
from hifi.control.steps import ActionLog
from hifi_cli.mesh_state.colour_command import MeshOptions, mesh_command
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.haproxy import find_haproxy
from hifi_infra.ports import free_port

WITHIN_S = 400
PIPE = """\
pipe: hello
source:
  keys: [{{env: HELLO_KEY}}]
destinations:
  - name: webhook
    url: http://127.0.0.1:{port}/
slo: {{p95: 60s}}
"""


class Load:
    """Sends events to whichever front accepts them, and counts what the destination gets."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.accepted: list[str] = []
        self.arrived: Counter[str] = Counter()
        self.per_s = 0.0
        self.refused = 0

    async def arrive(self, request: web.Request) -> web.Response:
        self.arrived[request.headers["ce-id"]] += 1
        return web.Response()

    async def send(self) -> None:
        """Send until cancelled, each event to the first front, or the second one if that refuses."""
        async with aiohttp.ClientSession() as client:
            for number in itertools.count():
                await asyncio.sleep(1 / self.per_s)
                await self._send(client, f"e{number}")

    async def _send(self, client: aiohttp.ClientSession, identifier: str) -> None:
        headers = {
            "Authorization": "Bearer secret",
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": identifier,
            "ce-source": "/test",
            "ce-type": "test",
            "ce-partitionkey": identifier,
        }
        for url in self.urls:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with client.post(f"{url}/v1/events", data=b"{}", headers=headers) as answer:
                    if answer.status == 202:
                        self.accepted.append(identifier)
                    else:
                        self.refused += 1
                    return
        self.refused += 1


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.2)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[ColouredStream, Load]]:
    find_haproxy()
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(but=set(ports)))
    load = Load([f"http://127.0.0.1:{port}" for port in ports[:2]])
    app = web.Application()
    app.router.add_post("/", load.arrive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports[2]).start()
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    (pipes / "hello.yaml").write_text(PIPE.format(port=ports[2]))
    env = {"HELLO_KEY": "secret", "HIFI_OBSERVE_STABLE_S": "5", "HIFI_ENRICH_DRIVER_MEMORY": "768m"}
    command = mesh_command("s", pipes, MeshOptions(partitions=2))
    stream = ColouredStream(
        ColouredPlan(tmp_path / "data", "s", (ports[0], ports[1]), command, split_above=20, env=env)
    )
    try:
        await stream.start()
        await stream.wait_ready(WITHIN_S)
        yield stream, load
    finally:
        await stream.kill()
        await runner.cleanup()


@pytest.mark.more
@pytest.mark.timeout(1500)
async def test_a_burst_is_split_and_joined_and_a_front_that_dies_is_replaced_without_a_lost_or_refused_event(
    running: tuple[ColouredStream, Load],
) -> None:
    stream, load = running
    load.per_s = 35
    sending = asyncio.create_task(load.send())
    await until(lambda: stream.colours.shares == {"blue": WHOLE_SHARE // 2, "green": WHOLE_SHARE // 2})

    first, second = stream.fronts
    await first.kill()
    await until(lambda: first.running, 30)
    for front in (first, second):
        assert await front.shares() == stream.colours.shares

    load.per_s = 5
    await until(lambda: stream.colours.shares == {"blue": WHOLE_SHARE, "green": 0})
    sending.cancel()
    await until(lambda: set(load.accepted) <= load.arrived.keys())
    assert load.refused == 0
    assert set(load.arrived.values()) == {1}

    log = ActionLog(stream.cluster.bootstrap, stream.plan.control.actions, "test")
    await log.start()
    await log.stop()
    assert [one.kind for one in log.history.newest_first][:2] == [ActionKind.SCALE_IN, ActionKind.SCALE_OUT]
