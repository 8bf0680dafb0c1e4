"""hifi rate: find the event rate that a mesh on this machine can sustain."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import seconds as read_seconds
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.progress import show_progress
from hifi_cli.demo.workspace import Workspace
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.tables import print_table
from hifi_cli.error_reporting import FAILED, INTERRUPTED, report_errors
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import AsJson, Scale, TriggerOf
from hifi_cli.rate.chart import chart
from hifi_cli.rate.event_load import EventLoad, read_sizes
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.rating import Rating
from hifi_cli.rate.report import footnotes, is_whole, line, report, sentence, tables
from hifi_cli.rate.step import RateStep
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, read_scale
from hifi_infra.ports import free_port


@report_errors
def rate(
    slo: Annotated[
        str, typer.Option("--slo", metavar="DURATION", help="Maximum end-to-end lag (p95).")
    ] = "1s",
    first: Annotated[
        float, typer.Option("--from", min=1, max=100_000, metavar="EV_PER_S", help="First rate to try.")
    ] = 250,
    factor: Annotated[
        float, typer.Option("--step", min=1.05, max=10, metavar="FACTOR", help="Factor between two rates.")
    ] = 1.6,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=3600, metavar="SECONDS", help="Duration of each rate.")
    ] = 10,
    batch: Annotated[
        int,
        typer.Option(
            "--batch",
            min=1,
            max=10_000,
            metavar="EVENTS",
            help="Events in a request, to ingest and to destinations.",
        ),
    ] = 1,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="BYTES[-BYTES]",
            help="Size of an event, or a range. Default: that of a flight, about 280 B.",
        ),
    ] = None,
    trigger: TriggerOf = "auto",
    desired_rate: Annotated[
        float | None,
        typer.Option(
            "--load",
            min=1,
            metavar="EV_PER_S",
            help="Rate to plan the number of instances for. Default: the sustained rate.",
        ),
    ] = None,
    scale: Scale = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            metavar="COUNT",
            min=1,
            max=1000,
            help="Partitions of each event topic. Default: 4.",
        ),
    ] = None,
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--report", dir_okay=False, metavar="FILE", help="Also write the report as JSON to this file."
        ),
    ] = None,
    chart_file: Annotated[
        Path | None,
        typer.Option(
            "--chart", dir_okay=False, metavar="FILE", help="Draw lag and CPU cost over the rate as SVG."
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Find the event rate that a mesh on this machine can sustain, and the service that limits it.

    Starts a mesh in a temporary folder with the pipe and the flights of `hifi
    demo`, and raises the load step by step until the end-to-end p95 exceeds the
    SLO, a backlog grows, or the sender cannot keep up. The load is open-loop: lag
    is measured from the scheduled time of each event, so a stalled mesh cannot
    hide it. A rate is sustained only if every event arrives exactly once at each
    of its destinations with the declared values.

    Exit status: 0 only if a rate was sustained and no event was lost at any rate.

    Examples:
      hifi rate
      hifi rate --batch 100 --trigger real-time --chart rate.svg
      hifi rate --slo 250ms --load 20000
    """
    for file in (to_file, chart_file):
        if file is not None and not file.resolve().parent.is_dir():
            raise Misconfigured(f"{file}: the folder {file.resolve().parent} does not exist")
    load = EventLoad(batch, *read_sizes(size))
    folder = Path(tempfile.mkdtemp(prefix="hifi-rate-"))
    workspace = Workspace.at(folder)
    try:
        plan = Plan(
            folder,
            port=workspace.ingest_port,
            console_port=free_port(but={workspace.ingest_port, workspace.destination_port}),
            trigger=trigger,
            partitions=partitions,
            scale={"observe": 1} | read_scale(scale or []),
            env=workspace.secrets,
        )
        mesh = Mesh(plan)
        mesh.prepare()
        log_to(folder / "logs" / "mesh.log")
        rating = Rating(
            LoadTest(workspace, mesh),
            RateSearch(first, factor),
            load,
            seconds,
            _milliseconds(slo),
            _print_step,
        )
        asyncio.run(_run(rating))
        numbers = report(rating, os.cpu_count() or 1, desired_rate)
    except typer.Exit:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)  # kept after an error, whose message names a log file in it
    if to_file is not None:
        to_file.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    if chart_file is not None:
        chart_file.write_text(chart(numbers, f"{sentence(numbers)}, {trigger}, {batch} event(s) per request"))
    _print_report(numbers, as_json=as_json)
    if not is_whole(rating):
        raise typer.Exit(FAILED)


async def _run(rating: Rating) -> None:
    interrupts = Interrupts()
    with interrupts.handle_signals():
        try:
            async with show_progress(rating.load_test):
                await interrupts.run(rating.run())
        except Interrupted:
            errors.print("interrupted; ending all processes", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            await rating.load_test.kill()
            # Wait for threads that still write into the folder, which is removed next.
            await asyncio.get_running_loop().shutdown_default_executor()


def _print_step(step: RateStep, reason: str | None) -> None:
    errors.print(escape(line(step, reason)), highlight=False)


def _milliseconds(text: str) -> float:
    try:
        value = float(read_seconds(text)) * 1000
    except ValueError as error:
        raise Misconfigured(f"--slo: {error}") from None
    if value <= 0:
        raise Misconfigured("--slo must be above 0")
    return value


def _print_report(numbers: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(numbers)
        return
    for table in tables(numbers):
        print_table(table, console)
    for footnote in footnotes(numbers):
        console.print(footnote, highlight=False)
    limit = numbers["bottleneck"]
    console.print(f"\nBottleneck: [bold]{limit['service']}[/] ({escape(limit['why'])})", highlight=False)
    is_rated = numbers["rated"] is not None
    console.print(f"[bold {'green' if is_rated else 'red'}]{escape(sentence(numbers))}[/]", highlight=False)
