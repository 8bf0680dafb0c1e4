"""`python -m tests.chaos`: injects faults into a mesh under load and checks its promises; exit 1 when one is broken."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from tests.chaos.chaos_run import (
    HERE,
    KEY,
    SETTLE_S,
    TIERS,
    compare_logs,
    compare_with_observe,
    console,
    publish,
    read_lines,
    start_sender,
    until,
    wait_for_deliveries,
)
from tests.chaos.fault_tools import FaultTools, prepared_tools, why_impossible
from tests.chaos.faults import FAULTS, FaultContext, wait_until_ready
from tests.chaos.verification import FaultWindow, LogLines, fault_kind

from hifi_cli.options import TriggerOf
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port


def main(
    seconds: Annotated[float, typer.Option(help="How long new faults are started, seconds.")] = 120,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 500,
    seed: Annotated[int | None, typer.Option(help="Seed of an earlier run, to repeat its faults.")] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Inject only this fault, `NAME`, or N times, `NAME=N`; may be repeated. Faults: {', '.join(FAULTS)}."
        ),
    ] = None,
    brokers: Annotated[int, typer.Option(help="1 or 3.")] = 3,
    secure: Annotated[
        bool, typer.Option(help="Kafka with TLS, passwords and ACLs; further faults replace credentials.")
    ] = False,
    trigger: TriggerOf = "auto",
    freeze: Annotated[float, typer.Option(help="Longest freeze, seconds.")] = 15,
    within: Annotated[
        float, typer.Option(help="Fail when a service is not ready this long after a fault, seconds.")
    ] = 30,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the mesh and the request logs; default: a temporary one.")
    ] = None,
) -> None:
    """Run a mesh under load, inject faults, and compare the request logs."""
    seed = random.randrange(1_000_000) if seed is None else seed
    injections = _injections(faults or [], secure=secure)
    os.environ["HIFI_TIERS"] = TIERS  # of the topics and of every service
    kind = f"{brokers} {'secured ' if secure else ''}broker(s)"
    console.print(f"seed {seed}: {rate:g} events/s, faults for {seconds:g} s, {kind}, {trigger}")
    with tempfile.TemporaryDirectory(prefix="hifi-chaos-") as temporary:
        folder = data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with prepared_tools(folder, folder / "mesh" / "kafka", brokers, list(injections)) as tools:
            port = free_port()
            plan = Plan(
                data=folder / "mesh",
                brokers=brokers,
                secure=secure,
                port=port,
                console_port=free_port(but={port}),
                trigger=trigger,
                scale={"ingest": 2, "normalize": 2, "enrich": 2, "egest": 2, "retrier": 2, "observe": 1},
                env={"CHAOS_KEY": KEY, "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)},
                own_env=tools.own_env,
            )
            outcome = asyncio.run(
                _run(plan, tools, folder, random.Random(seed), seconds, rate, injections, freeze, within)
            )
    line = {
        "seed": seed,
        "seconds": seconds,
        "rate": rate,
        "brokers": brokers,
        "secure": secure,
        "trigger": trigger,
    }
    line |= outcome
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if outcome["failures"] else 0)


def _injections(faults: Sequence[str], *, secure: bool) -> dict[str, int]:
    """Fault to number of injections, 0: as often as time allows. Without names: every fault possible here."""
    injections = {}
    for argument in faults or [name for name in FAULTS if why_impossible(name, secure=secure) is None]:
        name, _, times = argument.partition("=")
        if name not in FAULTS or (times and not times.isdecimal()):
            raise typer.BadParameter(
                f"{argument}: expected NAME or NAME=N; the faults are {', '.join(FAULTS)}"
            )
        if reason := why_impossible(name, secure=secure):
            raise typer.BadParameter(f"{name} is not possible here: {reason}")
        injections[name] = int(times or 0)
    return injections


async def _run(
    plan: Plan,
    tools: FaultTools,
    folder: Path,
    random_source: random.Random,
    seconds: float,
    rate: float,
    injections: Mapping[str, int],
    freeze_s: float,
    within_s: float,
) -> dict[str, Any]:
    port = free_port(but={plan.port, plan.console_port})
    logs = {name: folder / f"{name}.ndjson" for name in ("sent", "arrived")}
    mesh = Mesh(plan)
    mesh.prepare()
    destination = subprocess.Popen(
        [sys.executable, str(HERE / "faulty_destination.py"), str(port), str(logs["arrived"])]
    )
    sender: subprocess.Popen[bytes] | None = None
    windows: list[FaultWindow] = []
    try:
        async with mesh:
            await mesh.wait_ready(120)
            await publish(mesh, port)
            sender = start_sender(mesh, rate, logs["sent"])
            await until(lambda: len(read_lines(logs["arrived"])) > rate, 60, "the first events arrive")
            memory_before = mesh.rss_bytes()
            context = FaultContext(mesh, tools, f"http://127.0.0.1:{port}", random_source, freeze_s)
            windows = await _inject_faults(context, seconds, injections)
            sender.send_signal(signal.SIGTERM)
            await asyncio.to_thread(sender.wait, 60)
            drained_s = await wait_for_deliveries(mesh, logs)
            first_s = _first_arrivals(read_lines(logs["arrived"]))
            windows = [_with_recovery(window, read_lines(logs["sent"]), first_s) for window in windows]
            result = await compare_logs(mesh, logs, windows)
            memory_after = mesh.rss_bytes()
            observed = await compare_with_observe(mesh, logs, windows, result)
            failures = result.failures + [
                f"{window.target} was not ready {within_s:g} s after {window.fault}: {window.ready_again_s} s"
                for window in windows
                if window.ready_again_s is None or window.ready_again_s > within_s
            ]
            return result.as_json() | {
                "failures": failures,
                "drained_s": round(drained_s, 1),
                "rss_bytes": {"before": memory_before, "after": memory_after},
                "observe": observed,
                "made": dict(Counter(fault_kind(window.fault, window.target) for window in windows)),
                "faults": [asdict(window) for window in windows],
            }
    finally:
        for process in (sender, destination):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


async def _inject_faults(
    context: FaultContext, seconds: float, injections: Mapping[str, int]
) -> list[FaultWindow]:
    """Inject random faults one after another; the mesh is ready again before the next.

    `injections`: fault to number of injections, 0: as often as time allows.
    """
    windows: list[FaultWindow] = []
    end_s = time.monotonic() + seconds
    queue = [name for name, times in injections.items() for _ in range(times)]
    context.random_source.shuffle(queue)
    endless = [name for name, times in injections.items() if not times]
    while time.monotonic() < end_s:
        if not queue:
            if not endless:
                break
            queue = context.random_source.sample(endless, len(endless))
        name = queue.pop()
        window = await FAULTS[name](context)
        try:
            window = replace(window, ready_again_s=round(await wait_until_ready(context.mesh), 1))
        except TimeoutError:
            console.print(f"not ready again after {name}:\n" + "\n".join(context.mesh.reasons()))
        windows.append(window)
        console.print(
            f"{window.fault} {window.target} for {window.end_s - window.start_s:.1f} s, "
            f"ready again after {window.ready_again_s} s"
        )
        await asyncio.sleep(context.random_source.uniform(1, 4))
    return windows


def _with_recovery(window: FaultWindow, sent_lines: LogLines, first_s: Mapping[str, float]) -> FaultWindow:
    """The window with the time until the first event sent after it arrived."""
    arrivals = [
        first_s[line["id"]] for line in sent_lines if line["at_s"] >= window.end_s and line["id"] in first_s
    ]
    return replace(window, flowing_again_s=round(min(arrivals) - window.end_s, 2) if arrivals else None)


def _first_arrivals(arrived_lines: LogLines) -> dict[str, float]:
    """Event id to its first arrival at the steady destination, wall time in seconds."""
    first_s: dict[str, float] = {}
    for line in arrived_lines:
        if line["to"] == "steady" and line["clean"]:
            first_s.setdefault(line["id"], line["at_s"])
    return first_s


if __name__ == "__main__":
    typer.run(main)
