"""hifi send: events from a file or a pipe of the shell."""

import asyncio
import contextlib
import io
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import aiohttp
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hifi.errors import HifiError, Misconfigured
from hifi.pipe.model import Source
from hifi.pipe.registry import read_registry
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.error_reporting import FAILED, INTERRUPTED, reported
from hifi_cli.interrupts import Interrupted, Interrupts
from hifi_cli.mesh_state.target import ingest_url, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Url
from hifi_cli.sending.batches import Intake
from hifi_cli.sending.client import Client, Counts
from hifi_cli.sending.event_files import FileFormat, items


@reported
async def send(
    pipe: Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with events; - is standard input.")],
    key: Annotated[str, typer.Option("--key", envvar="HIFI_KEY", help="Write key of the pipe.")] = "",
    data: Data = DEFAULT_DATA,
    url: Url = None,
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="auto: by the file's suffix, else by its first character.")
    ] = FileFormat.AUTO,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=10_000, help="Most events in one request.")
    ] = 500,
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", min=1, max=64, help="Requests at a time; more than 1 gives up the file's order."
        ),
    ] = 1,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", min=0, metavar="SECONDS", help="Give up after nothing was accepted for so long."
        ),
    ] = 120,
    *,
    types: Annotated[
        bool,
        typer.Option(
            "--types", help="CSV: numbers, true, false and empty values become JSON's; else all is text."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send the events of a file to a pipe: JSON lines, a JSON array, or CSV with a header line.

    What ingest or Kafka cannot take now is sent again under the same Idempotency-Key until it is taken; only what
    was not taken is repeated. Exit status 0 when every event was accepted.

      hifi send hello events.ndjson --key hello
      HIFI_KEY=... hifi send orders orders.csv --types
      jq -c '.items[]' export.json | hifi send orders - --url http://ingest.example:8080
    """
    if not key:
        raise Misconfigured("a write key of the pipe is needed: give --key, or set HIFI_KEY")
    address = ingest_url(data, url)
    source = None if url else await _source(data, pipe)
    interrupts, problem = Interrupts(), None
    with _opened(file) as stream, _progress() as progress, interrupts.caught():
        bar = progress.add_task("sending", total=None, why="")
        async with aiohttp.ClientSession() as session:
            client = Client(session, address, pipe, key, source=source, patience_s=patience)
            found = items(stream, file, file_format, types=types)
            intake = Intake(found, secrets.token_hex(6), most=batch, refuse=client.counts.refuse)
            ticking = asyncio.create_task(_tick(client, progress, bar))
            intake.start()
            try:
                await interrupts.unless(client.send(intake.batch, concurrency=concurrency))
            except (HifiError, Interrupted) as stopped:
                problem = stopped
            ticking.cancel()
    _tell(client.counts, file, problem, as_json=as_json)


async def _tick(client: Client, progress: Progress, bar: TaskID) -> None:
    while True:
        progress.update(bar, completed=client.counts.accepted, why=escape(client.obstacle))
        await asyncio.sleep(0.1)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} events accepted"),
        TimeElapsedColumn(),
        TextColumn("[yellow]{task.fields[why]}"),
        console=errors,
        transient=True,
    )


@contextlib.contextmanager
def _opened(file: str) -> Iterator[io.BufferedReader]:
    try:
        # A copy of the descriptor: the interpreter's own standard input could not end while a thread waits on it.
        stream = open(os.dup(sys.stdin.fileno()) if file == "-" else file, "rb")  # noqa: PTH123, SIM115
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from None
    yield stream
    if file != "-":
        stream.close()


async def _source(data: Path, pipe: str) -> Source | None:
    """What the pipe declares of its source, where the mesh of the data folder knows it."""
    target = kafka_target(data, None, None)
    published = await read_registry(target.kafka, target.topics)
    known = published.pipes.get(pipe)
    if known is None:
        names = ", ".join(sorted(published.pipes)) or "none; `hifi apply DIR` publishes some"
        raise Misconfigured(f"there is no pipe {pipe!r}; there are {names}")
    return known.pipe.source


def _tell(counts: Counts, file: str, problem: BaseException | None, *, as_json: bool) -> None:
    whole = problem is None and not counts.refused and not counts.unknown
    if as_json:
        told = {"accepted": counts.accepted, "refused": counts.refused, "unknown": counts.unknown}
        refusals = [{"number": number, "reason": reason} for number, reason in counts.why]
        print_json(
            told
            | {"repeats": counts.repeats, "refusals": refusals, "problem": str(problem) if problem else None}
        )
    else:
        for number, reason in counts.why:
            print(f"{file}:{number}: {reason}")
        more = f", {counts.refused:,} refused" if counts.refused else ""
        more += f", {counts.unknown:,} unknown: Kafka may or may not have them" if counts.unknown else ""
        console.print(f"{counts.accepted:,} event(s) accepted{more}", highlight=False)
    if isinstance(problem, Interrupted):
        raise typer.Exit(INTERRUPTED)
    if isinstance(problem, HifiError):
        raise problem
    if not whole:
        raise typer.Exit(FAILED)
