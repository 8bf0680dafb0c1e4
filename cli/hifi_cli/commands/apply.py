"""hifi apply: publish pipes."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final

import typer

from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.pipe.revision import WHOLE
from hifi.pipe.rollout import require_readable
from hifi.runtime.errors import Misconfigured
from hifi_cli.commands.check import Folder, Quick, load_checked_pipes
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_cli.mesh_state.manage_api import ManageApi
from hifi_cli.mesh_state.target import Target, kafka_targets
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, ManageTokenFile, ManageUrl, Stream
from hifi_infra.kafka.stream_setup import put_in_force

_COLOURS: Final = {
    "new": "green",
    "changed": "yellow",
    "again": "yellow",
    "rolling out": "yellow",
    "unchanged": "dim",
    "deleted": "red",
}
_UNDONE: Final = (RolloutState.ROLLED_BACK, RolloutState.REFUSED)
"""States of a declaration that is not in force and stays so; the same pipe is declared again then."""
_NO_SHARE: Final = "--share is for meshes without a control plane: here the rollout service sets the shares"
DeleteMissing = Annotated[
    bool,
    typer.Option("--delete-missing", help="Delete published pipes that are not in the folder."),
]


@report_errors
def apply(
    folder: Folder,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    manage: ManageUrl = None,
    manage_token_file: ManageTokenFile = None,
    *,
    delete_missing: DeleteMissing = False,
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            min=0,
            max=100,
            metavar="PERCENT",
            help="Give changed pipes to this share of their keys first, as a rollout.",
            show_default="all events at once",
        ),
    ] = None,
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Check the pipes of a folder and publish them to all running services, without a restart.

    If any pipe has a problem, nothing is published. A pipe that has not changed
    keeps its revision. With --share a changed pipe becomes the next revision for
    a share of its keys; go on with --share again or with `hifi rollout`. In a
    mesh with a control plane the pipes are declared, and the rollout service puts
    them into force in phases: `hifi rollout status` shows how far it is; one that
    was rolled back or refused is declared again. With --manage they are declared
    through the management API; if somebody changes a pipe at the same time, it is
    left as it is and the command fails.

    Examples:
      hifi apply pipes/
      hifi apply pipes/ --delete-missing
      hifi apply pipes/ --share 10
      hifi apply pipes/ --manage https://manage.example.com
    """
    if manage:
        if share is not None:
            raise Misconfigured(_NO_SHARE)
        pipes = load_checked_pipes(folder, "micro-batch", quick=quick)
        api = ManageApi(manage, manage_token_file)
        _print_declared(_declare_by_api(api, pipes, delete_missing=delete_missing), as_json=as_json)
        return
    targets = kafka_targets(data, kafka, stream)
    target = next(iter(targets.values()))
    trigger = target.running.trigger if target.running else "auto"
    pipes = load_checked_pipes(
        folder,
        trigger,
        quick=quick,
        passed_folder=data / "checked" if target.running else None,
        function_folders=target.running.python_path if target.running else None,
    )
    if target.control is not None:
        if share is not None:
            raise Misconfigured(_NO_SHARE)
        outcomes = asyncio.run(_declare(target, target.control, pipes, delete_missing=delete_missing))
        _print_declared(outcomes, as_json=as_json)
        return
    per_10000 = None if share is None else round(share * WHOLE / 100)
    for name, target in targets.items():
        changes, revisions = asyncio.run(
            _publish(target, pipes, delete_missing=delete_missing, share=per_10000)
        )
        _print_published(name, changes, revisions, as_json=as_json)


async def declared_pipes(target: Target) -> tuple[dict[str, Pipe | None], Mapping[str, Declaration]]:
    """Name to the pipe that is wanted now, None if it is to be deleted, and the declarations that say so.

    Raises:
        Misconfigured: Kafka does not answer.
    """
    registry = await read_registry(target.kafka, target.topics)
    before: dict[str, Pipe | None] = {name: revision.pipe for name, revision in registry.pipes.items()}
    newest_declarations = {} if target.control is None else await target.control.declared()
    return before | {
        name: declaration.pipe for name, declaration in newest_declarations.items()
    }, newest_declarations


def wanted_pipes(
    pipes: Iterable[Pipe], before: Mapping[str, Pipe | None], *, delete_missing: bool
) -> dict[str, Pipe | None]:
    """Name to the pipe that a folder wants, None if it is to be deleted.

    Args:
        pipes: of the folder.
        before: as `declared_pipes` returns them.
        delete_missing: whether pipes that are not in the folder are to be deleted.
    """
    after: dict[str, Pipe | None] = {pipe.pipe: pipe for pipe in pipes}
    if delete_missing:
        after |= dict.fromkeys(
            name for name, pipe in before.items() if name not in after and pipe is not None
        )
    return after


async def _declare(
    target: Target, control: ControlPlane, pipes: list[Pipe], *, delete_missing: bool
) -> Mapping[str, str]:
    """Declare what differs from the newest declaration, or without one from what is in force, and what was undone."""
    registry = await read_registry(target.kafka, target.topics)
    if registry.coloured:
        require_fit_for_colours(pipes)
    require_readable(registry, sorted(pipe.pipe for pipe in pipes))
    before, declared = await declared_pipes(target)
    undone_names = await _undone(control, declared)
    declared_now = wanted_pipes(pipes, before, delete_missing=delete_missing)
    if delete_missing:
        declared_now |= dict.fromkeys((registry.held.keys() | undone_names) - declared_now.keys())
    changed_pipes = {
        name: pipe
        for name, pipe in declared_now.items()
        if name not in before or before[name] != pipe or name in undone_names
    }
    if changed_pipes:
        await control.declare(changed_pipes, registry.pipes, declared)
    return {name: _change(name, declared_now, before, undone_names) for name in sorted(declared_now)}


async def _undone(control: ControlPlane, declared: Mapping[str, Declaration]) -> set[str]:
    """The pipes whose newest declaration was rolled back or refused."""
    statuses = await control.statuses()
    return {
        name
        for name, declaration in declared.items()
        if (status := statuses.get(name)) is not None
        and status.declaration == declaration.pipe_number
        and status.state in _UNDONE
    }


def _declare_by_api(api: ManageApi, pipes: list[Pipe], *, delete_missing: bool) -> Mapping[str, str]:
    """Declare what differs or was undone, one pipe after the other."""
    pipe_names = {pipe.pipe for pipe in pipes}
    managed_pipes = {
        name: api.pipe(name) for name in sorted(pipe_names | set(api.names() if delete_missing else ()))
    }
    pipes_before = {name: managed_pipe.pipe for name, managed_pipe in managed_pipes.items()}
    undone_names = {name for name, managed_pipe in managed_pipes.items() if managed_pipe.rollout in _UNDONE}
    pipes_after = wanted_pipes(pipes, pipes_before, delete_missing=delete_missing)
    if delete_missing:
        pipes_after |= dict.fromkeys(undone_names - pipes_after.keys())
    for name in sorted(pipes_after):
        if pipes_after[name] != pipes_before[name] or name in undone_names:
            api.change(name, pipes_after[name], managed_pipes[name])
    return {name: _change(name, pipes_after, pipes_before, undone_names) for name in sorted(pipes_after)}


def _change(
    name: str,
    after: Mapping[str, Pipe | None],
    before: Mapping[str, Pipe | None],
    undone_names: Collection[str],
) -> str:
    if after[name] is None:
        return "deleted"
    if before.get(name) is None:
        return "new"
    if after[name] != before[name]:
        return "changed"
    return "again" if name in undone_names else "unchanged"


def _print_declared(changes: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({name: {"change": change} for name, change in changes.items()})
        return
    rows = table("pipe", "declared")
    for name, change in changes.items():
        rows.add_row(name, f"[{_COLOURS[change]}]{change}[/]")
    print_table(rows, console)
    if set(changes.values()) != {"unchanged"}:
        console.print("The rollout service puts them into force: `hifi rollout status` shows how far it is.")


def _print_published(
    colour: str, changes: Mapping[str, str], revisions: Mapping[str, int], *, as_json: bool
) -> None:
    """Print the changes of one mesh; of a colour with its name."""
    if as_json:
        output = {
            name: {"change": change, "revision": revisions.get(name)} for name, change in changes.items()
        }
        print_json({colour: output} if colour else output)
        return
    rows = table("pipe", "change", ">revision", title=colour or None)
    for name, change in changes.items():
        rows.add_row(name, f"[{_COLOURS[change]}]{change}[/]", str(revisions.get(name, "-")))
    print_table(rows, console)


async def _publish(
    target: Target, pipes: list[Pipe], *, delete_missing: bool, share: int | None
) -> tuple[Mapping[str, str], dict[str, int]]:
    """Publish the pipes; return the change of each pipe, and its newest revision."""
    registry = await read_registry(target.kafka, target.topics)
    revisions_before = registry.pipes
    pipe_names = {pipe.pipe for pipe in pipes}
    if delete_missing:
        pipe_names |= revisions_before.keys() | registry.held.keys()
    old_numbers = {
        f"pipe/{name}": revisions_before[name].number if name in revisions_before else None
        for name in sorted(pipe_names)
    }
    async with target.principals.audited("apply", old_numbers) as values_after:
        changes = await put_in_force(
            target.kafka, target.topics, pipes, delete_missing=delete_missing, share=share
        )
        revisions = (await read_registry(target.kafka, target.topics)).pipes
        values_after |= {f"pipe/{name}": revision.number for name, revision in revisions.items()}
    return changes, {
        name: (revision.rollout.next if revision.rollout else revision).number
        for name, revision in revisions.items()
    }
