"""hifi status: what runs, whether it is ready, how fast it goes, what waits."""

import asyncio
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.markup import escape

from hifi.errors import HifiError
from hifi.pipe.registry import read_registry
from hifi_cli import scrape
from hifi_cli.display.console import console, print_json, table
from hifi_cli.error_reporting import reported
from hifi_cli.mesh_state.backlog import backlog
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_infra.mesh.health_probe import readiness
from hifi_infra.mesh.running import RunningInstance


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One instance as a person sees it. `rate_per_s`: events taken in by it, None when not known."""

    name: str
    service: str
    pid: int
    port: int
    ready: bool
    state: str
    waiting: list[str]
    rate_per_s: float | None
    log: str


@reported
async def status(
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--over", min=0.1, max=60, metavar="SECONDS", help="Time over which rates are measured."
        ),
    ] = 1.0,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what runs: services, whether they are ready and if not why, rates, what waits, pipes.

    Exit status 0 when every service is ready, 1 when not.

      hifi status
      hifi status --json | jq .backlog
      hifi status --kafka broker1:9092,broker2:9092 --stream orders
    """
    target = kafka_target(data, kafka, stream)
    found = await gather(target, seconds)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if not found["ready"]:
        raise typer.Exit(1)


async def gather(target: Target, seconds: float) -> dict[str, Any]:
    """Everything that `status` shows, as JSON has it."""
    running = target.running
    instances, (waiting, pipes, problem) = await asyncio.gather(
        _instances(running.instances if running else [], seconds), _stream(target)
    )
    return {
        "stream": target.topics.stream,
        "kafka": target.kafka,
        "url": running.url if running else None,
        "console": running.console if running else None,
        "trigger": running.trigger if running else None,
        "brokers": running.brokers if running else None,
        "ready": problem is None and all(one.ready for one in instances),
        "problem": problem,
        "instances": [asdict(one) for one in instances],
        "backlog": waiting,
        "pipes": pipes,
    }


async def _instances(instances: list[RunningInstance], seconds: float) -> list[InstanceStatus]:
    ports = [one.port for one in instances]
    before = await scrape.counts_of(ports)
    answers = await asyncio.gather(*map(readiness, ports))
    if instances:
        await asyncio.sleep(seconds)
    after = await scrape.counts_of(ports)
    shown = []
    for one, answer in zip(instances, answers, strict=True):
        counter = scrape.ACCEPTED if one.service == "ingest" else scrape.READ
        shown.append(
            InstanceStatus(
                f"{one.service}-{one.number}",
                one.service,
                one.pid,
                one.port,
                answer.ready,
                answer.state,
                list(answer.waiting.values()),
                scrape.per_second(before[one.port], after[one.port], counter),
                str(one.log),
            )
        )
    return shown


async def _stream(target: Target) -> tuple[dict[str, int], list[dict[str, Any]], str | None]:
    try:
        published = await read_registry(target.kafka, target.topics)
        pipes = [
            {
                "pipe": name,
                "version": known.version,
                "destinations": [one.name for one in known.pipe.destinations],
                "description": known.pipe.description,
            }
            for name, known in sorted(published.pipes.items())
        ]
        return await backlog(target.kafka, target.topics), pipes, None
    except HifiError as error:
        return {}, [], str(error)


def _show(found: dict[str, Any]) -> None:
    console.print(f"[bold]{found['stream']}[/] on Kafka {found['kafka']}", highlight=False)
    if found["url"]:
        console.print(f"events go to {found['url']}, trigger {found['trigger']}", highlight=False)
    if found["console"]:
        console.print(f"the console is at {found['console']}", highlight=False)
    if found["problem"]:
        console.print(f"[red]{escape(found['problem'])}[/]", highlight=False)
    if found["instances"]:
        console.print(_instance_table(found["instances"]))
    if found["backlog"]:
        rows = table("service", ">records waiting", title="\nBacklog")
        for service, count in found["backlog"].items():
            rows.add_row(service, f"{count:,}")
        console.print(rows)
    rows = table("pipe", ">version", "destinations", "description", title="\nPipes")
    for pipe in found["pipes"]:
        rows.add_row(
            pipe["pipe"], str(pipe["version"]), ", ".join(pipe["destinations"]), escape(pipe["description"])
        )
    console.print(rows if found["pipes"] else "\nno pipes are published; `hifi apply DIR` publishes some")


def _instance_table(instances: list[dict[str, Any]]) -> Any:
    rows = table("instance", "state", ">events/s", ">pid", ">port", "waits for", title="\nServices")
    for one in instances:
        state = f"[green]{one['state']}[/]" if one["ready"] else f"[yellow]{one['state']}[/]"
        rate = "-" if one["rate_per_s"] is None else f"{one['rate_per_s']:,.0f}"
        rows.add_row(
            one["name"], state, rate, str(one["pid"]), str(one["port"]), escape("; ".join(one["waiting"]))
        )
    return rows
