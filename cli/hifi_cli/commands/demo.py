"""hifi demo: run a mesh on real flights and verify every delivery."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from hifi.errors import Misconfigured
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.progress import show_progress
from hifi_cli.demo.report import is_good, tables
from hifi_cli.demo.run import Demo
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
        float, typer.Option("--rate", min=0.1, max=20_000, metavar="EV_PER_S", help="Events per second.")
    ] = 500,
    seconds: Annotated[
        float, typer.Option("--for", min=1, max=86_400, metavar="SECONDS", help="Duration of the load.")
    ] = 60,
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
    values.

    Examples:
      hifi demo
      hifi demo --rate 1000 --for 30 --trigger real-time --report demo.json
    """
    if report is not None and not report.resolve().parent.is_dir():
        raise Misconfigured(f"--report {report}: the folder {report.resolve().parent} does not exist")
    folder = data.resolve() if data else Path(tempfile.mkdtemp(prefix="hifi-demo-"))
    workspace = Workspace.at(folder)
    numbers: dict[str, Any] | None = None
    interrupted = False
    try:
        mesh = Mesh(
            Plan(folder, port=workspace.ingest_port, trigger=trigger, secure=secure, env=workspace.secrets)
        )
        mesh.prepare()
        log_to(folder / "logs" / "mesh.log")
        numbers = asyncio.run(_run(Demo(LoadTest(workspace, mesh), rate, seconds), orderly=data is not None))
    except typer.Exit:
        interrupted = True
        raise
    finally:
        whole = numbers is not None and is_good(numbers)
        if (
            data is None and not keep and (whole or interrupted)
        ):  # kept after an error, whose message names a log file in it
            shutil.rmtree(folder, ignore_errors=True)
    if report is not None:
        report.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    _print_report(numbers, folder if folder.exists() else None, as_json=as_json)
    if not whole:
        raise typer.Exit(FAILED)


async def _run(run: Demo, *, orderly: bool) -> dict[str, Any]:
    interrupts = Interrupts()
    with interrupts.handle_signals():
        try:
            async with show_progress(run.load_test):
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


def _print_report(numbers: dict[str, Any], folder: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(numbers)
        return
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
            f"\n[bold red]Not every event was delivered exactly as declared.[/] See {folder}/logs.",
            highlight=False,
        )
    if folder is not None:
        console.print(f"All files are in {folder}.", highlight=False, style="dim")
