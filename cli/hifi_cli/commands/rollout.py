"""hifi rollout: show and change the rollouts of pipes."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape

from hifi.control.request import RequestKind
from hifi.control.rollout_status import RolloutStatus
from hifi.pipe import rollout
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry
from hifi.pipe.revision import WHOLE
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
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

    In a mesh with a control plane it lists the newest declaration of every pipe,
    how far the rollout service is with it, and why.

    Examples:
      hifi rollout status
    """
    target = kafka_target(data, kafka, stream)
    if target.control is not None:
        _print_statuses(await target.control.statuses(), as_json=as_json)
        return
    rollouts = running(await read_registry(target.kafka, target.topics))
    if as_json:
        print_json(rollouts)
        return
    if not rollouts:
        console.print("No rollout runs. Begin one with `hifi apply DIR --share PERCENT`.")
        return
    rows = table("pipe", ">current", ">next", ">share of next")
    for running_rollout in rollouts:
        rows.add_row(
            running_rollout["pipe"],
            str(running_rollout["current"]),
            str(running_rollout["next"]),
            rollout.percent(running_rollout["share_per_10000"]),
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
    target = _without_control(kafka_target(data, kafka, stream), f"hifi rollout force {pipe}")
    registry = await read_registry(target.kafka, target.topics)
    records = rollout.change_share(registry, pipe, round(percent * WHOLE / 100))
    await _write(target, registry, pipe, "change the share of the next revision", records)
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
    target = _without_control(kafka_target(data, kafka, stream), f"hifi rollout force {pipe}")
    registry = await read_registry(target.kafka, target.topics)
    await _write(target, registry, pipe, "promote the next revision", rollout.promote(registry, pipe))
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
    if target.control is not None:
        await _ask_rollout(target, pipe, RequestKind.ABORT)
        return
    registry = await read_registry(target.kafka, target.topics)
    await _write(target, registry, pipe, "abort the rollout", rollout.abort(registry, pipe))
    console.print(f"All new events of {pipe} get the current revision.")


@app.command()
@report_errors
async def pause(
    pipe: PipeName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Have the control plane keep a rollout at its present share. What is worse is still rolled back.

    Examples:
      hifi rollout pause flights
    """
    await _ask_rollout(kafka_target(data, kafka, stream), pipe, RequestKind.PAUSE)


@app.command()
@report_errors
async def resume(
    pipe: PipeName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Have the control plane go on with a rollout after a pause.

    Examples:
      hifi rollout resume flights
    """
    await _ask_rollout(kafka_target(data, kafka, stream), pipe, RequestKind.RESUME)


@app.command()
@report_errors
async def force(
    pipe: PipeName,
    declaration: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Do it only while this declaration is the pipe's newest one."),
    ] = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Have the control plane take the next action of a rollout although it would wait. Your name is put on record.

    Examples:
      hifi rollout force flights
      hifi rollout force flights --declaration 12
    """
    await _ask_rollout(kafka_target(data, kafka, stream), pipe, RequestKind.FORCE, declaration)


def running(registry: RegistrySnapshot) -> list[dict[str, Any]]:
    """The rollouts that run, by pipe."""
    return [
        {
            "pipe": name,
            "current": revision.number,
            "next": revision.rollout.next.number,
            "share_per_10000": revision.rollout.share,
        }
        for name, revision in sorted(registry.pipes.items())
        if revision.rollout is not None
    ]


def _without_control(target: Target, command: str) -> Target:
    """The target, unless its control plane drives rollouts.

    Raises:
        Misconfigured: it does.
    """
    if target.control is not None:
        raise Misconfigured(
            f"the rollout service of the control plane drives the rollouts here: use `{command}`"
        )
    return target


async def _ask_rollout(target: Target, pipe: str, kind: RequestKind, declaration: int | None = None) -> None:
    if target.control is None:
        raise Misconfigured(
            f"`hifi rollout {kind.value}` needs a control plane (`hifi up --control`); without one use "
            f"`hifi rollout share|promote|abort {pipe}`"
        )
    status = await target.control.ask(pipe, kind, declaration)
    console.print(
        f"Asked the rollout service to {kind.value} declaration {status.declaration} of {pipe}.",
        highlight=False,
    )


def _print_statuses(statuses: Mapping[str, RolloutStatus], *, as_json: bool) -> None:
    if as_json:
        print_json([status.json() for status in statuses.values()])
        return
    if not statuses:
        console.print("No pipe was declared. Declare pipes with `hifi apply DIR`.")
        return
    rows = table("pipe", ">declaration", ">revision", "state", ">share", "why")
    for status in statuses.values():
        revision = "-" if status.revision is None else str(status.revision)
        share_text = rollout.percent(status.share)
        cells = status.pipe, str(status.declaration), revision, status.state.value, share_text, status.reason
        rows.add_row(*map(escape, cells))
    print_table(rows, console)


async def _write(
    target: Target, registry: RegistrySnapshot, pipe: str, action: str, records: list[Record]
) -> None:
    """Publish a change of a rollout that people drive, with its entries in the audit."""
    subject = f"pipe/{pipe}"
    async with target.principals.audited(action, {subject: _revisions_text(registry, pipe)}) as values_after:
        await publish(target.kafka, target.topics, records)
        values_after[subject] = _revisions_text(await read_registry(target.kafka, target.topics), pipe)


def _revisions_text(registry: RegistrySnapshot, pipe: str) -> str:
    """The revisions of a pipe and the share of the next one, for the audit."""
    revision = registry.pipes[pipe]
    text = f"revision {revision.number}"
    if revision.rollout is not None:
        text += f", {revision.rollout.share / 100:g} % revision {revision.rollout.next.number}"
    return text
