"""`python -m tests.chaos.control_plane`: kills and freezes the services of a control plane while they work, under load.

Exit 1 when an event is lost or repeated, or when something stays half done.
"""

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
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any, Final

import typer
from tests.chaos.chaos_run import (
    HERE,
    KEY,
    SETTLE_S,
    TIERS,
    chaos_pipe,
    compare_logs,
    compare_with_observe,
    console,
    read_lines,
    start_sender,
    until,
    wait_for_deliveries,
)
from tests.chaos.control_work import SCALED, ControlWork
from tests.chaos.faults import wait_until_ready
from tests.chaos.verification import FaultWindow, fault_kind

from hifi.control.action_right import ActionLog
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

ACTORS: Final = ("rollout", "deploy", "scale")
TARGETS: Final = (*ACTORS, "manage", "observe")
ACTION_S: Final = 30
"""Longest wait for an action of the service that gets the fault, seconds."""
FREEZE_S: Final = 12
"""Longest freeze: longer than an action may take."""
FINISH_S: Final = 300
MEASURED_S: Final = 60
SETTINGS: Final = {
    "CHAOS_KEY": KEY,
    "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S),
    "HIFI_OBSERVE_STABLE_S": "3",
    "HIFI_ROLLOUT_PHASES": "10,50,100",
    "HIFI_ROLLOUT_PHASE_S": "3",
    "HIFI_ROLLOUT_PHASE_EVENTS": "30",
    "HIFI_DEPLOY_STABLE_S": "5",
    "HIFI_DEPLOY_EVENTS": "50",
    "HIFI_SCALE_DOWN_AFTER_S": "5",
}


def main(
    times: Annotated[int, typer.Option(help="Kills, and as many freezes, of each service.")] = 20,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 100,
    undisturbed: Annotated[
        float,
        typer.Option(
            help="Seconds in which the control plane works before the first fault: their p95 is what the one under "
            "faults is compared with. A deployment takes about two minutes."
        ),
    ] = 300,
    seed: Annotated[int | None, typer.Option(help="Seed of an earlier run, to repeat its faults.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the mesh and the request logs; default: a temporary one.")
    ] = None,
) -> None:
    """Inject faults into the control plane of a mesh under load, and compare the request logs."""
    seed = random.randrange(1_000_000) if seed is None else seed
    os.environ["HIFI_TIERS"] = TIERS
    console.print(
        f"seed {seed}: {rate:g} events/s, {times} kills and {times} freezes of each of {', '.join(TARGETS)}"
    )
    with tempfile.TemporaryDirectory(prefix="hifi-chaos-") as temporary:
        folder = data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(_run(folder, random.Random(seed), times, rate, undisturbed))
    line = {"seed": seed, "rate": rate, "times": times, "undisturbed_s": undisturbed, **outcome}
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if outcome["failures"] else 0)


async def _run(
    folder: Path, random_source: random.Random, times: int, rate: float, undisturbed_s: float
) -> dict[str, Any]:
    ports: set[int] = set()
    while len(ports) < 4:
        ports.add(free_port(but=ports))
    port, ingest_port, console_port, manage_port = ports
    plan = Plan(
        data=folder / "mesh",
        port=ingest_port,
        console_port=console_port,
        manage_port=manage_port,
        scale={"normalize": 2, "observe": 1},
        control=True,
        bounds={SCALED: (1, 2)},
        env=SETTINGS,
    )
    logs = {name: folder / f"{name}.ndjson" for name in ("sent", "arrived")}
    mesh = Mesh(plan)
    mesh.prepare()
    pipe = chaos_pipe(port)
    destination = subprocess.Popen(
        [sys.executable, str(HERE / "faulty_destination.py"), str(port), str(logs["arrived"])]
    )
    sender: subprocess.Popen[bytes] | None = None
    try:
        await mesh.start([pipe])
        try:
            await mesh.wait_ready(180)
            sender = start_sender(mesh, rate, logs["sent"])
            await until(lambda: len(read_lines(logs["arrived"])) > rate, 60, "the first events arrive")
            idle_s = time.time()
            idle = await _cpu_share(mesh)
            console.print(f"idle, the control plane takes {idle:.1%} of the mesh's CPU time")
            work = ControlWork(mesh, pipe, folder / "release")
            async with _working(work):
                working_s = time.time()
                await asyncio.sleep(undisturbed_s)
                load = {"working": round(os.getloadavg()[1], 1)}
                windows = await _inject_faults(mesh, random_source, times)
                load["faults"] = round(os.getloadavg()[1], 1)
            failures = await _finished(work)
            sender.send_signal(signal.SIGTERM)
            await asyncio.to_thread(sender.wait, 60)
            await wait_for_deliveries(mesh, logs)
            result = await compare_logs(mesh, logs, windows)
            observed = await compare_with_observe(mesh, logs, windows, result)
        finally:
            await mesh.stop()
    finally:
        for process in (sender, destination):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
    lags = {
        "idle": _p95_ms(logs, idle_s, working_s),
        "working": _p95_ms(logs, working_s, windows[0].start_s),
        "faults": _p95_ms(logs, windows[0].start_s, windows[-1].end_s),
    }
    return result.as_json() | {
        "failures": result.failures + failures,
        "observe": observed,
        "made": dict(Counter(fault_kind(window.fault, window.target) for window in windows)),
        "declared": work.declared,
        "deployed": work.deployed,
        "scaled": work.scaled,
        "idle_cpu_share": round(idle, 4),
        "p95_ms": lags,
        "load_average": load,
        "p95_ratio": round(lags["faults"] / lags["working"], 2),
    }


async def _cpu_share(mesh: Mesh) -> float:
    """The share of the control plane in the CPU time of the mesh, brokers included, while nothing is asked of it."""
    cpu_before_s = mesh.cpu_seconds()
    await asyncio.sleep(MEASURED_S)
    cpu_seconds = {name: value - cpu_before_s[name] for name, value in mesh.cpu_seconds().items()}
    return sum(cpu_seconds[name] for name in (*ACTORS, "manage")) / sum(cpu_seconds.values())


@asynccontextmanager
async def _working(work: ControlWork) -> Any:
    """Has the control plane work while the block runs."""
    tasks = [asyncio.create_task(coroutine) for coroutine in (work.declare(), work.deploy(), work.scale())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for failure in results:
            if isinstance(failure, Exception):
                raise failure


async def _inject_faults(mesh: Mesh, random_source: random.Random, times: int) -> list[FaultWindow]:
    """Inject faults in random order, one after another; the mesh is ready again before the next."""
    assert mesh.plan.control_topics is not None
    faults = [(fault, target) for target in TARGETS for fault in ("kill", "freeze") for _ in range(times)]
    random_source.shuffle(faults)
    log = ActionLog(mesh.bootstrap, mesh.plan.control_topics.actions, "chaos")
    await log.start()
    windows = []
    try:
        for number, (fault, target) in enumerate(faults, 1):
            is_in_action = target in ACTORS and await _action_of(log, target)
            process = processes(mesh)[f"{target}-1"]
            start_s = time.time()
            if fault == "kill":
                await process.kill()
            else:
                process.pause()
                try:
                    await asyncio.sleep(random_source.uniform(1, FREEZE_S))
                finally:
                    process.resume()
            window = FaultWindow(fault, f"{target}-1", start_s, time.time())
            windows.append(window)
            ready_s = await wait_until_ready(mesh)
            console.print(
                f"{number} of {len(faults)}: {fault} {target}{' in an action' if is_in_action else ''} for "
                f"{window.end_s - start_s:.1f} s, ready again after {ready_s:.1f} s"
            )
            await asyncio.sleep(random_source.uniform(0, 3))
    finally:
        await log.stop()
    return windows


async def _action_of(log: ActionLog, actor: str) -> bool:
    """Wait until this actor is in an action; False if it takes none for some time."""
    end_s = time.monotonic() + ACTION_S
    while time.monotonic() < end_s:
        await log.catch_up()
        if any(action.actor == actor for action in log.history.running):
            return True
        await asyncio.sleep(0.02)
    return False


async def _finished(work: ControlWork) -> list[str]:
    """Wait until the control plane has finished its work; returns what it leaves undone."""
    end_s = time.monotonic() + FINISH_S
    while unfinished_work := await work.unfinished():
        if time.monotonic() > end_s:
            break
        await asyncio.sleep(1)
    return unfinished_work


def _p95_ms(logs: dict[str, Path], start_s: float, end_s: float) -> float:
    """95th percentile of the time from sending to the steady destination, of the events sent in a time."""
    arrived_s: dict[str, float] = {}
    for line in read_lines(logs["arrived"]):
        if line["to"] == "steady" and line["clean"]:
            arrived_s.setdefault(line["id"], line["at_s"])
    lags: Sequence[float] = [
        arrived_s[line["id"]] - line["at_s"]
        for line in read_lines(logs["sent"])
        if line["id"] in arrived_s and start_s <= line["at_s"] < end_s
    ]
    return round(1000 * quantiles(lags, n=20)[-1], 1)


if __name__ == "__main__":
    typer.run(main)
