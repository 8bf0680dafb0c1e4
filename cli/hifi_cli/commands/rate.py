"""hifi rate: the scale rating of a mesh on this machine."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from hifi.errors import Misconfigured
from hifi.units import seconds as read_seconds
from hifi_cli.demo.load_test import Scene
from hifi_cli.demo.progress import shown
from hifi_cli.demo.workspace import Stage
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.error_reporting import FAILED, INTERRUPTED, reported
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.log_file import log_to
from hifi_cli.options import AsJson, TriggerOf
from hifi_cli.rate.chart import chart
from hifi_cli.rate.event_load import Load, read_sizes
from hifi_cli.rate.rate_search import Ladder
from hifi_cli.rate.report import is_whole, line, report, sentence, tables
from hifi_cli.rate.run import Rating
from hifi_cli.rate.step import Step
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, read_scale
from hifi_infra.ports import free_port


@reported
def rate(
    slo: Annotated[
        str, typer.Option("--slo", metavar="DURATION", help="The end-to-end p95 that must hold.")
    ] = "1s",
    first: Annotated[
        float, typer.Option("--from", min=1, max=100_000, metavar="EV_PER_S", help="The first rate.")
    ] = 250,
    factor: Annotated[
        float, typer.Option("--step", min=1.05, max=10, metavar="FACTOR", help="From one rate to the next.")
    ] = 1.6,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=3600, metavar="SECONDS", help="Time at each rate.")
    ] = 10,
    batch: Annotated[
        int,
        typer.Option("--batch", min=1, max=10_000, metavar="EVENTS", help="Events a request, in and out."),
    ] = 1,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="BYTES[-BYTES]", help="Size of an event; default: a flight's, 280 B."),
    ] = None,
    trigger: TriggerOf = "micro-batch",
    wanted: Annotated[
        float | None,
        typer.Option(
            "--load",
            min=1,
            metavar="EV_PER_S",
            help="Say how many instances carry this; default: the rating.",
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option("--scale", metavar="SERVICE=N", help="Instances of a service; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, max=1000, help="Of each event topic; default: 4.")
    ] = None,
    to_file: Annotated[
        Path | None,
        typer.Option("--report", dir_okay=False, metavar="FILE", help="Write the numbers as JSON, too."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--chart", dir_okay=False, metavar="FILE", help="Draw them as SVG.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Find out how many events a second a mesh on this machine carries, and what limits it.

    Starts a mesh of its own in a temporary folder, with the pipe and the real flights of `hifi demo`, and raises the
    load step by step until the end-to-end p95 passes the SLO, a backlog grows, or the sender cannot keep up. The load
    is an open loop: the lag of each event counts from the moment it was due, so a mesh that stalls cannot hide it. A
    rate counts only when every event arrives once at every destination that wants it, with every value as declared.

    Exit status 0 only when a rate held and nothing was lost at any rate.

      hifi rate
      hifi rate --batch 100 --trigger real-time --report rate.json --chart rate.svg
      hifi rate --slo 250ms --load 20000
    """
    for file in (to_file, picture):
        if file is not None and not file.resolve().parent.is_dir():
            raise Misconfigured(f"{file}: there is no folder {file.resolve().parent}")
    load = Load(batch, *read_sizes(size))
    folder = Path(tempfile.mkdtemp(prefix="hifi-rate-"))
    stage = Stage.at(folder)
    try:
        plan = Plan(
            folder,
            port=stage.ingest_port,
            console_port=free_port(but={stage.ingest_port, stage.destination_port}),
            trigger=trigger,
            partitions=partitions,
            scale={"observe": 1} | read_scale(scale or []),
            env=stage.secrets,
        )
        mesh = Mesh(plan)
        mesh.prepare()
        log_to(folder / "logs" / "mesh.log")
        rating = Rating(Scene(stage, mesh), Ladder(first, factor), load, seconds, _milliseconds(slo), _say)
        asyncio.run(_run(rating))
        numbers = report(rating, os.cpu_count() or 1, wanted)
    except typer.Exit:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)  # not after an error, which names a log in it
    if to_file is not None:
        to_file.write_bytes(orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    if picture is not None:
        picture.write_text(chart(numbers, f"{sentence(numbers)}, {trigger}, {batch} event(s) a request"))
    _tell(numbers, as_json=as_json)
    if not is_whole(rating):
        raise typer.Exit(FAILED)


async def _run(rating: Rating) -> None:
    interrupts = Interrupts()
    with interrupts.caught():
        try:
            async with shown(rating.scene):
                await interrupts.unless(rating.run())
        except Interrupted:
            errors.print("interrupted: ending every process", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            await rating.scene.kill()
            # Threads may still write into the folder that is removed next.
            await asyncio.get_running_loop().shutdown_default_executor()


def _say(step: Step, why: str | None) -> None:
    errors.print(escape(line(step, why)), highlight=False)


def _milliseconds(text: str) -> float:
    try:
        value = float(read_seconds(text)) * 1000
    except ValueError as error:
        raise Misconfigured(f"--slo: {error}") from None
    if value <= 0:
        raise Misconfigured("--slo: must be above 0")
    return value


def _tell(numbers: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(numbers)
        return
    for one in tables(numbers):
        console.print(one)
    limit = numbers["bottleneck"]
    console.print(f"\nbottleneck: [bold]{limit['service']}[/], {escape(limit['why'])}", highlight=False)
    good = numbers["rated"] is not None
    console.print(f"[bold {'green' if good else 'red'}]{escape(sentence(numbers))}[/]", highlight=False)
