"""hifi top: all pipes of a mesh, live."""

import time
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import fit, print_table, table
from hifi_cli.display.units import count, microseconds
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Wide

_COLOURS: Final = {"alarm": "red", "flowing": "green"}
_PATH: Final = "/api/v1/pipes"


@report_errors
def top(
    interval_s: Annotated[
        float, typer.Option("--every", min=0.5, metavar="SECONDS", help="Time between two updates.")
    ] = 2,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print the table once and exit.")] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show rates, lag, loss, dead letters and availability of all pipes, updated until Ctrl-C.

    Rates, lag and retries are current. Lost events and dead letters are those of
    the last closed minute.

    Examples:
      hifi top
      hifi top --once
      hifi top --json                 (prints once)
    """
    observe = observe_api(data, url)
    if as_json:
        print_json(observe.get(_PATH))
        return
    if once:
        body = observe.get(_PATH)
        print_table(top_table(body, wide=wide), console)
        console.print(status_line(body), highlight=False)
        return
    with Live(
        _screen(observe.get(_PATH), wide=wide), console=console, screen=True, auto_refresh=False
    ) as live:
        try:
            while True:
                time.sleep(interval_s)
                live.update(_screen(observe.get(_PATH), wide=wide), refresh=True)
        except KeyboardInterrupt:
            return


def _screen(body: dict[str, Any], *, wide: bool) -> Group:
    rows = top_table(body, wide=wide)
    fit(rows, console.width)
    return Group(rows, status_line(body))


def top_table(body: dict[str, Any], *, wide: bool = False) -> Table:
    """Make the table of pipes."""
    extra_columns = [">retries\nwaiting", ">in flight\nrecords"] if wide else []
    pipes = table(
        "pipe",
        "state",
        ">in\nev/s",
        ">out\nev/s",
        ">lag p95",
        ">lost\nevents",
        ">dead\nletters",
        ">up %\ntoday",
        *extra_columns,
    )
    for row in body["pipes"]:
        colour = _COLOURS.get(row["state"], "dim")
        state = f"[{colour}]{row['state']}[/] {', '.join(row['alarms'])}".rstrip()
        share = "-" if row["share_day"] is None else f"{row['share_day'] * 100:.2f}"
        cells = [
            row["pipe"],
            state,
            f"{row['rate_in']:,.1f}",
            f"{row['rate_out']:,.1f}",
            microseconds(row["p95_us"]),
            count(row["lost"]),
            count(row["dead"]),
            share,
        ]
        pipes.add_row(*cells, *([count(row["retrying"]), count(row["in_flight"])] if wide else []))
    return pipes


def status_line(body: dict[str, Any]) -> str:
    """Say how current the figures are, and which consumer groups have a backlog."""
    status = body["status"]
    groups = ", ".join(
        f"{group['service']} {group['records']:,} records of {group['topic']} ({group['seconds']:.1f} s)"
        for group in status["groups"]
        if group["records"]
    )
    age_text = "unknown" if status["behind_s"] is None else f"{status['behind_s']} s"
    return f"\nAge of these figures: {age_text}. Consumer backlog: {groups or 'none'}."
