"""`python -m tests.chaos`: one run of the chaos suite; exit 1 if a promise broke."""

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
from tests.chaos.common import (
    HERE,
    KEY,
    SETTLE_S,
    TIERS,
    console,
    drained,
    judged,
    lines,
    observed,
    publish,
    sending,
    until,
)
from tests.chaos.faults import FAULTS, Scene, settled
from tests.chaos.judge import Lines, Window, kind_of
from tests.chaos.rig import Rig, missing, rigged

from hifi_cli.options import TriggerOf
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port


def main(
    seconds: Annotated[float, typer.Option(help="Faults are begun for so long, seconds.")] = 120,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 500,
    seed: Annotated[int | None, typer.Option(help="Draw the same faults again.")] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Only this fault, `NAME`, or so many of it, `NAME=N`; may be repeated. {', '.join(FAULTS)}."
        ),
    ] = None,
    brokers: Annotated[int, typer.Option(help="1 or 3.")] = 3,
    trigger: TriggerOf = "micro-batch",
    freeze: Annotated[float, typer.Option(help="Longest freeze, seconds.")] = 15,
    within: Annotated[
        float, typer.Option(help="A fault after which a service is not ready for longer breaks a promise, s.")
    ] = 30,
    report: Annotated[Path | None, typer.Option(help="File that gets a line of JSON.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the mesh and the books; default: a temporary one.")
    ] = None,
) -> None:
    """Run a mesh under load, break it, and judge the books."""
    seed = random.randrange(1_000_000) if seed is None else seed
    wanted = _wanted(faults or [])
    os.environ["HIFI_TIERS"] = TIERS  # of the topics and of every service
    console.print(f"seed {seed}: {rate:g} events/s, faults for {seconds:g} s, {brokers} broker(s), {trigger}")
    with tempfile.TemporaryDirectory(prefix="hifi-chaos-") as temporary:
        folder = data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with rigged(folder, folder / "mesh" / "kafka", brokers, list(wanted)) as rig:
            port = free_port()
            plan = Plan(
                data=folder / "mesh",
                brokers=brokers,
                port=port,
                console_port=free_port(but={port}),
                trigger=trigger,
                scale={"ingest": 2, "normalize": 2, "enrich": 2, "egest": 2, "retrier": 2, "observe": 1},
                env={"HIFI_CHAOS_KEY": KEY, "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)},
                own_env=rig.own_env,
            )
            outcome = asyncio.run(
                _run(plan, rig, folder, random.Random(seed), seconds, rate, wanted, freeze, within)
            )
    line = {"seed": seed, "seconds": seconds, "rate": rate, "brokers": brokers, "trigger": trigger, **outcome}
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if outcome["failures"] else 0)


def _wanted(faults: Sequence[str]) -> dict[str, int]:
    """Each fault to how often it is wanted, 0: as often as time allows. All that can be made where none is named."""
    wanted = {}
    for one in faults or [name for name in FAULTS if missing(name) is None]:
        name, _, times = one.partition("=")
        if name not in FAULTS or (times and not times.isdecimal()):
            raise typer.BadParameter(f"{one}: write NAME or NAME=N; there are {', '.join(FAULTS)}")
        if why := missing(name):
            raise typer.BadParameter(f"{name} cannot be made here: {why}")
        wanted[name] = int(times or 0)
    return wanted


async def _run(
    plan: Plan,
    rig: Rig,
    folder: Path,
    dice: random.Random,
    seconds: float,
    rate: float,
    wanted: Mapping[str, int],
    freeze_s: float,
    within_s: float,
) -> dict[str, Any]:
    port = free_port(but={plan.port, plan.console_port})
    books = {name: folder / f"{name}.ndjson" for name in ("sent", "arrived")}
    mesh = Mesh(plan)
    mesh.prepare()
    destination = subprocess.Popen(
        [sys.executable, str(HERE / "destination.py"), str(port), str(books["arrived"])]
    )
    sender: subprocess.Popen[bytes] | None = None
    windows: list[Window] = []
    try:
        async with mesh:
            await mesh.wait_ready(120)
            await publish(mesh, port)
            sender = sending(mesh, rate, books["sent"])
            await until(lambda: len(lines(books["arrived"])) > rate, 60, "the first events arrive")
            before = mesh.rss_bytes()
            scene = Scene(mesh, rig, f"http://127.0.0.1:{port}", dice, freeze_s)
            windows = await _break(scene, seconds, wanted)
            sender.send_signal(signal.SIGTERM)
            await asyncio.to_thread(sender.wait, 60)
            late = await drained(mesh, books)
            first_s = _first_arrivals(lines(books["arrived"]))
            windows = [_flowing(window, lines(books["sent"]), first_s) for window in windows]
            verdict = await judged(mesh, books, windows)
            after = mesh.rss_bytes()
            said = await observed(mesh, books, windows, verdict)
            failures = verdict.failures + [
                f"{one.target} was not ready {within_s:g} s after {one.fault}: {one.ready_again_s} s"
                for one in windows
                if one.ready_again_s is None or one.ready_again_s > within_s
            ]
            return verdict.as_json() | {
                "failures": failures,
                "drained_s": round(late, 1),
                "rss_bytes": {"before": before, "after": after},
                "observe": said,
                "made": dict(Counter(kind_of(window.fault, window.target) for window in windows)),
                "faults": [asdict(window) for window in windows],
            }
    finally:
        for process in (sender, destination):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


async def _break(scene: Scene, seconds: float, wanted: Mapping[str, int]) -> list[Window]:
    """Faults one after another, each of them drawn; the mesh gets ready again before the next.

    `wanted`: each fault to how often it is to be made, 0: as often as time allows.
    """
    windows: list[Window] = []
    end_s = time.monotonic() + seconds
    deck = [name for name, times in wanted.items() for _ in range(times)]
    scene.dice.shuffle(deck)
    endless = [name for name, times in wanted.items() if not times]
    while time.monotonic() < end_s:
        if not deck:
            if not endless:
                break
            deck = scene.dice.sample(endless, len(endless))
        name = deck.pop()
        window = await FAULTS[name](scene)
        try:
            window = replace(window, ready_again_s=round(await settled(scene.mesh), 1))
        except TimeoutError:
            console.print(f"not ready again after {name}:\n" + "\n".join(scene.mesh.reasons()))
        windows.append(window)
        console.print(
            f"{window.fault} {window.target} for {window.end_s - window.start_s:.1f} s, "
            f"ready again after {window.ready_again_s} s"
        )
        await asyncio.sleep(scene.dice.uniform(1, 4))
    return windows


def _flowing(window: Window, sent: Lines, first_s: Mapping[str, float]) -> Window:
    """The window with the time until events that were sent after it arrived."""
    arrivals = [
        first_s[line["id"]] for line in sent if line["at_s"] >= window.end_s and line["id"] in first_s
    ]
    return replace(window, flowing_again_s=round(min(arrivals) - window.end_s, 2) if arrivals else None)


def _first_arrivals(arrived: Lines) -> dict[str, float]:
    """Event id to when the steady destination first had it, wall time in seconds."""
    first_s: dict[str, float] = {}
    for line in arrived:
        if line["to"] == "steady" and line["clean"]:
            first_s.setdefault(line["id"], line["at_s"])
    return first_s


if __name__ == "__main__":
    typer.run(main)
