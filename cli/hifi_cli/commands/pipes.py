"""hifi pipes: list the published pipes, pause and resume them."""

from typing import Annotated

import typer
from rich.markup import escape

from hifi.pipe import rollout
from hifi.pipe.registry import HELD_ADVICE, publish, read_registry
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.manage_api import ManageApi
from hifi_cli.mesh_state.target import kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, ManageTokenFile, ManageUrl, Stream

NO_PIPES = "No pipes are published. Publish some with `hifi apply DIR`."

app = typer.Typer(invoke_without_command=True)
PipeName = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]


@app.callback()
@report_errors
async def pipes(
    context: typer.Context,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the published pipes, pause and resume them.

    Examples:
      hifi pipes
      hifi pipes --json | jq '.[].pipe.destinations[].url'
    """
    if context.invoked_subcommand is not None:
        return
    target = kafka_target(data, kafka, stream)
    registry = await read_registry(target.kafka, target.topics)
    revisions, held_pipes = [registry.pipes[name] for name in sorted(registry.pipes)], registry.held
    never_read = [name for name in held_pipes if name not in registry.pipes]
    if as_json:
        print_json(
            [
                {
                    "revision": revision.number,
                    "paused": revision.paused,
                    "pipe": revision.pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                    **({"held": held_pipes[revision.pipe.pipe]} if revision.pipe.pipe in held_pipes else {}),
                }
                for revision in revisions
            ]
            + [
                {"revision": None, "paused": False, "pipe": {"pipe": name}, "held": held_pipes[name]}
                for name in never_read
            ]
        )
        return
    if not revisions and not held_pipes:
        console.print(NO_PIPES)
        return
    rows = table("pipe", ">revision", "state", "destinations", ">SLO p95\ns", "description")
    for revision in revisions:
        destination_names = ", ".join(destination.name for destination in revision.pipe.destinations)
        rows.add_row(
            revision.pipe.pipe,
            str(revision.number),
            "held" if revision.pipe.pipe in held_pipes else "paused" if revision.paused else "active",
            destination_names,
            f"{revision.pipe.slo.p95:g}",
            escape(revision.pipe.description),
        )
    for name in never_read:
        rows.add_row(name, "-", "held", "", "", "")
    print_table(rows, console)
    for name, reason in held_pipes.items():
        console.print(f"{name} is held: {reason}. {HELD_ADVICE}.", highlight=False, markup=False)


@app.command()
@report_errors
async def pause(
    pipe: PipeName,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    manage: ManageUrl = None,
    manage_token_file: ManageTokenFile = None,
) -> None:
    """Let a pipe take no new events. What it accepted before is delivered.

    ingest answers 503 with Retry-After, so that senders keep their events; a
    source of the pipe is not read further.

    Examples:
      hifi pipes pause flights
    """
    await _set_paused(pipe, data, kafka, stream, manage, manage_token_file, paused=True)


@app.command()
@report_errors
async def resume(
    pipe: PipeName,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    manage: ManageUrl = None,
    manage_token_file: ManageTokenFile = None,
) -> None:
    """Let a paused pipe take events again. Its source is read on from where it was paused.

    Examples:
      hifi pipes resume flights
    """
    await _set_paused(pipe, data, kafka, stream, manage, manage_token_file, paused=False)


async def _set_paused(
    pipe: str,
    data: Data,
    kafka: Kafka,
    stream: Stream,
    manage: ManageUrl,
    manage_token_file: ManageTokenFile,
    *,
    paused: bool,
) -> None:
    """Pause or resume a pipe through the management API, the control plane, or else the topic `pipes` itself."""
    state = "paused" if paused else "active"
    if manage:
        ManageApi(manage, manage_token_file).set_paused(pipe, paused=paused)
        console.print(f"{pipe} is declared {state}; the rollout service puts it into force.", highlight=False)
        return
    target = kafka_target(data, kafka, stream)
    registry = await read_registry(target.kafka, target.topics)
    if target.control is not None:
        await target.control.set_paused(pipe, registry.pipes.get(pipe), paused=paused)
        console.print(f"{pipe} is declared {state}; the rollout service puts it into force.", highlight=False)
        return
    records, current_revision = rollout.change_pause(registry, pipe, paused=paused), registry.pipes.get(pipe)
    subject, old_state = (
        f"pipe/{pipe}",
        "paused" if current_revision is not None and current_revision.paused else "active",
    )
    action = "pause the pipe" if paused else "resume the pipe"
    async with target.principals.audited(action, {subject: old_state}) as values_after:
        await publish(target.kafka, target.topics, records)
        values_after[subject] = state
    console.print(f"{pipe} is {state}.", highlight=False)
