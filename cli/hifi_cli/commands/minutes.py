"""hifi minutes: what happened to the events of a pipe, minute by minute."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import typer
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count, microseconds, minute_utc
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl, get_json
from hifi_cli.mesh_state.target import observe_url
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Wide

PipeName: TypeAlias = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]
_COLOURS: Final = {"up": "green", "down": "red"}
_COLUMNS: Final[list[tuple[str, bool, Callable[[dict[str, Any]], str]]]] = [
    ("accepted\nevents", True, lambda row: count(row["in"])),
    ("delivered\ndeliveries", True, lambda row: count(row["delivered"])),
    (
        "lost\nevents",
        True,
        lambda row: f"[bold red]{row['lost']:,}[/]" if row["lost"] else count(row["lost"]),
    ),
    ("in flight\nrecords", False, lambda row: count(row["in_flight"])),
    ("waiting\nretries", False, lambda row: count(row["waiting"])),
    ("parked\ndeliveries", False, lambda row: count(row["parked"])),
    ("dead\nletters", True, lambda row: count(row["dead"])),
    ("duplicates\nevents", False, lambda row: count(row["duplicates"])),
    ("refused,\npaused", False, lambda row: count(row.get("refused_paused"))),
    ("late\nevents", False, lambda row: count(row["late"])),
    ("lag p95", True, lambda row: microseconds(row["p95_us"])),
]
"""Heading, whether it is shown by default, and the cell."""


@report_errors
def minutes(
    pipe: PipeName,
    last: Annotated[
        int, typer.Option("--last", metavar="MINUTES", min=1, help="Number of minutes to show, up to now.")
    ] = 60,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened to the events of a pipe, minute by minute.

    Times are UTC. The state of a minute is `up`, `down` (with the causes),
    `unknown`, or `provisional` until it is closed, about five minutes after its
    end. With --json, only closed minutes are printed.

    Examples:
      hifi minutes flights
      hifi minutes flights --wide
      hifi minutes flights --last 1440 --json
    """
    body = get_json(observe_url(data, url), f"/api/v1/pipes/{quote(pipe)}/minutes?last={last}")
    if as_json:
        print_json(body["minutes"])
    elif not (rows := body["minutes"] + _open_minutes(body, last)):
        console.print(f"{pipe} had no events in the last {last} minutes.", highlight=False)
    else:
        print_table(minutes_table(rows, wide=wide), console)


def _open_minutes(body: dict[str, Any], last: int) -> list[dict[str, Any]]:
    closed = {row["minute"] for row in body["minutes"]}
    first = time.time() // 60 - last
    return [row for row in body["provisional"] if row["minute"] not in closed and row["minute"] > first]


def minutes_table(rows: list[dict[str, Any]], *, wide: bool = False) -> Table:
    """Make the table of minutes, oldest first."""
    columns = [(name, cell) for name, default, cell in _COLUMNS if default or wide]
    made = table("=minute\nUTC", "state", *(f">{name}" for name, _ in columns))
    for row in rows:
        colour = _COLOURS.get(row["state"], "yellow")
        state = f"[{colour}]{row['state']}[/] {', '.join(row['causes'])}".rstrip()
        made.add_row(minute_utc(row["minute"]), state, *(cell(row) for _, cell in columns))
    return made
