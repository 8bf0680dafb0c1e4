"""Two real meshes behind two fronts, and a destination that counts what it gets."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from hifi.kafka.topics import Topics
from hifi_cli.mesh_state.colour_command import MeshOptions, mesh_command
from hifi_infra.colours.coloured_stream import ColouredPlan, ColouredStream
from hifi_infra.colours.haproxy_program import find_haproxy
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.runtime import ColourFolders
from hifi_infra.ports import free_port

WITHIN_S = 400


@dataclass
class Arrivals:
    """Requests of the destination: event id to their number."""

    counts: Counter[str] = field(default_factory=Counter)

    async def arrive(self, request: web.Request) -> web.Response:
        self.counts[request.headers["ce-id"]] += 1
        return web.Response()


async def until(condition: Callable[[], bool | Awaitable[bool]], within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.2)


def operations_of(stream: ColouredStream) -> ColourOperations:
    """The operations of `hifi colour` on a stream."""
    plan = stream.plan
    folders = {colour: plan.folder(colour) for colour in stream.meshes}
    return ColourOperations(stream.cluster.bootstrap, Topics(plan.stream), ColourFolders(folders), "test")


@contextlib.asynccontextmanager
async def coloured_meshes(
    folder: Path, write_pipes: Callable[[Path, str], None], *, split_above: float = 0
) -> AsyncIterator[tuple[ColouredStream, Arrivals]]:
    """Start both colours and wait until they are ready.

    Args:
        folder: for all data.
        write_pipes: writes the pipes into a folder, for the destination of this URL.
        split_above: events per second above which both colours share the requests.
    """
    find_haproxy()
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(but=set(ports)))
    arrivals = Arrivals()
    app = web.Application()
    app.router.add_post("/", arrivals.arrive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports[2]).start()
    pipes = folder / "pipes"
    pipes.mkdir()
    write_pipes(pipes, f"http://127.0.0.1:{ports[2]}/")
    env = {
        "HELLO_KEY": "secret",
        "HIFI_OBSERVE_STABLE_S": "5",
        "HIFI_ENRICH_DRIVER_MEMORY": "768m",
        "HIFI_COLLECT_BACKFILL_LAG_S": "60",  # sources are read at their rate on a busy machine, too
    }
    command = mesh_command("s", pipes, MeshOptions(partitions=2))
    plan = ColouredPlan(folder / "data", "s", (ports[0], ports[1]), command, split_above=split_above, env=env)
    stream = ColouredStream(plan)
    try:
        await stream.start()
        await stream.wait_ready(WITHIN_S)
        yield stream, arrivals
    finally:
        await stream.kill()
        await runner.cleanup()
