"""How costs grow, and how long starts and restarts take.

`python bench/rows.py KIND... [--into FILE]`: functions of this file. Adds to the file of results.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
import orjson
import tables
from cases import Case, _tell, rate, scene

from hifi.pipe.model import Pipe
from hifi_cli.demo.expected import CANCELLATIONS, DEPARTURES, Deliveries
from hifi_cli.demo.scene import Scene
from hifi_cli.demo.stage import Stage
from hifi_cli.demo.verify import Books, sent
from hifi_cli.rate.ladder import Ladder
from hifi_cli.rate.load import Load
from hifi_cli.rate.report import report
from hifi_cli.rate.run import Rating
from hifi_infra.mesh import processes
from hifi_infra.ports import free_port

ROOT = Path(__file__).parent.parent
SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Many(Load):
    """The same load with more of something declared.

    Attributes:
        pipes: the load is one pipe's.
        ten: ten destinations that all want every event.
        dead_port: where nobody is, for the last of the ten.
        sharing: so many destinations, of which each event is wanted by one.
        planes: rows of the largest lookup table.
    """

    pipes: int = 1
    ten: bool = False
    dead_port: int = 0
    sharing: int = 0
    planes: int = 0

    def shape(self, pipes: list[Pipe]) -> list[Pipe]:
        """See Load."""
        [pipe] = pipes
        if self.planes:
            _grow(Path(pipe.enrich.lookups["planes"].file), self.planes)
        if self.ten or self.sharing:
            pattern = pipe.destinations[0].model_dump(mode="json", exclude_defaults=True)
            made = [
                pattern
                | {
                    "name": f"d{n}",
                    "url": self._url(pattern["url"], n),
                    "when": f"distance % {self.sharing} = {n}" if self.sharing else None,
                }
                for n in range(self.sharing or 10)
            ]
            pipe = Pipe.model_validate(
                pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"destinations": made}
            )
        others = [
            pipe.model_copy(
                update={
                    "pipe": f"flights-{n}",
                    "source": pipe.source.model_copy(
                        update={
                            "keys": [key.model_copy(update={"env": f"KEY_{n}"}) for key in pipe.source.keys]
                        }
                    ),
                }
            )
            for n in range(1, self.pipes)
        ]
        return [pipe, *others]

    def write(self, stage: Stage, count: int, first: int) -> dict[str, Deliveries]:
        """See Load."""
        expected = Load.write(self, stage, count, first)
        if self.sharing:
            wholes = {name: _whole(one) for name, one in expected.items()}
            return {name: {f"/d{one['distance'] % self.sharing}": one} for name, one in wholes.items()}
        if not self.ten:
            return expected
        alive = 9 if self.dead_port else 10
        return {
            name: dict.fromkeys((f"/d{n}" for n in range(alive)), _whole(one))
            for name, one in expected.items()
        }

    def _url(self, url: str, number: int) -> str:
        base = url.rpartition("/")[0]
        if number == 9 and self.dead_port:
            base = f"http://127.0.0.1:{self.dead_port}"
        return f"{base}/d{number}"


def _whole(deliveries: Deliveries) -> Any:
    return deliveries[DEPARTURES] if DEPARTURES in deliveries else deliveries[CANCELLATIONS]


def _grow(table: Path, rows: int) -> None:
    """Planes that no flight names, behind those that there are."""
    there = table.read_bytes().splitlines()
    pattern = orjson.loads(there[0])
    more = (orjson.dumps(pattern | {"tailnum": f"X{number}"}) for number in range(len(there), rows))
    table.write_bytes(b"\n".join([*there, *more]) + b"\n")


def partitions() -> dict[str, Any]:
    """Micro-batch, one rate, more and more partitions."""
    case = Case("micro-batch", first=300, most_tries=1)
    return {
        f"{count} partitions": rate(replace(case, plan={"partitions": count}), SECONDS, slo_ms=60_000)
        for count in (4, 16, 64)
    }


def pipes() -> dict[str, Any]:
    """Real-time, one rate, more and more pipes declared; the load is one pipe's."""
    return {
        f"{count} pipes": _rated(Many(pipes=count), Case("real-time", first=300)) for count in (1, 100, 1000)
    }


def dead() -> dict[str, Any]:
    """Ten destinations that all want every event; then the same with nobody at one of them."""
    case = Case("real-time", first=60)
    return {
        "ten destinations": _rated(Many(ten=True), case),
        "one of them dead": _rated(Many(ten=True, dead_port=free_port()), case),
    }


def destinations() -> dict[str, Any]:
    """Real-time, one rate, more and more destinations; one of them wants an event."""
    return {
        f"{count} destinations": _rated(Many(sharing=count), Case("real-time", first=300))
        for count in (1, 10, 100)
    }


def lookups() -> dict[str, Any]:
    """Real-time, one rate, a larger and larger table that is joined."""
    return {
        f"{rows:,} rows to join": _rated(Many(planes=rows), Case("real-time", first=300))
        for rows in (4_000, 100_000, 1_000_000)
    }


def brokers() -> dict[str, Any]:
    """Real-time, one rate, one broker and three."""
    return {
        f"{count} brokers": _rated(Many(), Case("real-time", first=300, plan={"brokers": count}))
        for count in (1, 3)
    }


def instances() -> dict[str, Any]:
    """Real-time, one rate, more and more instances of every asyncio service on the same cores."""
    names = ("ingest", "normalize", "egest", "retrier")
    return {
        f"{count} instances": _rated(
            Many(),
            Case("real-time", first=300, plan={"scale": dict.fromkeys(names, count) | {"observe": 1}}),
        )
        for count in (1, 2, 4)
    }


GROWTH = (partitions, pipes, destinations, dead, lookups, brokers, instances)


def _rated(load: Many, case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_rate_load(load, case, Path(folder)))


async def _rate_load(load: Many, case: Case, folder: Path) -> dict[str, Any]:
    secrets = {f"KEY_{number}": f"key-{number}-of-many-pipes" for number in range(load.pipes)}
    made = scene(case, folder, secrets)
    rating = Rating(made, Ladder(case.first, 2, 1), load, SECONDS, 60_000, _tell)
    try:
        await rating.run()
        return report(rating, 2, None)
    finally:
        await made.kill()
        await asyncio.get_running_loop().shutdown_default_executor()


def restart() -> dict[str, Any]:
    """Seconds to ready on an empty folder and again on the same one; seconds without deliveries around a SIGKILL."""
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_restart(Path(folder)))


async def _restart(folder: Path) -> dict[str, Any]:
    made = scene(Case("real-time"), folder)
    found: dict[str, Any] = {}
    try:
        began_s = time.monotonic()
        await made.start()
        found["start on an empty folder, s"] = round(time.monotonic() - began_s, 1)
        await made.mesh.stop()
        again = scene(Case("real-time"), folder, stage=made.stage)
        again.destination, made = made.destination, again
        began_s = time.monotonic()
        await made.start()
        found["start on the same folder, s"] = round(time.monotonic() - began_s, 1)
        books, first = Books(made.stage.destination_books), 0
        for name in ("ingest-1", "normalize-1", "enrich-1", "egest-1", "observe-1", "broker-1"):
            found[f"SIGKILL of {name}"] = await _killed(made, books, name, first)
            first += 10_000
            print(name, found[f"SIGKILL of {name}"], flush=True)
        return found
    finally:
        await made.kill()
        await asyncio.get_running_loop().shutdown_default_executor()


async def _killed(made: Scene, books: Books, name: str, first: int) -> Mapping[str, Any]:
    stage, per_second, seconds = made.stage, 100.0, 25.0
    expected = Load().write(stage, round(per_second * seconds), first)
    sender = made.sender = stage.sender(per_second)
    await sender.start()
    await asyncio.sleep(4)
    killed_ns = time.time_ns()
    await processes(made.mesh)[name].kill()
    while sender.running:
        await asyncio.sleep(0.2)
    sends = sent(stage.sender_books)
    verdict = await made.wait_for_the_rest(books, sends, expected)
    await made.mesh.wait_ready(60)
    times = sorted(verdict.arrived.values())
    pauses = [(late - early) / 1e9 for early, late in pairwise(times) if late > killed_ns]
    accepted = {event for event, one in sends.items() if one.accepted}
    arrived = {event for _, event in verdict.arrived}
    return {
        "longest pause, s": round(max(pauses), 2),
        "not accepted": len(sends) - len(accepted),
        "lost": len(accepted - arrived),
        "duplicates": verdict.duplicates,
    }


def main() -> None:
    """See the top of the file."""
    kinds = {one.__name__: one for one in (*GROWTH, restart)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=kinds, nargs="+")
    parser.add_argument(
        "--into", type=Path, default=ROOT / f"bench/results/{datetime.now(UTC):%Y-%m-%d}.json"
    )
    options = parser.parse_args()
    results = orjson.loads(options.into.read_bytes()) if options.into.exists() else {}
    results.setdefault("machine", []).append(machine.describe())
    options.into.parent.mkdir(exist_ok=True)
    for kind in options.kind:
        print(kind, flush=True)
        results.setdefault("rows", {})[kind] = kinds[kind]()
        options.into.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))
    (ROOT / "docs/benchmarks.md").write_text(tables.page(results, options.into.name))


if __name__ == "__main__":
    main()
