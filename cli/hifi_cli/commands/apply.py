"""hifi apply and hifi pipes: publish pipes, and list what is in force."""

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer
from rich.markup import escape

from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi_cli.commands.check import Folder, Quick, checked
from hifi_cli.display.console import console, print_json, table
from hifi_cli.error_reporting import reported
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_infra.kafka.stream_setup import put_in_force

_COLOURS = {"new": "green", "changed": "yellow", "unchanged": "dim", "deleted": "red"}


@reported
def apply(
    folder: Folder,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    delete_missing: Annotated[
        bool,
        typer.Option("--delete-missing", help="Delete the pipes in force that the folder does not have."),
    ] = False,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Check the pipes of a folder and put them in force, in all running services, without a restart.

    A folder with a problem is refused as a whole and nothing changes. Unchanged pipes keep their version.

      hifi apply pipes/
      hifi apply pipes/ --delete-missing
    """
    target = kafka_target(data, kafka, stream)
    trigger = target.running.trigger if target.running else "micro-batch"
    pipes = checked(
        folder,
        trigger,
        quick=quick,
        seen=data / "checked" if target.running else None,
        places=target.running.python_path if target.running else None,
    )
    outcome, versions = asyncio.run(_publish(target, pipes, delete_missing=delete_missing))
    if as_json:
        print_json(
            {name: {"change": change, "version": versions.get(name)} for name, change in outcome.items()}
        )
        return
    rows = table("pipe", "change", ">version")
    for name, change in outcome.items():
        rows.add_row(name, f"[{_COLOURS[change]}]{change}[/]", str(versions.get(name, "-")))
    console.print(rows)


async def _publish(
    target: Target, pipes: list[Pipe], *, delete_missing: bool
) -> tuple[Mapping[str, str], dict[str, int]]:
    """What became of each pipe, and the versions in force."""
    outcome = await put_in_force(target.kafka, target.topics, pipes, delete_missing=delete_missing)
    published = await read_registry(target.kafka, target.topics)
    return outcome, {name: known.version for name, known in published.pipes.items()}


@reported
async def pipes(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the pipes in force.

    hifi pipes
    hifi pipes --json | jq '.[].pipe.destinations[].url'
    """
    target = kafka_target(data, kafka, stream)
    published = await read_registry(target.kafka, target.topics)
    in_force = [published.pipes[name] for name in sorted(published.pipes)]
    if as_json:
        print_json(
            [
                {
                    "version": one.version,
                    "pipe": one.pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                }
                for one in in_force
            ]
        )
        return
    rows = table("pipe", ">version", "destinations", ">SLO p95 (s)", "description")
    for one in in_force:
        names = ", ".join(destination.name for destination in one.pipe.destinations)
        rows.add_row(
            one.pipe.pipe, str(one.version), names, f"{one.pipe.slo.p95:g}", escape(one.pipe.description)
        )
    console.print(rows if in_force else "no pipes are published; `hifi apply DIR` publishes some")
