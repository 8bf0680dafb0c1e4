"""hifi minutes: what happened to the events of a pipe, minute by minute."""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count, microseconds, minute_utc
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import has_colours, observe_api
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Wide

PipeName: TypeAlias = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]
_Cell: TypeAlias = Callable[[dict[str, Any]], str]
_COLOURS: Final = {"up": "green", "down": "red"}
_COLUMNS: Final[list[tuple[str, bool, _Cell]]] = [
    ("accepted\nevents", True, lambda row: count(row["in"])),
    ("delivered\ndeliveries", True, lambda row: count(row["delivered"])),
    (
        "lost\nevents",
        True,
        lambda row: f"[bold red]{row['lost']:,}[/]" if row["lost"] else count(row["lost"]),
    ),
    ("filtered\nevents", False, lambda row: count(row.get("filtered"))),
    ("in flight\nrecords", False, lambda row: count(row["in_flight"])),
    ("waiting\nretries", False, lambda row: count(row["waiting"])),
    ("parked\ndeliveries", False, lambda row: count(row["parked"])),
    ("dead\nletters", True, lambda row: count(row["dead"])),
    ("duplicates\nevents", False, lambda row: count(row["duplicates"])),
    ("refused,\npaused", False, lambda row: count(row.get("refused_paused"))),
    ("late\nevents", False, lambda row: count(row["late"])),
    ("backfill\nevents", False, lambda row: count(row.get("backfill"))),
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
    colours: Annotated[
        bool,
        typer.Option(
            "--colours",
            help="Add both colours of the stream up, with the share of each. Default in the folder of both.",
        ),
    ] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show what happened to the events of a pipe, minute by minute.

    The first minute is the one in which the pipe was declared. Times are UTC.
    The state of a minute is `up`, `down` (with the causes),
    `unknown`, or `provisional` until it is closed, about five minutes after its
    end. With --json, only closed minutes are printed. With --colours a minute
    is that of both colours and of the front, and is `incomplete` while not all
    is known of one of them.

    Examples:
      hifi minutes flights
      hifi minutes flights --wide
      hifi minutes flights --last 1440 --json
      hifi minutes flights --colours
    """
    if colours or has_colours(data, url):
        body = observe_api(data, url).get(f"/api/v1/pipes/{quote(pipe)}/colours?last={last}")
        if as_json:
            print_json(body)
        else:
            _print_colours(body, wide=wide)
        return
    body = observe_api(data, url).get(f"/api/v1/pipes/{quote(pipe)}/minutes?last={last}")
    if as_json:
        print_json(body["minutes"])
    elif not (rows := body["minutes"] + _open_minutes(body, last)):
        console.print(f"{pipe} has no minutes among the last {last}.", highlight=False)
    else:
        print_table(minutes_table(rows, wide=wide), console)


def _print_colours(body: dict[str, Any], *, wide: bool) -> None:
    reasons = [*(colour["away"] for colour in body["colours"]), body["front_away"]]
    for reason in filter(None, reasons):
        console.print(f"[yellow]{escape(reason)}[/]", highlight=False, soft_wrap=True)
    if body["minutes"]:
        colour_names = [colour["colour"] for colour in body["colours"]]
        print_table(minutes_table(body["minutes"], wide=wide, colours=colour_names), console)
    console.print(
        f"{body['down_minutes']} minutes down, {body['incomplete_minutes']} incomplete, of "
        f"{len(body['minutes'])} closed minutes.",
        highlight=False,
    )


def _open_minutes(body: dict[str, Any], last: int) -> list[dict[str, Any]]:
    closed_minutes = {row["minute"] for row in body["minutes"]}
    first_minute = time.time() // 60 - last
    return [
        row
        for row in body["provisional"]
        if row["minute"] not in closed_minutes and row["minute"] > first_minute
    ]


def minutes_table(rows: list[dict[str, Any]], *, wide: bool = False, colours: Sequence[str] = ()) -> Table:
    """Make the table of minutes, oldest first; `colours`: names of those whose shares are shown, too."""
    columns = [(name, cell) for name, default, cell in _COLUMNS if default or wide]
    for name in colours:
        cells = _colour_cells(name) if wide else _colour_cells(name)[:1]
        columns += [(f"{name}\n{title}", cell) for title, cell in cells]
    if colours:
        columns.append(("refused\nby front", lambda row: count((row["front"] or {}).get("failed"))))
    listing = table("=minute\nUTC", "state", *(f">{name}" for name, _ in columns))
    for row in rows:
        colour = _COLOURS.get(row["state"], "yellow")
        missing_text = f"incomplete: {', '.join(row['missing'])}" if row.get("missing") else ""
        causes = ", ".join(filter(None, (*row["causes"], missing_text)))
        listing.add_row(
            minute_utc(row["minute"]),
            f"[{colour}]{row['state']}[/] {causes}".rstrip(),
            *(cell(row) for _, cell in columns),
        )
    return listing


def _colour_cells(name: str) -> Sequence[tuple[str, _Cell]]:
    """Heading and cell of one colour's columns; all but the first are shown in a wide table only."""

    def share(row: dict[str, Any]) -> str:
        fraction = row["colours"].get(name, {}).get("share")
        return "-" if fraction is None else f"{100 * fraction:.1f} %"

    return (
        ("share", share),
        ("lost", lambda row: count(row["colours"].get(name, {}).get("lost"))),
        ("late", lambda row: count(row["colours"].get(name, {}).get("late"))),
    )
