"""Speed of each connector's own step, beside a loop that does the same by hand (`bench/peers/bare/*_loop.py`).

`python bench/connectors.py [STEP...] [--rounds N] [--report FILE]` prints the rates of each round and the median of
their ratios, and fails below 0.7. The service and the loop read the same records, one after the other. The rate is that
of the last 80 % of the events, by the times at which they were written.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import machine_info
import orjson
import uvloop
from aiohttp import web
from connector_steps import (
    DATABASE_URL,
    DESTINATION_EVENTS,
    DESTINATIONS,
    SOURCE_EVENTS,
    SOURCES,
    Step,
    StepSystems,
    prepare_step,
)
from connector_targets import Target, last_rate
from whole_way import whole_way

from hifi.kafka.topics import Topics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import InstanceSpec, Plan, command, environment
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PostgresServer
from hifi_infra.process.process import Process

GOAL: Final = 0.7
LIMIT_S: Final = 240.0
STEPS: Final = (*SOURCES, *DESTINATIONS)


async def rate(target: Target, process: Process, events: int) -> tuple[float, float]:
    """Run a program until all events are written; events a second, and its CPU time for each, microseconds.

    Raises:
        TimeoutError: not all are in time.
        RuntimeError: events were written more than once.
    """
    await process.start()
    warm_state: tuple[int, float] | None = None
    try:
        until_s = time.monotonic() + LIMIT_S
        while (count := await target.count()) < events or len(await target.times_s()) < events:
            if warm_state is None and count:
                warm_state = count, process.cpu_seconds()  # without its start
            if time.monotonic() > until_s or not process.running:
                raise TimeoutError(f"not all events are written: {process.log}\n{process.tail(5)}")
            await asyncio.sleep(0.2)
        times = await target.times_s()
        count, cpu_s = warm_state or (0, 0.0)
        cpu_s = process.cpu_seconds() - cpu_s
    finally:
        await process.stop()
    if len(times) != events:
        raise RuntimeError(f"{len(times):,} events were written instead of {events:,}")
    return last_rate(times), cpu_s / max(1, events - count) * 1e6


async def measure(step: Step, systems: StepSystems, topics: Topics) -> dict[str, float]:
    """Rate and CPU of the service and of the loop."""
    folder = systems.folder / topics.stream
    folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(folder, stream=topics.stream, env={DATABASE_URL: systems.database})
    env = environment(plan, InstanceSpec(step.service, 1, free_port()), systems.kafka, None)
    service = Process(step.service, command(step.service), env=env, log=folder / f"{step.service}.log")
    hifi_per_s, own_cpu_us = await rate(step.target(), service, step.events)
    loop, loop_cpu_us = await rate(
        step.loop_target(), Process("loop", step.loop, env=os.environ, log=folder / "loop.log"), step.events
    )
    return {
        "hifi_per_s": round(hifi_per_s),
        "loop_per_s": round(loop),
        "ratio": round(hifi_per_s / loop, 3),
        "hifi_cpu_us": round(own_cpu_us, 1),
        "loop_cpu_us": round(loop_cpu_us, 1),
    }


async def run(names: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """The figures of each step and round."""
    figures_by_step: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(
        prefix="hifi-bench-connectors-", ignore_cleanup_errors=True
    ) as temporary_folder:
        folder = Path(temporary_folder)
        cluster, database = (
            KafkaCluster(folder / "kafka"),
            PostgresServer("PostgreSQL", folder / "postgres.log"),
        )
        try:
            await asyncio.gather(cluster.start(), database.start())
            async with connect_answers() as connect:
                systems = StepSystems(cluster.bootstrap, connect, database.url, folder)
                for number in range(1, rounds + 1):
                    for index, name in enumerate(names):
                        topics = Topics(f"bench{number}x{index}")
                        step = await prepare_step(name, systems, topics)
                        figures = await measure(step, systems, topics)
                        figures_by_step[name].append(figures)
                        print(f"round {number}: {name}: {line(figures)}", flush=True)
        finally:
            await cluster.kill()
            await database.remove()
    return figures_by_step


def line(figures: Mapping[str, float]) -> str:
    """The figures of a step in words."""
    return (
        f"hifi {figures['hifi_per_s']:,.0f} events/s ({figures['hifi_cpu_us']:.0f} µs of CPU each), by hand "
        f"{figures['loop_per_s']:,.0f} events/s ({figures['loop_cpu_us']:.0f} µs), ratio {figures['ratio']:.2f}"
    )


@asynccontextmanager
async def connect_answers() -> AsyncIterator[str]:
    """A program that answers as Kafka Connect does whose connector runs."""

    async def status(_: web.Request) -> web.Response:
        return web.json_response({"connector": {"state": "RUNNING"}, "tasks": []})

    async def config(request: web.Request) -> web.Response:
        return web.json_response(await request.json() if request.method == "PUT" else {})

    app = web.Application()
    app.router.add_get("/connectors/{name}/status", status)
    app.router.add_route("*", "/connectors/{name}/config", config)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def main() -> None:
    """Measure, print, and add to the report; exit with 1 if a median ratio is below the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", nargs="*", metavar="STEP", help=f"of {STEPS}; default: all")
    parser.add_argument("--whole", action="store_true", help="measure the whole way, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--report", type=Path, help="a line of JSON is added to this file")
    options = parser.parse_args()
    os.environ.setdefault("HIFI_EGRESS_ALLOW", "loopback")  # as commands of hifi do
    machine: dict[str, Any] = machine_info.describe()
    figures_by_step = uvloop.run(run(options.step or list(STEPS), options.rounds))
    medians = {
        name: statistics.median(run_figures["ratio"] for run_figures in figures)
        for name, figures in figures_by_step.items()
    }
    for name, ratio in medians.items():
        print(f"{name}: median ratio {ratio:.2f}, goal {GOAL}")
    whole_way_per_s = None
    if options.whole:
        with tempfile.TemporaryDirectory(prefix="hifi-bench-way-", ignore_cleanup_errors=True) as folder:
            whole_way_per_s = round(uvloop.run(whole_way(Path(folder))))
        print(f"whole way, from topic to topic: {whole_way_per_s:,} events/s")
    if options.report:
        report = {
            "whole_way_per_s": whole_way_per_s,
            "machine": machine,
            "events": {"sources": SOURCE_EVENTS, "destinations": DESTINATION_EVENTS},
            "rounds": options.rounds,
            "steps": figures_by_step,
            "medians": medians,
        }
        with options.report.open("ab") as file:
            file.write(orjson.dumps(report, option=orjson.OPT_APPEND_NEWLINE))
    if min(medians.values()) < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main()
