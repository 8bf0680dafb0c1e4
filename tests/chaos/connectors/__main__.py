"""`python -m tests.chaos.connectors`: faults under every kind of connector; exit 1 when a promise is broken."""

import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from tests.chaos.chaos_run import SETTLE_S, TIERS, console
from tests.chaos.connectors.comparison import Difference, compare_events, compare_rows, without_repeated
from tests.chaos.connectors.destinations import KEEPS_KEYS, Destinations, name_of
from tests.chaos.connectors.faults import CLOCKED, DOUBLED, FAULTS, NEEDS, ConnectorContext, inject
from tests.chaos.connectors.plan import (
    DESTINATIONS,
    SOURCES,
    Layout,
    fault_order,
    kinds_of,
    layout,
    pairs,
    possible,
)
from tests.chaos.connectors.sources import TABLES, Sources
from tests.chaos.connectors.systems import Systems, systems, until
from tests.chaos.fault_tools import FaultTools, prepared_tools, why_impossible
from tests.chaos.faults import FaultContext, wait_until_ready
from tests.chaos.topic_facts import read_topic_facts
from tests.chaos.verification import ChaosResult, FaultWindow, count_repeats
from tests.support.closed_minutes import closed_minutes
from tests.support.written_events import in_table

from hifi.pipe.model import Pipe
from hifi.runtime.egress import VARIABLE as EGRESS
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

READ_ANEW: Final = ("sql", "objects")
"""Sources that a new stream reads from the beginning."""
REFUSED_ANEW: Final = ("lake-upsert",)
"""Destinations for which `hifi restore` refuses a backup."""
_MESH: Final = "mesh-{}"
"""Folder of a mesh: the first one, or the one after `--renew`."""
_PARTITIONS: Final = 4
_LOAD_S: Final = 15.0
_START_S: Final = 400.0
_READY_S: Final = 240.0
_DRAIN_S: Final = 600.0


def main(
    seed: Annotated[int | None, typer.Option(help="Seed of an earlier run, to repeat it.")] = None,
    seconds: Annotated[float, typer.Option(help="How long new faults are started, seconds.")] = 1500,
    times: Annotated[int, typer.Option(help="Injections of each fault.")] = 2,
    rate: Annotated[float, typer.Option(help="Events a second of each source.")] = 5,
    each: Annotated[int, typer.Option(help="Destinations of each source.")] = 3,
    sources: Annotated[str, typer.Option(help=f"Kinds: {','.join(SOURCES)}.")] = ",".join(SOURCES),
    destinations: Annotated[str, typer.Option(help=f"Kinds: {','.join(DESTINATIONS)}.")] = ",".join(
        DESTINATIONS
    ),
    faults: Annotated[str, typer.Option(help=f"Faults: {','.join(FAULTS)}.")] = ",".join(FAULTS),
    outage: Annotated[float, typer.Option(help="Longest outage, seconds.")] = 15,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="In the end restore a backup into a new stream with twice as many partitions, and go on: sources "
            "that keep their own positions, destinations that know logs.",
        ),
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
) -> None:
    """Run a mesh with pipes between all kinds, inject faults, and compare what stands at the destinations."""
    seed = random.randrange(1_000_000) if seed is None else seed
    if renew:
        sources, destinations = _names_without(sources, READ_ANEW), _names_without(destinations, REFUSED_ANEW)
    random_source = random.Random(seed)
    pipes = layout(
        _names(sources, SOURCES), _names(destinations, DESTINATIONS), each, random.Random(f"pipes {seed}")
    )
    fault_names = [name for name in _names(faults, FAULTS) if _is_possible(name)]
    queue = fault_order(possible(fault_names, NEEDS, kinds_of(pipes)), times, random_source)
    os.environ["HIFI_TIERS"] = TIERS
    os.environ.setdefault(EGRESS, "loopback")
    console.print(f"seed {seed}: {pipes}; {len(queue)} faults, for at most {seconds:g} s")
    folder = Path(tempfile.mkdtemp(prefix="hifi-chaos-", dir="/tmp"))
    is_kept = False
    try:
        kafka = folder / _MESH.format(1) / "kafka"
        with prepared_tools(folder, kafka, 1, queue, DOUBLED, CLOCKED) as tools:
            outcome = asyncio.run(
                _run(folder, tools, pipes, queue, random_source, seconds, rate, outage, renew=renew)
            )
        is_kept = bool(outcome["failures"])
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
    if is_kept:  # receipts, records that were aborted, and states of transactions tell what went wrong
        console.print(f"logs of all services and brokers are in {folder}")
    line = {"seed": seed, "rate": rate, "pipes": pipes} | outcome
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))
    sys.exit(1 if outcome["failures"] else 0)


def _is_possible(fault: str) -> bool:
    if reason := why_impossible(fault, secure=False):
        console.print(f"without {fault}: {reason}")
    return reason is None


def _names_without(text: str, names: Sequence[str]) -> str:
    return ",".join(name for name in text.split(",") if name not in names)


async def _command(*arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-m", "hifi_cli", *arguments)
    assert await process.wait() == 0, f"hifi {arguments[0]} failed"


def _names(text: str, choices: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(choices)):
        raise typer.BadParameter(f"{unknown}; expected some of {', '.join(choices)}")
    return names


async def _run(
    folder: Path,
    tools: FaultTools,
    pipes: Layout,
    queue: list[str],
    random_source: random.Random,
    seconds: float,
    rate: float,
    outage: float,
    *,
    renew: bool,
) -> dict[str, Any]:
    avro = "kafka" in pipes or any("kafka" in names for names in pipes.values())
    async with systems(folder, avro=avro, connect="debezium" in pipes) as connector_systems:
        connector_run = ConnectorRun(connector_systems, pipes, rate)
        faults = FaultContext(
            connector_run.new_mesh(_PARTITIONS, tools.own_env),
            tools,
            connector_systems.http.url,
            random_source,
            outage,
        )
        context = ConnectorContext(faults, connector_systems, outage, connector_run.tables())
        try:
            await connector_run.mesh.start()
            await connector_run.prepare()
            await connector_run.mesh.wait_ready(_START_S)
            outcome = await connector_run.compare(
                await connector_run.under_load(queue, context, seconds), len(queue)
            )
            if renew:
                await connector_run.renew()
                outcome["renewed"] = renewed = await connector_run.compare(
                    await connector_run.under_load((), context, 0), 0
                )
                outcome["failures"] += [f"renewed: {failure}" for failure in renewed.pop("failures")]
            return outcome
        finally:
            await connector_run.mesh.kill()


class ConnectorRun:
    """A mesh with pipes, and its load."""

    def __init__(self, connector_systems: Systems, pipes: Layout, rate: float) -> None:
        self.sources = Sources(connector_systems, rate)
        self.destinations = Destinations(connector_systems)
        self._systems = connector_systems
        self._pipes = pipes
        self._injected: list[str] = []
        self._meshes: list[Mesh] = []
        self._earlier: Counter[str] = Counter()
        """Events that an earlier stream delivered."""

    @property
    def mesh(self) -> Mesh:
        """The mesh that runs, or will."""
        return self._meshes[-1]

    def new_mesh(self, partitions: int, own_env: Mapping[str, Mapping[str, str]] | None = None) -> Mesh:
        """A mesh with a new stream, which is not started; `own_env`: instance to its own variables."""
        port = free_port()
        settings = {"HIFI_OBSERVE_SETTLE_S": str(SETTLE_S), "HIFI_LAKE_INTERVAL_S": "3"}
        plan = Plan(
            data=self._systems.folder / _MESH.format(len(self._meshes) + 1),
            port=port,
            console_port=free_port(but={port}),
            partitions=partitions,
            scale=dict.fromkeys(DOUBLED, 2) | {"lake": 1, "observe": 1},
            env={**settings, "HIFI_ENRICH_DRIVER_MEMORY": "768m", **self._systems.environment},
            own_env=own_env or {},
        )
        self._meshes.append(mesh := Mesh(plan))
        self.sources.url = f"{plan.url}/v1/pipes/from-http/events"
        mesh.prepare()
        return mesh

    def tables(self) -> list[str]:
        """Tables of destinations in the database."""
        return [
            f"{source}_{kind}"
            for source, kinds in self._pipes.items()
            for kind in kinds
            if kind in {"append", "upsert"}
        ]

    async def renew(self) -> None:
        """Restore a backup into a new stream with twice as many partitions; the old one, which is empty, is gone."""
        file, old_mesh = self._systems.folder / "backup.ndjson", self.mesh
        await _command("backup", str(file), "--data", str(old_mesh.plan.data))
        await old_mesh.kill()
        self._earlier = Counter({source: len(events) for source, events in self.sources.sent.items()})
        self._systems.http.arrivals.clear()
        self._injected.clear()
        await self.new_mesh(2 * _PARTITIONS).start()
        await self.mesh.wait_ready(_START_S)
        await _command("restore", str(file), "--data", str(self.mesh.plan.data))
        self.sources.ended = False

    async def prepare(self) -> None:
        """Create tables and topics, publish the pipes, and wait until changes are captured."""
        systems = self._systems
        await systems.execute(systems.source.url, *TABLES)
        await systems.create_topics("in-kafka")
        declared = []
        for source, kinds in self._pipes.items():
            for kind in kinds:
                await self.destinations.prepare(kind, source)
            body = {
                "pipe": name_of(source),
                "source": self.sources.declared(source),
                "destinations": [self.destinations.declared(kind, source) for kind in kinds],
            }
            declared.append(Pipe.model_validate(body))
        variables = {**os.environ, **self.mesh.plan.env}
        await put_in_force(self.mesh.bootstrap, self.mesh.topics, declared, variables=variables)

        async def captured() -> bool:
            slots = await in_table(systems.source.url, "SELECT 1 FROM pg_replication_slots WHERE active")
            return bool(slots)

        if "debezium" in self._pipes:
            await until(captured, _START_S, "a replication slot")

    async def under_load(
        self, queue: Sequence[str], context: ConnectorContext, seconds: float
    ) -> list[FaultWindow]:
        """Write to the sources while faults are injected one after another."""
        writing = asyncio.create_task(self.sources.write(*self._pipes))
        windows: list[FaultWindow] = []
        try:
            await asyncio.sleep(_LOAD_S)
            end_s = time.monotonic() + seconds
            for name in queue:
                if time.monotonic() > end_s or writing.done():
                    break
                window = await inject(name, context)
                try:
                    ready_s = round(await wait_until_ready(self.mesh, _READY_S), 1)
                    window = replace(window, ready_again_s=ready_s)
                except TimeoutError:
                    console.print(f"not ready again after {name}:\n" + "\n".join(self.mesh.reasons()))
                windows.append(window)
                self._injected.append(name)
                console.print(
                    f"{time.strftime('%H:%M:%S')} {name}: {window.fault} {window.target} for "
                    f"{window.end_s - window.start_s:.1f} s, ready again after {window.ready_again_s} s"
                )
                await asyncio.sleep(context.random_source.uniform(2, 5))
        finally:
            self.sources.ended = True
            await writing
        return windows

    async def compare(self, windows: Sequence[FaultWindow], planned: int) -> dict[str, Any]:
        """Wait for all deliveries, and compare destinations, topics and minutes."""
        start_s = time.monotonic()
        topic_facts = await read_topic_facts(self.mesh.bootstrap, self.mesh.topics)
        differences: dict[str, Difference] = {}
        failures: list[str] = []
        for source, kinds in self._pipes.items():
            for kind in kinds:
                bound_s = max(5.0, _DRAIN_S - (time.monotonic() - start_s))
                try:
                    await until(partial(self._is_complete, source, kind), bound_s, f"{source} {kind}")
                except TimeoutError as error:
                    failures.append(str(error))
        drained_s = round(time.monotonic() - start_s, 1)
        await asyncio.sleep(3)  # what would be there twice
        topic_facts = await read_topic_facts(self.mesh.bootstrap, self.mesh.topics)
        repeats = ChaosResult()
        count_repeats(
            repeats, "http", self._systems.http.arrivals, windows, topic_facts.receipts, topic_facts.ambiguous
        )
        explained_ids = {
            line["data_id"] for line in self._systems.http.arrivals if line["mode"] == "reset-after"
        } | self._explained(repeats)
        if repeats.twice > repeats.twice_explained:
            failures.append(f"http: twice without a reason: {repeats.twice_ids[:5]}")
        for source, kinds in self._pipes.items():
            for kind in kinds:
                difference = await self._difference(source, kind)
                if kind == "http":
                    difference = without_repeated(difference, explained_ids)
                differences[f"{source} to {kind}"] = difference
                failures += difference.failures(f"{source} to {kind}")
        if topic_facts.dead:
            failures.append(f"{len(topic_facts.dead)} dead letters, such as {sorted(topic_facts.dead)[:5]}")
        observed = await self._observed(
            failures, sum(len(difference.lost) for difference in differences.values())
        )
        all_kinds = kinds_of(self._pipes)
        return {
            "sent": {source: len(events) for source, events in self.sources.sent.items()},
            "differences": {
                destination: difference.as_json() for destination, difference in differences.items()
            },
            "ambiguous": sum(topic_facts.ambiguous.values()),
            "http_twice": repeats.twice,
            "observe": observed,
            "drained_s": drained_s,
            "failures": failures,
            "injected": dict(Counter(self._injected)),
            "left_out": planned - len(windows),
            "pairs": {
                f"{kind} / {fault}": count
                for (kind, fault), count in sorted(pairs(self._injected, NEEDS, all_kinds).items())
            },
            "faults": [asdict(window) for window in windows],
        }

    def _explained(self, repeats: ChaosResult) -> set[str]:
        unexplained_ids = {name.partition(":")[2] for name in repeats.twice_ids}
        counts = Counter(line["id"] for line in self._systems.http.arrivals if line["clean"])
        return {
            line["data_id"]
            for line in self._systems.http.arrivals
            if counts[line["id"]] > 1 and line["id"] not in unexplained_ids
        }

    async def _difference(self, source: str, kind: str) -> Difference:
        rows = await self.destinations.rows(kind, source)
        compare = compare_rows if kind in KEEPS_KEYS else compare_events
        return compare(self.sources.sent[source], rows)

    async def _is_complete(self, source: str, kind: str) -> bool:
        difference = await self._difference(source, kind)
        return not difference.lost and not (kind in KEEPS_KEYS and difference.different)

    async def _observed(self, failures: list[str], lost_count: int) -> dict[str, dict[str, int]]:
        """Compare the minutes with what was sent: no loss that is not there, and none missed."""
        assert self.mesh.plan.console
        last_minute = int(time.time() // 60)
        reported_counts: dict[str, dict[str, int]] = {}
        for source, kinds in self._pipes.items():
            minutes, reason = await asyncio.to_thread(
                closed_minutes, self.mesh.plan, name_of(source), last_minute
            )
            if reason:
                failures.append(f"observe: {reason}")
            sums = {name: sum(row[name] for row in minutes) for name in ("in", "duplicates", "dead", "lost")}
            delivered: Counter[str] = Counter()
            for row in minutes:
                for destination_row in row["destinations"]:
                    delivered[destination_row["destination"]] += destination_row["delivered"]
            sent_count = len(self.sources.sent[source]) - self._earlier[source]
            failures += [
                f"observe reports {delivered[kind]} of {sent_count} events of {source} as delivered to {kind}"
                for kind in kinds
                if delivered[kind] != sent_count
            ]
            reported_counts[source] = sums | delivered
        if (reported_lost := sum(sums["lost"] for sums in reported_counts.values())) != lost_count:
            failures.append(
                f"observe reports {reported_lost} lost deliveries, the destinations lack {lost_count}"
            )
        return reported_counts


if __name__ == "__main__":
    typer.run(main)
