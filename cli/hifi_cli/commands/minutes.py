"""hifi top, hifi minutes and hifi lost: what observe's API says, for a terminal."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import orjson
import typer
import urllib3
from rich import box
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from hifi.errors import HifiError
from hifi_cli.display.console import console, milliseconds, print_json
from hifi_cli.error_reporting import reported
from hifi_cli.mesh_state.target import observe_url
from hifi_cli.options import DEFAULT_DATA, AsJson, Data
from hifi_observe.conditions import clock

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HIFI_OBSERVE_URL",
        help="Where observe's API is; default: that of the mesh in --data.",
    ),
]
LOST: Final = 3
"""Exit status of `hifi lost` when something is."""
_TIMEOUT: Final = urllib3.Timeout(connect=3, read=60)


@reported
def minutes(
    pipe: Annotated[str, typer.Argument(help="Name of the pipe.")],
    last: Annotated[int, typer.Option("--last", help="How many minutes before now.", min=1)] = 60,
    data: Data = DEFAULT_DATA,
    url: Url = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what became of every event of a pipe, minute by minute.

    hifi minutes flights
    hifi minutes flights --last 1440 --json
    """
    body = ask(observe_url(data, url), f"/api/v1/pipes/{quote(pipe)}/minutes?last={last}")
    if as_json:
        print_json(body["minutes"])
    elif not body["minutes"]:
        console.print("no minute has been closed in this time")
    else:
        console.print(minutes_table(body["minutes"]))


@reported
def lost(
    pipe: Annotated[str, typer.Argument(help="Name of the pipe.")],
    minute: Annotated[str, typer.Argument(help="`2026-11-21T10:04` in UTC, or minutes since 1970.")],
    data: Data = DEFAULT_DATA,
    url: Url = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the very events that a minute lost. Exit status 3 when there are any.

    hifi lost flights 2026-11-21T10:04
    """
    body = ask(
        observe_url(data, url), f"/api/v1/pipes/{quote(pipe)}/minutes/{quote(minute)}/lost?limit=100000"
    )
    if as_json:
        print_json(body["lost"])
    elif not body["count"]:
        console.print(f"{pipe} lost nothing in {clock(body['minute'])}", highlight=False)
    else:
        console.print(lost_table(body))
    if body["count"]:
        raise typer.Exit(LOST)


@reported
def top(
    every: Annotated[
        float, typer.Option("--every", min=0.5, metavar="SECONDS", help="Time between looks.")
    ] = 2,
    data: Data = DEFAULT_DATA,
    url: Url = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show all pipes, live, until Ctrl-C: rates, lag, loss, retries, dead letters, availability.

    hifi top
    hifi top --once
    hifi top --json                 (one look)
    """
    where = observe_url(data, url)
    if as_json:
        print_json(ask(where, "/api/v1/pipes"))
        return
    if once:
        console.print(top_table(ask(where, "/api/v1/pipes")))
        return
    with Live(
        top_table(ask(where, "/api/v1/pipes")), console=console, screen=True, auto_refresh=False
    ) as live:
        try:
            while True:
                time.sleep(every)
                live.update(top_table(ask(where, "/api/v1/pipes")), refresh=True)
        except KeyboardInterrupt:
            return


def ask(url: str, path: str) -> dict[str, Any]:
    """A GET to observe's API.

    Raises:
        HifiError: it does not answer, or says that it cannot.
    """
    try:
        answer = urllib3.request("GET", url + path, timeout=_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError:
        raise HifiError(f"observe does not answer at {url}: is it running? `hifi status` tells") from None
    body: dict[str, Any] = orjson.loads(answer.data)
    if answer.status != 200:
        raise HifiError(str(body.get("detail", body)))
    return body


def minutes_table(rows: list[dict[str, Any]]) -> Table:
    """Minutes for a terminal, oldest first."""
    columns: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("in", lambda row: row["in"]),
        ("delivered", lambda row: row["delivered"]),
        ("lost", lambda row: f"[red]{row['lost']}[/red]" if row["lost"] else 0),
        ("in flight", lambda row: row["in_flight"]),
        ("waiting", lambda row: row["waiting"]),
        ("dead", lambda row: row["dead"]),
        ("duplicates", lambda row: row["duplicates"]),
        ("late", lambda row: row["late"]),
        ("p95", lambda row: _milliseconds(row["p95_us"])),
    ]
    table = Table("minute", "state", *(name for name, _ in columns))
    for row in rows:
        colour = {"up": "green", "down": "red"}.get(row["state"], "yellow")
        state = f"[{colour}]{row['state']}[/{colour}] {', '.join(row['causes'])}"
        table.add_row(clock(row["minute"]), state, *(str(show(row)) for _, show in columns))
    return table


def lost_table(body: dict[str, Any]) -> Table:
    """Lost events for a terminal."""
    table = Table(
        "event id", "lost at", "destination", "partition", "identity", title=f"{body['count']} lost"
    )
    unknown = "hidden: the pipe masks it" if body["hidden"] else "unknown: it never reached a topic"
    for row in body["lost"]:
        known = row.get("ce_id") or unknown
        identity = f"{row['epoch']}:{row['sequence']}"
        table.add_row(escape(known), row["hop"], row["destination"], str(row["partition"]), identity)
    return table


def top_table(body: dict[str, Any]) -> Group:
    """The overview for a terminal."""
    names = ("in/s", "out/s", "p95", "lost", "retry", "dead", "up today")
    figures = [Column(name, no_wrap=True, justify="right") for name in names]
    table = Table(
        Column("pipe", no_wrap=True, min_width=12),
        "state",
        *figures,
        box=box.SIMPLE,
        padding=(0, 1),
        pad_edge=False,
    )
    for row in body["pipes"]:
        colour = {"alarm": "red", "flowing": "green"}.get(row["state"], "dim")
        share = "-" if row["share_day"] is None else f"{row['share_day'] * 100:.2f} %"
        table.add_row(
            row["pipe"],
            f"[{colour}]{row['state']}[/{colour}] {', '.join(row['alarms'])}",
            f"{row['rate_in']:.1f}",
            f"{row['rate_out']:.1f}",
            _milliseconds(row["p95_us"]),
            *("-" if row[name] is None else str(row[name]) for name in ("lost", "retrying", "dead")),
            share,
        )
    status = body["status"]
    groups = ", ".join(
        f"{one['service']} {one['topic']} {one['records']} ({one['seconds']:.1f} s)"
        for one in status["groups"]
        if one["records"]
    )
    return Group(table, f"observe is {status['behind_s']} s behind. Waiting: {groups or 'nothing'}")


def _milliseconds(value_us: float | None) -> str:
    return milliseconds(None if value_us is None else value_us / 1000)
