"""The commands `hifi minutes`, `hifi lost` and `hifi top`: they ask observe's API."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import orjson
import typer
import urllib3
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from hifi_observe.conditions import clock

app = typer.Typer(no_args_is_help=True, help="Loss, lag and availability, as observe knows them.")
Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url", envvar="HIFI_OBSERVE_URL", help="Where observe's API is, such as http://127.0.0.1:8090."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_TIMEOUT: Final = urllib3.Timeout(connect=3, read=60)


@app.command()
def minutes(
    pipe: Annotated[str, typer.Argument(help="Name of the pipe.")],
    url: Url,
    last: Annotated[int, typer.Option(help="How many minutes before now.", min=1)] = 60,
    as_json: AsJson = False,
) -> None:
    """What became of every event, minute by minute."""
    body = ask(url, f"/api/v1/pipes/{quote(pipe)}/minutes?last={last}")
    if as_json:
        typer.echo(orjson.dumps(body["minutes"], option=orjson.OPT_INDENT_2))
        return
    if not body["minutes"]:
        typer.echo("No minute has been closed in this time.")
        return
    Console().print(minutes_table(body["minutes"]))


@app.command()
def lost(
    pipe: Annotated[str, typer.Argument(help="Name of the pipe.")],
    minute: Annotated[str, typer.Argument(help="`2026-11-21T10:04` in UTC, or minutes since 1970.")],
    url: Url,
    as_json: AsJson = False,
) -> None:
    """The very events that a minute lost. Exit status 1 when there are any."""
    body = ask(url, f"/api/v1/pipes/{quote(pipe)}/minutes/{quote(minute)}/lost?limit=100000")
    if as_json:
        typer.echo(orjson.dumps(body["lost"], option=orjson.OPT_INDENT_2))
    elif not body["count"]:
        typer.echo(f"{pipe} lost nothing in {clock(body['minute'])}.")
    else:
        Console().print(lost_table(body))
    if body["count"]:
        raise typer.Exit(1)


@app.command()
def top(
    url: Url,
    every: Annotated[float, typer.Option(help="Seconds between looks.", min=0.5)] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
) -> None:
    """All pipes, live, until Ctrl-C."""
    if once:
        Console().print(top_table(ask(url, "/api/v1/pipes")))
        return
    with Live(top_table(ask(url, "/api/v1/pipes")), screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(every)
                live.update(top_table(ask(url, "/api/v1/pipes")), refresh=True)
        except KeyboardInterrupt:
            return


def ask(url: str, path: str) -> dict[str, Any]:
    """A GET to observe's API; ends the program with a message when it fails."""
    try:
        answer = urllib3.request("GET", url.rstrip("/") + path, timeout=_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError:
        typer.echo(
            f"observe does not answer at {url}: is it running? Its log says where its console is.", err=True
        )
        raise typer.Exit(2) from None
    body: dict[str, Any] = orjson.loads(answer.data)
    if answer.status != 200:
        typer.echo(str(body.get("detail", body)), err=True)
        raise typer.Exit(2)
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
        ("p95", lambda row: milliseconds(row["p95_us"])),
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
    for row in body["lost"]:
        known = row.get("ce_id") or "unknown: it never reached a topic"
        table.add_row(
            known, row["hop"], row["destination"], str(row["partition"]), f"{row['epoch']}:{row['sequence']}"
        )
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
            milliseconds(row["p95_us"]),
            *("-" if row[name] is None else str(row[name]) for name in ("lost", "retrying", "dead")),
            share,
        )
    status = body["status"]
    groups = ", ".join(
        f"{one['node']} {one['topic']} {one['records']} ({one['seconds']:.1f} s)"
        for one in status["groups"]
        if one["records"]
    )
    return Group(table, f"observe is {status['behind_s']} s behind. Waiting: {groups or 'nothing'}")


def milliseconds(us: float | None) -> str:
    """Microseconds for a person."""
    if us is None:
        return "-"
    return f"{us / 1000:.1f} ms" if abs(us) < 1_000_000 else f"{us / 1_000_000:.2f} s"
