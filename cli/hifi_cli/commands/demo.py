"""hifi demo: run a mesh on real flights and verify every delivery."""

import asyncio
import contextlib
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from hifi.errors import Misconfigured
from hifi_cli.demo.cdc.report import is_good as changes_are_good
from hifi_cli.demo.cdc.report import report_tables
from hifi_cli.demo.cdc.run import ChangeDemo
from hifi_cli.demo.control_tour import ControlTour, with_control_plane
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.progress import show_progress
from hifi_cli.demo.report import is_good, tables
from hifi_cli.demo.run import Demo
from hifi_cli.demo.tour_report import is_good as tour_is_good
from hifi_cli.demo.tour_report import tour_table
from hifi_cli.demo.tour_steps import TourSteps
from hifi_cli.demo.workspace import Workspace
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.tables import print_table
from hifi_cli.error_reporting import FAILED, INTERRUPTED, report_errors
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import AsJson, Secure, TriggerOf
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan


@report_errors
def demo(
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.1,
            max=20_000,
            metavar="EV_PER_S",
            help="Events per second. Default: 500, with --control 200.",
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
    cdc: Annotated[
        bool,
        typer.Option(
            "--cdc",
            help="Deliver the changes of a PostgreSQL table instead, to a webhook, a second PostgreSQL and an Iceberg "
            "table.",
        ),
    ] = False,
    kill: Annotated[
        bool, typer.Option("--kill", help="With --cdc: kill -9 each process once in the middle.")
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
    values, with --control only if every step of the tour did what it should, and
    with --cdc only if each change arrived once and both tables equal the source.

    Examples:
      hifi demo
      hifi demo --rate 1000 --for 30 --trigger real-time --report demo.json
      hifi demo --control --report tour.json
      hifi demo --cdc --kill
    """
    if cdc and (control or rate is not None or seconds is not None):
        raise Misconfigured("--cdc goes with none of --control, --rate and --for: it has a load of its own")
    if kill and not cdc:
        raise Misconfigured("--kill goes with --cdc only; `make chaos` kills the processes of other meshes")
    if control and seconds is not None:
        raise Misconfigured("--for does not go with --control: the tour ends with its last step")
    if report is not None and not report.resolve().parent.is_dir():
        raise Misconfigured(f"--report {report}: the folder {report.resolve().parent} does not exist")
    folder = data.resolve() if data else Path(tempfile.mkdtemp(prefix="hifi-demo-"))
    workspace = Workspace.at(folder)
    numbers: dict[str, Any] | None = None
    interrupted = False
    try:
        plan = Plan(
            workspace.data, port=workspace.ingest_port, trigger=trigger, secure=secure, env=workspace.secrets
        )
        tell = partial(errors.print, highlight=False)
        run: Demo | ControlTour | ChangeDemo
        if control:
            tour = LoadTest(workspace, Mesh(with_control_plane(plan)))
            run = ControlTour(tour, rate or 200, TourSteps(tell))
        elif cdc:
            run = ChangeDemo.planned(workspace, plan, tell, kills=kill)
        else:
            run = Demo(LoadTest(workspace, Mesh(plan)), rate or 500, seconds or 60)
        run.load_test.mesh.prepare()
        log_to(folder / "logs" / "mesh.log")
        numbers = asyncio.run(_run(run, orderly=data is not None))
    except typer.Exit:
        interrupted = True
        raise
    finally:
        good = tour_is_good if control else changes_are_good if cdc else is_good
        whole = numbers is not None and good(numbers)
        if (
            data is None and not keep and (whole or interrupted)
        ):  # kept after an error, whose message names a log file in it
            shutil.rmtree(folder, ignore_errors=True)
    if report is not None:
        report.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    if as_json:
        print_json(numbers)
    elif control:
        print_table(tour_table(numbers), console)
    elif cdc:
        for one in report_tables(numbers):
            print_table(one, console)
    else:
        _print_report(numbers)
    if folder.exists() and not as_json:
        console.print(f"All files are in {folder}.", highlight=False, style="dim")
    if not whole:
        raise typer.Exit(FAILED)


async def _run(run: Demo | ControlTour | ChangeDemo, *, orderly: bool) -> dict[str, Any]:
    interrupts = Interrupts()
    progress = show_progress(run.load_test) if isinstance(run, Demo) else contextlib.nullcontext()
    with interrupts.handle_signals():
        try:
            async with progress:
                numbers = await interrupts.run(run.run())
            if orderly:
                await interrupts.run(run.stop())
            return numbers
        except Interrupted:
            errors.print("interrupted; ending all processes", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            await run.kill()
            # Wait for threads that still write into the folder, which is removed next.
            await asyncio.get_running_loop().shutdown_default_executor()


def _print_report(numbers: dict[str, Any]) -> None:
    for one in tables(numbers):
        print_table(one, console)
    for difference in numbers["differences"]:
        console.print(f"[red]{escape(difference)}[/]", highlight=False)
    accepted = numbers["accepted"]
    if is_good(numbers):
        console.print(
            f"\n[bold green]All {accepted:,} accepted events were delivered exactly as declared.[/]",
            highlight=False,
        )
    else:
        console.print(
            "\n[bold red]Not every event was delivered exactly as declared.[/] See the folder `logs`.",
            highlight=False,
        )
