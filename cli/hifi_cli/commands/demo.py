"""hifi demo: a whole mesh at work on real flights, and the proof that it did what was declared."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from hifi.errors import Misconfigured
from hifi_cli.demo.load_test import Scene
from hifi_cli.demo.progress import shown
from hifi_cli.demo.report import is_good, tables
from hifi_cli.demo.run import Demo
from hifi_cli.demo.workspace import Stage
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.error_reporting import FAILED, INTERRUPTED, reported
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import AsJson, TriggerOf
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan


@reported
def demo(
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, max=20_000, metavar="EV_PER_S", help="Events a second.")
    ] = 500,
    seconds: Annotated[
        float, typer.Option("--for", min=1, max=86_400, metavar="SECONDS", help="Time to send for.")
    ] = 60,
    trigger: TriggerOf = "micro-batch",
    report: Annotated[
        Path | None,
        typer.Option("--report", dir_okay=False, metavar="FILE", help="Write the numbers as JSON, too."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            file_okay=False,
            help="Folder for everything; default: a temporary one, removed at the end.",
        ),
    ] = None,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the temporary folder: books, logs, Kafka's data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a whole mesh on real flights and prove that every event was delivered exactly as declared.

    Starts Kafka, every service and a destination, sends flights that left New York in 2013 (joined with airlines,
    airports, planes and the weather of the hour), and compares every value that arrives with what plain Python makes
    of the same data. Sender and destination keep books of their own: what is counted is counted outside of hifi.

    Exit status 0 only when every accepted event was delivered exactly as declared.

      hifi demo
      hifi demo --rate 1000 --for 30 --trigger real-time --report demo.json
    """
    if report is not None and not report.resolve().parent.is_dir():
        raise Misconfigured(f"--report {report}: there is no folder {report.resolve().parent}")
    folder = data.resolve() if data else Path(tempfile.mkdtemp(prefix="hifi-demo-"))
    stage = Stage.at(folder)
    numbers: dict[str, Any] | None = None
    interrupted = False
    try:
        mesh = Mesh(Plan(folder, port=stage.ingest_port, trigger=trigger, env=stage.secrets))
        mesh.prepare()
        log_to(folder / "logs" / "mesh.log")
        numbers = asyncio.run(_run(Demo(Scene(stage, mesh), rate, seconds), orderly=data is not None))
    except typer.Exit:
        interrupted = True
        raise
    finally:
        whole = numbers is not None and is_good(numbers)
        if data is None and not keep and (whole or interrupted):  # an error names a log in it
            shutil.rmtree(folder, ignore_errors=True)
    if report is not None:
        report.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    _tell(numbers, folder if folder.exists() else None, as_json=as_json)
    if not whole:
        raise typer.Exit(FAILED)


async def _run(run: Demo, *, orderly: bool) -> dict[str, Any]:
    interrupts = Interrupts()
    with interrupts.caught():
        try:
            async with shown(run.scene):
                numbers = await interrupts.unless(run.run())
            if orderly:
                await interrupts.unless(run.stop())
            return numbers
        except Interrupted:
            errors.print("interrupted: ending every process", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            await run.kill()
            # Threads may still write into the folder that is removed next.
            await asyncio.get_running_loop().shutdown_default_executor()


def _tell(numbers: dict[str, Any], folder: Path | None, *, as_json: bool) -> None:
    if as_json:
        print_json(numbers)
        return
    for one in tables(numbers):
        console.print(one)
    for difference in numbers["differences"]:
        console.print(f"[red]{escape(difference)}[/]", highlight=False)
    accepted = numbers["accepted"]
    if is_good(numbers):
        console.print(
            f"\n[bold green]all {accepted:,} accepted events were delivered exactly as declared[/]",
            highlight=False,
        )
    else:
        console.print(
            f"\n[bold red]not every event was delivered exactly as declared[/]; see {folder}/logs",
            highlight=False,
        )
    if folder is not None:
        console.print(f"everything is in {folder}", highlight=False, style="dim")
