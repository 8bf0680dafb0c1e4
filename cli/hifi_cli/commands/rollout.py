"""hifi rollout: show and change the rollouts of pipes."""

from typing import Annotated, Any

import typer

from hifi.event import Record
from hifi.pipe import rollout
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry
from hifi.pipe.revision import WHOLE
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream

app = typer.Typer(help="Show and change the rollouts of pipes.")
PipeName = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]


@app.command()
@report_errors
async def status(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the rollouts that run: the current and the next revision, and the share of the next one.

    Examples:
      hifi rollout status
    """
    target = kafka_target(data, kafka, stream)
    found = running(await read_registry(target.kafka, target.topics))
    if as_json:
        print_json(found)
        return
    if not found:
        console.print("No rollout runs. Begin one with `hifi apply DIR --share PERCENT`.")
        return
    rows = table("pipe", ">current", ">next", ">share of next")
    for one in found:
        rows.add_row(
            one["pipe"], str(one["current"]), str(one["next"]), rollout.percent(one["share_per_10000"])
        )
    print_table(rows, console)


@app.command()
@report_errors
async def share(
    pipe: PipeName,
    percent: Annotated[float, typer.Argument(min=0, max=100, metavar="PERCENT", help="Share of the keys.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Give the next revision another share of the pipe's keys.

    Examples:
      hifi rollout share flights 50
    """
    target = kafka_target(data, kafka, stream)
    published = await read_registry(target.kafka, target.topics)
    await _write(target, rollout.change_share(published, pipe, round(percent * WHOLE / 100)))
    console.print(f"{percent:g} % of the keys of {pipe} get the next revision.", highlight=False)


@app.command()
@report_errors
async def promote(
    pipe: PipeName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Make the next revision the current one: all new events get it.

    Examples:
      hifi rollout promote flights
    """
    target = kafka_target(data, kafka, stream)
    published = await read_registry(target.kafka, target.topics)
    await _write(target, rollout.promote(published, pipe))
    console.print(f"All new events of {pipe} get the next revision, which is the current one now.")


@app.command()
@report_errors
async def abort(
    pipe: PipeName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """End a rollout: all new events get the current revision; those on their way finish with theirs.

    Examples:
      hifi rollout abort flights
    """
    target = kafka_target(data, kafka, stream)
    published = await read_registry(target.kafka, target.topics)
    await _write(target, rollout.abort(published, pipe))
    console.print(f"All new events of {pipe} get the current revision.")


def running(published: RegistrySnapshot) -> list[dict[str, Any]]:
    """The rollouts that run, by pipe."""
    return [
        {
            "pipe": name,
            "current": known.revision,
            "next": known.rollout.next.revision,
            "share_per_10000": known.rollout.share,
        }
        for name, known in sorted(published.pipes.items())
        if known.rollout is not None
    ]


async def _write(target: Target, records: list[Record]) -> None:
    await publish(target.kafka, target.topics, records)
