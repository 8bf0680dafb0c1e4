"""hifi send: send events from a file or standard input."""

import asyncio
import io
import os
import sys
from typing import Annotated

import aiohttp
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.display.console import console, errors, print_json, print_text
from hifi_cli.error_reporting import FAILED, INTERRUPTED, report_errors
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.mesh_state.target import ingest_url
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, IngestUrl
from hifi_cli.sending.batches import BatchReader, new_run_id
from hifi_cli.sending.client import IngestClient
from hifi_cli.sending.event_files import FileFormat, read_events


@report_errors
async def send(
    pipe: Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="File of events, or - for standard input.")],
    key: Annotated[
        str, typer.Option("--key", envvar="HIFI_KEY", metavar="KEY", help="Write key of the pipe.")
    ] = "",
    data: Data = DEFAULT_DATA,
    url: IngestUrl = None,
    file_format: Annotated[
        FileFormat,
        typer.Option(
            "--format", help="Format of the file. auto: detect by suffix, otherwise by the first character."
        ),
    ] = FileFormat.AUTO,
    batch: Annotated[
        int,
        typer.Option(
            "--batch", min=1, max=10_000, metavar="COUNT", help="Maximum number of events in a request."
        ),
    ] = 500,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            min=1,
            max=64,
            metavar="COUNT",
            help="Concurrent requests. More than 1 does not preserve the order of the file.",
        ),
    ] = 1,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", min=0, metavar="SECONDS", help="Give up if no request is accepted for this long."
        ),
    ] = 120,
    *,
    types: Annotated[
        bool,
        typer.Option(
            "--types",
            help="CSV: convert numbers, true, false and empty values to JSON types. Default: all values are text.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send the events of a file to a pipe. Formats: JSON lines, a JSON array, or CSV with a header line.

    A request that ingest cannot accept at the moment is sent again with the same
    Idempotency-Key until it is accepted, so that its events are delivered once.
    The same command given again sends all events again, as new ones unless the
    pipe declares `source.id`; after Ctrl-C the result names the lines whose
    request was in flight. Exit status: 0 if every event was accepted.

    Examples:
      hifi send hello events.ndjson --key hello
      HIFI_KEY=... hifi send orders orders.csv --types
      jq -c '.items[]' in.json | hifi send orders - --url http://ingest:8080
    """
    if not key:
        raise Misconfigured("the write key of the pipe is missing: give --key, or set HIFI_KEY")
    address = ingest_url(data, url)
    interrupts = Interrupts()
    problem: Exception | None = None
    stream = _open_input(file)
    with _progress() as progress, interrupts.handle_signals():
        bar = progress.add_task("sending", total=None, reason="")
        async with aiohttp.ClientSession() as session:
            client = IngestClient(session, address, pipe, key, patience_s=patience)
            events = read_events(stream, file, file_format, types=types)
            intake = BatchReader(events, new_run_id(), max_events=batch, refuse=client.counts.refuse)
            update_task = asyncio.create_task(_update_progress(client, progress, bar))
            intake.start()
            try:
                await interrupts.run(client.send(intake.batch, concurrency=concurrency))
                problem = intake.failed
            except (HifiError, Interrupted) as error:
                problem = error
            update_task.cancel()
    _print_result(client, file, problem, as_json=as_json)


async def _update_progress(client: IngestClient, progress: Progress, bar: TaskID) -> None:
    while True:
        progress.update(bar, completed=client.counts.accepted, reason=escape(client.obstacle))
        await asyncio.sleep(0.1)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        TextColumn("{task.completed:,.0f} events accepted"),
        TimeElapsedColumn(),
        TextColumn("[yellow]{task.fields[reason]}", table_column=Column(ratio=1, no_wrap=True)),
        console=errors,
        expand=True,
        transient=True,
    )


def _open_input(file: str) -> io.BufferedReader:
    """Open the file. Only the thread that reads it closes it: anyone else would wait until a read of a pipe ends."""
    try:
        # Copy the descriptor: Python could not close its own standard input while a thread reads from it.
        return open(os.dup(sys.stdin.fileno()) if file == "-" else file, "rb")  # noqa: PTH123
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from None


def _print_result(client: IngestClient, file: str, problem: Exception | None, *, as_json: bool) -> None:
    counts = client.counts
    if as_json:
        totals = {"accepted": counts.accepted, "refused": counts.refused}
        refusals = [{"number": number, "reason": reason} for number, reason in counts.refusals]
        in_flight = [
            {"first": first_number, "last": last_number} for first_number, last_number in client.in_flight
        ]
        interruption = {"problem": str(problem) if problem else None, "in_flight": in_flight}
        print_json(totals | {"repeats": counts.repeats, "refusals": refusals} | interruption)
    else:
        for number, reason in counts.refusals:
            print_text(f"{file}:{number}: {reason}")
        suffix = f", {counts.refused:,} refused" if counts.refused else ""
        console.print(f"{counts.accepted:,} event(s) accepted{suffix}", highlight=False)
        for first_number, last_number in client.in_flight:
            console.print(
                f"{file}:{first_number} to {last_number} were in flight: they may be accepted or not; sending them"
                " again makes new events unless the pipe declares source.id",
                highlight=False,
            )
    if isinstance(problem, Interrupted):
        raise typer.Exit(INTERRUPTED)
    if problem is not None:
        raise problem
    if counts.refused:
        raise typer.Exit(FAILED)
