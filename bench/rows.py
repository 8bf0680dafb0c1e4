"""Measures growth of cost, the cost of a failing destination, and the time of starts and restarts.

`python bench/rows.py KIND... [--runs N] [--into FILE] [--fresh]`: functions of this file and of those that it names.
Each row goes into the file of results as soon as it is there, so that an interrupted run keeps what it has. `--fresh`
forgets what the file has of these kinds, and its notes.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import benchmarks_page
import machine_info
import orjson
from backfill import backfill
from backlog_drain import backlog
from cases import Case
from dead_destination import dead
from greedy_pipe import greedy
from growth_sections import trouble
from idle_control_section import share_percent
from kill_recovery import restart, standby
from larger_load import LargerLoad
from mesh_row import Keep, row
from slow_minutes import first_minute, overload, rolling
from start_time import start

from hifi_cli.rate.event_load import EventLoad
from hifi_infra.ports import free_port

ROOT = Path(__file__).parent.parent
RATE = 300.0
LAGS = {
    "mesh, real-time": "real-time",
    "mesh, micro-batch": "micro-batch",
    "FastStream, tuned batches": "batch",
}
ASYNCIO = ("ingest", "normalize", "egest", "retrier", "observe")


def lag(keep: Keep) -> None:
    """Single events at 500 a second with default settings; then each chain."""
    for name, kind in LAGS.items():
        row(keep, name, EventLoad(), Case(kind, first=500), count=2, seconds=20)


def partitions(keep: Keep) -> None:
    """Micro-batch, one rate, growing number of partitions."""
    for count in (4, 16, 64):
        row(
            keep,
            f"{count} partitions",
            LargerLoad(),
            Case("micro-batch", first=RATE, plan={"partitions": count}),
        )


def pipes(keep: Keep) -> None:
    """One rate, growing number of pipes; one of them gets the load."""
    for count in (1, 100, 1000):
        load = LargerLoad(pipes=count)
        row(keep, _many(count, "pipe"), load, Case("real-time", first=RATE), load.secrets())


def destinations(keep: Keep) -> None:
    """One rate, growing number of destinations; each event is for one of them."""
    for count in (1, 10, 100):
        row(keep, _many(count, "destination"), LargerLoad(sharing=count), Case("real-time", first=RATE))


def lookups(keep: Keep) -> None:
    """One rate, growing lookup table; Spark's heap is 2 GiB in all cases."""
    case = Case("real-time", first=RATE)
    for rows in (1_000, 100_000, 1_000_000):
        row(keep, f"{rows:,} rows to join", LargerLoad(rows=rows), case, {"HIFI_ENRICH_DRIVER_MEMORY": "2g"})


def brokers(keep: Keep) -> None:
    """One rate, one broker with one copy, then three with three."""
    for count in (1, 3):
        row(
            keep, _many(count, "broker"), LargerLoad(), Case("real-time", first=RATE, plan={"brokers": count})
        )


def instances(keep: Keep) -> None:
    """One rate, growing number of instances on the same cores. Enrich has at most two, one of them a standby."""
    for count in (1, 2, 4):
        scale = dict.fromkeys(ASYNCIO, count) | {"enrich": min(2, count)}
        row(
            keep, _many(count, "instance"), LargerLoad(), Case("real-time", first=RATE, plan={"scale": scale})
        )


def idle_control(keep: Keep) -> None:
    """200 single events a second through a mesh whose control plane is not asked for anything. About 2.5 minutes."""

    def keep_and_print(name: str, point: Mapping[str, Any]) -> None:
        keep(name, point)
        if "steps" in point:
            print(
                f"{name}: the control plane takes {share_percent(point):.1f} % of the mesh's CPU", flush=True
            )

    bounds = {"normalize": (1, 2), "egest": (1, 2)}
    plan = {"control": True, "manage_port": free_port(), "bounds": bounds}
    row(keep_and_print, "idle", EventLoad(), Case("real-time", first=200, plan=plan), count=2, seconds=30)


KINDS = {
    kind.__name__: kind
    for kind in (
        lag,
        partitions,
        pipes,
        destinations,
        lookups,
        brokers,
        instances,
        dead,
        greedy,
        backfill,
        backlog,
        start,
        restart,
        standby,
        first_minute,
        rolling,
        overload,
        idle_control,
    )
}


def main() -> None:
    """Run the kinds given on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS, nargs="+")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument(
        "--into", type=Path, default=ROOT / f"bench/results/{datetime.now(UTC):%Y-%m-%d}.json"
    )
    options = parser.parse_args()
    results: dict[str, Any] = orjson.loads(options.into.read_bytes()) if options.into.exists() else {}
    results.setdefault("machine", []).append(machine_info.describe())
    if options.fresh:
        results.pop("notes", None)
        for kind in options.kind:
            results.get("rows", {}).pop(kind, None)
    failures = []
    for number in range(options.runs):
        for kind in options.kind:
            print(f"\n== {kind}, run {number + 1} of {options.runs}: {KINDS[kind].__doc__}", flush=True)
            began_s = time.monotonic()
            failures += _run(kind, results, options.into)
            print(f"== {kind}: {time.monotonic() - began_s:.0f} s", flush=True)
    benchmarks_page.write(results, options.into.name)
    if failures:
        sys.exit("no figures of:\n" + "\n".join(failures))


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _run(kind: str, results: dict[str, Any], results_file: Path) -> list[str]:
    """Run a kind once; returns the rows that failed."""
    points: dict[str, Any] = {}
    failures = []
    results.setdefault("rows", {}).setdefault(kind, []).append({"at": _now(), "points": points})

    def keep(name: str, point: Mapping[str, Any]) -> None:
        points[name] = point
        if reason := trouble(point):
            failures.append(f"{kind}: {name}: {reason}")
        results_file.parent.mkdir(exist_ok=True)
        temporary_file = results_file.with_suffix(".part")
        temporary_file.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))
        temporary_file.replace(results_file)

    KINDS[kind](keep)
    return failures


if __name__ == "__main__":
    main()
