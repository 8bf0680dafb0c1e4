"""hifi demo: run a mesh on real flights and verify every delivery."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import orjson
import typer
from rich.markup import escape

from hifi.runtime.errors import Misconfigured
from hifi_cli.demo.cdc.change_demo import ChangeDemo
from hifi_cli.demo.cdc.report import is_good as changes_are_good
from hifi_cli.demo.cdc.report import report_tables
from hifi_cli.demo.colours.colour_report import colours_are_good
from hifi_cli.demo.colours.colour_tour import ColourTour
from hifi_cli.demo.control_tour import ControlTour, with_control_plane
from hifi_cli.demo.flights_demo import Demo
from hifi_cli.demo.load_test import LoadProcesses, LoadTest
from hifi_cli.demo.progress import show_progress
from hifi_cli.demo.report import is_good, tables
from hifi_cli.demo.state.step_demo import StepDemo, with_steps
from hifi_cli.demo.state.step_report import step_results_are_good, step_table
from hifi_cli.demo.tour_parts import TourParts
from hifi_cli.demo.tour_report import is_good as tour_is_good
from hifi_cli.demo.tour_report import tour_table
from hifi_cli.demo.workspace import Workspace
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.tables import print_table
from hifi_cli.error_reporting import FAILED, INTERRUPTED, report_errors
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import AsJson, Secure, TriggerOf
from hifi_infra.mesh import running
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, Trigger

_Run: TypeAlias = Demo | ControlTour | ColourTour | ChangeDemo | StepDemo


@report_errors
def demo(
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.1,
            max=20_000,
            metavar="EV_PER_S",
            help="Events per second. Default: 500, with --control 200, with --colours 100.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for", min=1, max=86_400, metavar="SECONDS", help="Duration of the load. Default: 60."
        ),
    ] = None,
    trigger: TriggerOf = "auto",
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", dir_okay=False, metavar="FILE", help="Also write the report as JSON to this file."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            file_okay=False,
            metavar="DIR",
            help="Folder for all files. Default: a temporary folder, removed at the end.",
        ),
    ] = None,
    *,
    control: Annotated[
        bool,
        typer.Option(
            "--control",
            help="Take a tour of the control plane instead, in about ten minutes: declare, ramp, roll back, scale in "
            "and deploy.",
        ),
    ] = False,
    colours: Annotated[
        bool,
        typer.Option(
            "--colours",
            help="Take a tour of two colours instead, in about six minutes: shift, drain, sleep, wake, and the loss "
            "of a colour.",
        ),
    ] = False,
    cdc: Annotated[
        bool,
        typer.Option(
            "--cdc",
            help="Deliver the changes of a PostgreSQL table instead, to a webhook, a second PostgreSQL and an Iceberg "
            "table.",
        ),
    ] = False,
    state: Annotated[
        bool,
        typer.Option(
            "--state",
            help="Compute steps (experimental) over a day of flights with late events instead, read a view meanwhile, "
            "and compare the results.",
        ),
    ] = False,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill",
            help="With --cdc: kill -9 each process once in the middle; with --state: each service.",
        ),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the temporary folder with logs, request logs and Kafka's data."),
    ] = False,
    secure: Secure = None,
    as_json: AsJson = False,
) -> None:
    """Run a complete mesh on real flights and verify that every event is delivered with the declared values.

    Starts Kafka, every service and a destination, and sends flights that left New
    York in 2013, enriched with airlines, airports, planes and weather. Every
    value that arrives is compared with the result of a plain Python program.
    Sender and destination keep their own logs, so all counts are made outside of
    hifi.

    Exit status: 0 only if every accepted event was delivered with the declared
    values, with --control or --colours only if every part of the tour did what
    it should, with --cdc only if each change arrived once and both tables equal
    the source, and with --state only if results and late events are those of an
    independent program.

    Examples:
      hifi demo
      hifi demo --rate 1000 --for 30 --trigger real-time --report demo.json
      hifi demo --control --report tour.json
      hifi demo --colours --report tour.json
      hifi demo --cdc --kill
      hifi demo --state --kill
    """
    kind = _kind(control=control, colours=colours, cdc=cdc, state=state)
    _refuse(kind, rate, seconds, secure, report, kill=kill)
    if data:
        running.read(data.resolve())  # refuses the folder of a newer release
    folder = data.resolve() if data else Path(tempfile.mkdtemp(prefix="hifi-demo-"))
    workspace = Workspace.at(folder)
    numbers: dict[str, Any] | None = None
    interrupted = False
    try:
        demo_run = _make_run(workspace, rate, seconds, trigger, secure, kind=kind, kill=kill)
        log_to(folder / "logs" / "mesh.log")
        numbers = asyncio.run(_run(demo_run, orderly=data is not None))
    except typer.Exit:
        interrupted = True
        raise
    finally:
        succeeded = numbers is not None and _KINDS[kind].good(numbers)
        # It is kept after an error, whose message names a log file in it, unless there is none yet.
        if data is None and not keep and (succeeded or interrupted or not any(folder.iterdir())):
            shutil.rmtree(folder, ignore_errors=True)
    if report is not None:
        report.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    if as_json:
        print_json(numbers)
    elif numbers is not None:
        _KINDS[kind].show(numbers)
    if folder.exists() and not as_json:
        console.print(f"All files are in {folder}.", highlight=False, style="dim")
    if not succeeded:
        raise typer.Exit(FAILED)


def _kind(**flags: bool) -> str:
    """Name of the demo; empty: the one without an option.

    Raises:
        Misconfigured: more than one was chosen.
    """
    flag_names = [name for name, is_chosen in flags.items() if is_chosen]
    if len(flag_names) > 1:
        raise Misconfigured(
            f"{' and '.join(f'--{name}' for name in flag_names)} are different demos: give one of them"
        )
    return "".join(flag_names)


def _refuse(
    kind: str,
    rate: float | None,
    seconds: float | None,
    secure: bool | None,
    report: Path | None,
    *,
    kill: bool,
) -> None:
    """Refuse options that do not go together, and a report that cannot be written."""
    if kind and seconds is not None:
        raise Misconfigured(f"--for does not go with --{kind}, which ends with its last part")
    if kind in {"cdc", "state"} and rate is not None:
        raise Misconfigured(f"--rate does not go with --{kind}, which has a pace of its own")
    if kind in {"colours", "cdc", "state"} and secure:
        raise Misconfigured(f"--secure does not go with --{kind}")
    if kill and kind not in {"cdc", "state"}:
        raise Misconfigured(
            "--kill goes with --cdc and --state only; `make chaos` kills the processes of other meshes"
        )
    if report is not None and not report.resolve().parent.is_dir():
        raise Misconfigured(f"--report {report}: the folder {report.resolve().parent} does not exist")


def _make_run(
    workspace: Workspace,
    rate: float | None,
    seconds: float | None,
    trigger: Trigger,
    secure: bool | None,
    *,
    kind: str,
    kill: bool,
) -> _Run:
    print_line = partial(errors.print, highlight=False)
    if kind == "colours":
        return ColourTour(LoadProcesses(workspace), rate or 100, trigger, TourParts(print_line))
    plan = Plan(
        workspace.data, port=workspace.ingest_port, trigger=trigger, secure=secure, env=workspace.secrets
    )
    demo_run: _Run
    if kind == "cdc":
        demo_run = ChangeDemo.planned(workspace, plan, print_line, kills=kill)
    elif kind == "state":
        demo_run = StepDemo(LoadTest(workspace, Mesh(with_steps(plan))), TourParts(print_line), kill)
    elif kind == "control":
        tour = LoadTest(workspace, Mesh(with_control_plane(plan)))
        demo_run = ControlTour(tour, rate or 200, TourParts(print_line))
    else:
        demo_run = Demo(LoadTest(workspace, Mesh(plan)), rate or 500, seconds or 60)
    demo_run.load_test.mesh.prepare()
    return demo_run


async def _run(demo_run: _Run, *, orderly: bool) -> dict[str, Any]:
    interrupts = Interrupts()
    progress = show_progress(demo_run.load_test) if isinstance(demo_run, Demo) else contextlib.nullcontext()
    with interrupts.handle_signals():
        try:
            async with progress:
                numbers = await interrupts.run(demo_run.run())
            if orderly:
                await interrupts.run(demo_run.stop())
            return numbers
        except Interrupted:
            errors.print("interrupted; ending all processes", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            await demo_run.kill()
            # Wait for threads that still write into the folder, which is removed next.
            await asyncio.get_running_loop().shutdown_default_executor()


def _print_tour(title: str, numbers: Mapping[str, Any]) -> None:
    print_table(tour_table(numbers, title), console)


def _print_changes(numbers: Mapping[str, Any]) -> None:
    for table in report_tables(numbers):
        print_table(table, console)


def _print_steps(numbers: Mapping[str, Any]) -> None:
    print_table(step_table(numbers), console)
    for line in numbers["differences"]:
        console.print(f"[red]{escape(line)}[/]", highlight=False)


def _print_report(numbers: Mapping[str, Any]) -> None:
    for table in tables(numbers):
        print_table(table, console)
    for difference in numbers["differences"]:
        console.print(f"[red]{escape(difference)}[/]", highlight=False)
    accepted_count = numbers["accepted"]
    if is_good(numbers):
        console.print(
            f"\n[bold green]All {accepted_count:,} accepted events were delivered exactly as declared.[/]",
            highlight=False,
        )
    else:
        console.print(
            "\n[bold red]Not every event was delivered exactly as declared.[/] See the folder `logs`.",
            highlight=False,
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """The parts of the demos that differ at their end: whether the report is good, and its output."""

    good: Callable[[Mapping[str, Any]], bool]
    show: Callable[[Mapping[str, Any]], None]


_KINDS: Final = {
    "": _Kind(is_good, _print_report),
    "control": _Kind(tour_is_good, partial(_print_tour, "Tour of the control plane")),
    "colours": _Kind(colours_are_good, partial(_print_tour, "Tour of two colours")),
    "cdc": _Kind(changes_are_good, _print_changes),
    "state": _Kind(step_results_are_good, _print_steps),
}
