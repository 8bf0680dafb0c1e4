"""hifi colour: divide the requests between the two colours of a stream."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.markup import escape

from hifi.control.action import ActionKind
from hifi.control.releases.desired_release import INSTALLED
from hifi.delivery.colours import NAMES, WHOLE_SHARE, Colours, other
from hifi.kafka.topics import principal_topics
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.settings import load
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.audited_command import audited_command, author
from hifi_cli.mesh_state.target import stream_topics
from hifi_cli.options import DEFAULT_DATA, AsJson, Data
from hifi_infra.colours.colour_settings import ColourSettings
from hifi_infra.colours.new_setup import SetupChange, read_settings
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.runtime import ColourFolders
from hifi_infra.colours.served_colours import ServedColours
from hifi_infra.mesh import running

T = TypeVar("T")

app = typer.Typer(help="Divide the requests between the two colours of a stream.")
Name = Annotated[str, typer.Argument(metavar="COLOUR", help=f"One of {', '.join(NAMES)}.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.")]
Force = Annotated[
    bool, typer.Option("--force", help="Do it although a rule says to wait; the record names who forced it.")
]
Recovery = Annotated[
    bool, typer.Option("--recovery", help="One colour is broken: do not wait until both are stable.")
]
_DONE: Final = "Done. `hifi colour status` shows both colours."
_SUBJECT: Final = "colours"
"""Of the entries in the audit."""
Within = Annotated[float, typer.Option("--within", min=1, metavar="SECONDS", help="Longest time to wait.")]


@app.command()
@report_errors
async def status(data: Data = DEFAULT_DATA, *, as_json: AsJson = False) -> None:
    """Show share, state and condition of each colour, and the records that wait in it.

    Examples:
      hifi colour status
      hifi colour status --json
    """
    operations = _operations(data)
    colours = await operations.colours()
    accounts = dict(zip(NAMES, await asyncio.gather(*map(operations.account, NAMES)), strict=True))
    if as_json:
        accounts_json = {
            name: {
                "condition": account.condition.value,
                "reasons": account.reasons,
                "waiting": account.waiting,
            }
            for name, account in accounts.items()
        }
        print_json(colours.json() | {"seen": accounts_json})
        return
    rows = table("colour", "state", ">share", "condition", ">records that wait", "runs on", "why")
    for name, colour in colours.colours.items():
        account = accounts[name]
        waiting_text = f"{sum(account.waiting.values()):,}" if account.waiting else "-"
        rows.add_row(
            name,
            colour.state.value,
            f"{colour.share / 100:g} %",
            account.condition.value,
            waiting_text,
            escape(colour.setup.text() or "-"),
            escape("; ".join(account.reasons)),
        )
    urls = " and ".join(front.url for front in colours.fronts)
    rows.caption = escape(f"front {urls}; decided by {colours.by}")
    print_table(rows, console)


@app.command()
@report_errors
async def shift(
    name: Name,
    share: Annotated[
        float,
        typer.Option(
            "--share", min=0, max=100, metavar="PERCENT", help="Share of the requests for this colour."
        ),
    ] = 100,
    data: Data = DEFAULT_DATA,
    reason: Reason = "a person asks for it",
    *,
    recovery: Recovery = False,
    force: Force = False,
) -> None:
    """Give a colour a share of the requests, by default all of them; the other colour gets the rest.

    Requests under way are finished where they are. The action waits for nothing:
    it is refused while a colour that is awake is not stable, or a rollout runs.

    Examples:
      hifi colour shift green
      hifi colour shift green --share 5 --reason "canary of release 7"
      hifi colour shift blue --recovery
    """
    parts = round(share * WHOLE_SHARE / 100)
    shares = {_checked(name): parts, other(name): WHOLE_SHARE - parts}
    kind = ActionKind.RECOVER if recovery else ActionKind.SHIFT
    operations = _operations(data, forced=force)
    await _act(operations, "shift requests", lambda: operations.shift(shares, reason, kind=kind))


@app.command()
@report_errors
async def split(
    data: Data = DEFAULT_DATA, reason: Reason = "a person asks for it", *, force: Force = False
) -> None:
    """Give each colour half of the requests, for bursts above the rating of one.

    Examples:
      hifi colour split
    """
    half_share = WHOLE_SHARE // 2
    operations = _operations(data, forced=force)
    await _act(
        operations, "split requests", lambda: operations.shift(dict.fromkeys(NAMES, half_share), reason)
    )


@app.command()
@report_errors
async def drain(
    name: Name,
    data: Data = DEFAULT_DATA,
    reason: Reason = "a person asks for it",
    timeout_s: Within = 3600,
    *,
    force: Force = False,
) -> None:
    """Give all requests to the other colour and wait until nothing of this one is in flight or waits for a retry.

    Parked deliveries do not count: they wait for a destination, and come back
    when the colour runs.

    Examples:
      hifi colour drain blue
    """
    operations = _operations(data, forced=force)
    await _act(
        operations, f"drain {name}", lambda: operations.drain(_checked(name), reason, timeout_s, _print)
    )


@app.command()
@report_errors
async def sleep(
    name: Name,
    data: Data = DEFAULT_DATA,
    reason: Reason = "a person asks for it",
    timeout_s: Within = 3600,
    *,
    force: Force = False,
) -> None:
    """Drain a colour that gets no requests, and end all of its processes.

    While it is asleep, no colour takes over when the other one is lost.

    Examples:
      hifi colour sleep blue
    """
    operations = _operations(data, forced=force)
    await _act(
        operations, f"sleep {name}", lambda: operations.sleep(_checked(name), reason, timeout_s, _print)
    )


@app.command()
@report_errors
async def wake(
    name: Name,
    data: Data = DEFAULT_DATA,
    reason: Reason = "a person asks for it",
    timeout_s: Within = 600,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            max=256,
            help="Partitions of each event topic from now on. Another number begins a new stream in this colour.",
            show_default="as before",
        ),
    ] = None,
    kafka_version: Annotated[
        str,
        typer.Option("--kafka-version", metavar="VERSION", help="Version of its Kafka. Default: as before."),
    ] = "",
    release: Annotated[
        str,
        typer.Option(
            "--release",
            metavar="FOLDER",
            help="Release of hifi that all of its processes run: a virtual environment, a checkout, or `installed`. "
            "Default: as before.",
        ),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A variable for its services; NAME= removes it. Can be repeated.",
        ),
    ] = None,
) -> None:
    """Start a colour that is asleep and wait until it is ready. It gets no requests yet.

    The options change what the colour runs on. It keeps that until the next
    wake with options; the other colour stays as it is.

    Examples:
      hifi colour wake blue
      hifi colour wake green --kafka-version 4.4.0
      hifi colour wake green --partitions 8
      hifi colour wake green --set HIFI_ENRICH_DRIVER_MEMORY=2g
      hifi colour wake green --release releases/2026-11-24
    """
    folder = str(Path(release).resolve()) if release and release != INSTALLED else release
    change = SetupChange(partitions or 0, kafka_version, folder, read_settings(settings or []))
    operations = _operations(data)
    old_stream = await _audited(
        operations, f"wake {name}", lambda: operations.wake(_checked(name), reason, timeout_s, change)
    )
    if (await operations.colours()).colours[name].awaits_keys:
        _print(
            f"{name} has not got the issued write keys of {other(name)} yet: it gets them once both run, and until "
            "then only `hifi colour shift --recovery` or --force gives it requests"
        )
    if old_stream is not None:
        _print(f"{name} has a new stream. The old one, with its dead letters and minutes, is in {old_stream}")
    _print(_DONE)


async def _act(operations: ColourOperations, action: str, operation: Callable[[], Awaitable[None]]) -> None:
    await _audited(operations, action, operation)
    _print(_DONE)


async def _audited(operations: ColourOperations, action: str, operation: Callable[[], Awaitable[T]]) -> T:
    """Run an operation, with its entry in the audit: the colours before and after it, also where it failed half-way."""
    topics = principal_topics(operations.topics.stream)
    values_before = {_SUBJECT: _audit_fields(await operations.colours())}
    async with audited_command(operations.control_kafka, topics, action, values_before) as values_after:
        try:
            return await operation()
        finally:
            with contextlib.suppress(HifiError):
                values_after[_SUBJECT] = _audit_fields(await operations.colours())


def _audit_fields(colours: Colours) -> dict[str, Any]:
    """State, share and setup of each colour, for the audit."""
    return {
        name: f"{colour.state.value} {colour.share / 100:g} % {colour.setup.text()}".rstrip()
        for name, colour in colours.colours.items()
    }


def _print(text: str) -> None:
    console.print(text, highlight=False)


def _checked(name: str) -> str:
    if name not in NAMES:
        raise Misconfigured(f"there is no colour {name}: name one of {', '.join(NAMES)}")
    return name


def _operations(data: Path, *, forced: bool = False) -> ColourOperations:
    settings = load(ColourSettings)
    if settings.colours_api:
        runtime = ServedColours(settings.colours_api)
        return ColourOperations(settings.kafka, settings.topics, runtime, author(), forced)
    mesh = running.find(data)
    if mesh is None or not mesh.colours:
        raise Misconfigured(
            f"no stream with two colours is running on {data}: start one with `hifi up --colours`, or give its "
            "folder with --data"
        )
    return ColourOperations(
        mesh.control_kafka, stream_topics(mesh.stream), ColourFolders(mesh.colours), author(), forced
    )
