"""`python -m tests.soak`: sends recorded flights for minutes; exit 1 when observe differs from the request logs.

Sender and destination keep request logs of their own. The report also has each service's memory over the run, observe's
share of the CPU, and what observe reports for every minute.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from tests.support.closed_minutes import closed_minutes

from hifi_cli.demo.flights_demo import Demo
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.report import is_good, quantiles
from hifi_cli.demo.verify import RequestLogReader, read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_cli.options import TriggerOf
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import FLOW, Plan
from hifi_infra.ports import free_port
from hifi_observe.ledger.sketch import RELATIVE_ERROR

SAMPLE_S: Final = 5.0
RESTART_EVERY_S: Final = 30.0
SETTLE_S: Final = 10.0
CLOCKS_MS: Final = 2.0
"""Allowed difference: the time between a destination's answer and its arrival at egest."""
ROLLED: Final = "every service was restarted and scaled"
BOOKED: Final = (
    "accepted",
    "delivered",
    "lost",
    "duplicates",
    "mismatched",
    "refused",
    "unanswered",
    "copies",
    "outcomes",
    "lag_ms",
    "longest_pause_ms",
)
Disruption: TypeAlias = Callable[[Demo, list[str]], Coroutine[Any, Any, None]]
console = Console(stderr=True, highlight=False)


def main(
    minutes: Annotated[float, typer.Option(help="How long events are sent.")] = 10,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 500,
    trigger: TriggerOf = "auto",
    restart: Annotated[
        bool, typer.Option(help="Restart one service after another with SIGTERM, then with SIGKILL.")
    ] = False,
    observe: Annotated[int, typer.Option(help="Instances of observe.")] = 1,
    roll: Annotated[
        bool,
        typer.Option(
            help="Restart every instance once with SIGTERM, then scale each asyncio service to 3, 1 and back."
        ),
    ] = False,
    two: Annotated[bool, typer.Option(help="Two instances of every service.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
) -> None:
    """Run a mesh under load and compare observe with the request logs."""
    count = dict.fromkeys(FLOW, 2 if two else 1) | {"observe": observe, "lake": 0, "state": 0, "view": 0}
    if restart and roll:
        raise typer.BadParameter("--restart and --roll exclude each other")
    with tempfile.TemporaryDirectory(prefix="hifi-soak-") as folder:
        stage = Workspace.at(Path(folder))
        plan = Plan(
            Path(folder),
            port=stage.ingest_port,
            console_port=free_port(but={stage.ingest_port, stage.destination_port}),
            trigger=trigger,
            scale=count,
            env={**stage.secrets, "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)},
        )
        mesh = Mesh(plan)
        mesh.prepare()
        disturb = _restart if restart else _roll if roll else None
        outcome = asyncio.run(_soak(Demo(LoadTest(stage, mesh), rate, minutes * 60), disturb))
    if roll and ROLLED not in outcome["restarts"]:
        outcome["failures"].append("the events ended before every service was restarted and scaled")
    disruption = disturb.__name__.strip("_") if disturb else None
    line = {
        "minutes": minutes,
        "rate": rate,
        "trigger": trigger,
        "disturb": disruption,
        "scale": count,
        **outcome,
    }
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if line["failures"] else 0)


async def _soak(demo: Demo, disturb: Disruption | None) -> dict[str, Any]:
    memory: dict[str, list[int]] = defaultdict(list)
    restarts: list[str] = []
    tasks = [asyncio.create_task(_sample(demo, memory)), asyncio.create_task(_report_progress(demo))]
    if disturb:
        tasks.append(asyncio.create_task(disturb(demo, restarts)))
    try:
        numbers = await demo.run()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await demo.mesh.wait_ready(120)
        rows = await asyncio.to_thread(_closed_minutes, demo) if demo.mesh.plan.instances("observe") else []
        return _compared(numbers, rows, list(_percentiles(demo, rows)), memory, restarts)
    finally:
        for task in tasks:
            task.cancel()
        await demo.kill()


async def _sample(demo: Demo, memory: dict[str, list[int]]) -> None:
    while True:
        if 0 < demo.load_test.progress.sent < demo.load_test.progress.total:
            for name, rss_bytes in demo.mesh.rss_bytes().items():
                memory[name].append(rss_bytes)
        await asyncio.sleep(SAMPLE_S)


async def _report_progress(demo: Demo) -> None:
    while True:
        progress = demo.load_test.progress
        console.print(
            f"{progress.phase}: {progress.sent:,} of {progress.total:,} sent, {progress.arrived:,} arrived"
        )
        await asyncio.sleep(30)


async def _restart(demo: Demo, restarts: list[str]) -> None:
    """Restart service by service, a round with SIGTERM and a round with SIGKILL; the next once all are ready."""
    while demo.load_test.progress.phase != "sending":
        await asyncio.sleep(1)
    for restart_number in range(1_000):
        await asyncio.sleep(RESTART_EVERY_S)
        if demo.load_test.progress.phase != "sending":
            return
        instance = demo.mesh.instances[FLOW[restart_number % len(FLOW)]][0]
        number = signal.SIGKILL if (restart_number // len(FLOW)) % 2 else signal.SIGTERM
        began_s, before = time.monotonic(), instance.restarts
        os.kill(instance.process.pid, number)
        while instance.restarts == before:
            await asyncio.sleep(0.1)
        with contextlib.suppress(Exception):
            await demo.mesh.wait_ready(90)
        restarts.append(
            f"{number.name} {instance.name}, ready again after {time.monotonic() - began_s:.1f} s"
        )
        console.print(restarts[-1])


async def _roll(demo: Demo, restarts: list[str]) -> None:
    """Restart like an upgrade: SIGTERM to each instance in turn; then scale each asyncio service to 3, 1 and back."""

    async def note_ready(description: str, began_s: float) -> None:
        await demo.mesh.wait_ready(90)
        restarts.append(f"{description}, all ready after {time.monotonic() - began_s:.1f} s")
        console.print(restarts[-1])

    while demo.load_test.progress.phase != "sending":
        await asyncio.sleep(1)
    for service in FLOW:
        for instance in list(demo.mesh.instances[service]):
            began_s, before = time.monotonic(), instance.restarts
            os.kill(instance.process.pid, signal.SIGTERM)
            while instance.restarts == before:
                await asyncio.sleep(0.1)
            await note_ready(f"SIGTERM {instance.name}", began_s)
    for service in (name for name in FLOW if name != "enrich"):
        for count in (3, 1, demo.mesh.plan.instances(service)):
            began_s = time.monotonic()
            await demo.mesh.scale(service, count)
            await note_ready(f"{service} to {count}", began_s)
    restarts.append(ROLLED)


def _closed_minutes(demo: Demo) -> list[dict[str, Any]]:
    """Observe's record of every minute of the run, once all of them are closed."""
    assert demo.mesh.plan.console
    last = (
        max(sent_event.answered_ns for sent_event in read_send_log(demo.workspace.send_log).values())
        // 60_000_000_000
    )
    rows, reason = closed_minutes(demo.mesh.plan, "flights", last)
    if reason:
        console.print(reason)
    return rows


def _percentiles(demo: Demo, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each minute and percentile: milliseconds by the request logs and by observe."""
    sent_ns_by_id = {
        name: sent_event.sent_ns for name, sent_event in read_send_log(demo.workspace.send_log).items()
    }
    lags: dict[int, list[float]] = defaultdict(list)
    seen_ids = set()
    for arrival in RequestLogReader(demo.workspace.request_log).read():
        if arrival.path == "/departures" and arrival.id in sent_ns_by_id and arrival.id not in seen_ids:
            seen_ids.add(arrival.id)
            sent_ns = sent_ns_by_id[arrival.id]
            lags[sent_ns // 60_000_000_000].append((arrival.answered_ns - sent_ns) / 1e6)
    for row in rows:
        reported_lags = row["lags"].get("end.event/departures")
        if reported_lags and lags[row["minute"]]:
            booked = quantiles(lags[row["minute"]])
            for name in ("p50", "p95", "p99"):
                observed_ms, booked_ms = reported_lags[name] / 1000, booked[name] or 0.0
                counts = len(lags[row["minute"]]), reported_lags["count"]
                yield {
                    "minute": row["minute"],
                    "of": name,
                    "n": counts,
                    "books_ms": booked_ms,
                    "observe_ms": round(observed_ms, 2),
                }


def _compared(
    numbers: Mapping[str, Any],
    rows: list[dict[str, Any]],
    percentiles: list[dict[str, Any]],
    memory: Mapping[str, list[int]],
    restarts: list[str],
) -> dict[str, Any]:
    observed_figures = {
        name: sum(row[name] for row in rows)
        for name in ("in", "delivered", "duplicates", "lost", "dead", "waiting", "in_flight", "late")
    }
    requests = sum(numbers["deliveries"].values())
    failures = []
    if not is_good(numbers) and not restarts:
        failures.append("the request logs of the demo differ")
    if numbers["lost"] or numbers["mismatched"]:
        failures.append(f"lost {numbers['lost']}, mismatched {numbers['mismatched']}")
    copies = {topic: count for topic, count in numbers["copies"].items() if topic != "enriched"}
    if ROLLED in restarts and (numbers["duplicates"] or copies):
        failures.append(f"an upgrade made {numbers['duplicates']} duplicates and copies: {copies}")
    if rows:
        # A request has no receipt when egest was killed before it received the answer.
        expected = {"in": numbers["accepted"], "lost": 0, "dead": 0, "waiting": 0, "in_flight": 0}
        failures += [
            f"observe reports {name} {observed_figures[name]:,} instead of {n:,}"
            for name, n in expected.items()
            if observed_figures[name] != n
        ]
        if observed_figures["delivered"] != requests - numbers["duplicates"]:
            failures.append(
                f"observe reports delivered {observed_figures['delivered']:,}, "
                f"the request logs {requests - numbers['duplicates']:,}"
            )
        failures += [
            f"minute {percentile['minute']}: observe reports {percentile['of']} {percentile['observe_ms']} ms, "
            f"the request logs {percentile['books_ms']}"
            for percentile in percentiles
            if percentile["n"][0] == percentile["n"][1]
            and abs(percentile["books_ms"] - percentile["observe_ms"])
            > 2 * RELATIVE_ERROR * percentile["books_ms"] + CLOCKS_MS
        ]
    cpu_seconds = numbers["cpu_seconds"]
    mesh_s = sum(seconds for name, seconds in cpu_seconds.items() if name != "observe")
    return {
        "failures": failures,
        "books": {name: numbers[name] for name in BOOKED},
        "requests": requests,
        "observe": observed_figures,
        "states": [(row["minute"], row["state"], *row["causes"]) for row in rows],
        "observe_cpu_share": round(cpu_seconds.get("observe", 0) / mesh_s, 3) if mesh_s else None,
        "cpu_seconds": cpu_seconds,
        "percentiles": percentiles,
        "worst_difference_ms": max(
            (abs(percentile["books_ms"] - percentile["observe_ms"]) for percentile in percentiles),
            default=None,
        ),
        "memory_mib": {name: _memory(rss_bytes) for name, rss_bytes in memory.items()},
        "restarts": restarts,
    }


def _memory(rss_bytes: list[int]) -> dict[str, float]:
    """MiB: medians of the second and of the last fifth of the run, and the maximum."""
    fifth = max(1, len(rss_bytes) // 5)
    second, last = sorted(rss_bytes[fifth : 2 * fifth] or rss_bytes), sorted(rss_bytes[-fifth:])
    values = {
        "second fifth": second[len(second) // 2],
        "last fifth": last[len(last) // 2],
        "most": max(rss_bytes),
    }
    return {name: round(value / 2**20, 1) for name, value in values.items()}


if __name__ == "__main__":
    typer.run(main)
