"""hifi top: all pipes of a mesh, live."""

import time
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.gaps import print_gaps
from hifi_cli.display.tables import fit, print_table, table
from hifi_cli.display.units import count, microseconds
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.mesh_answers import MeshAnswers, ask_observe
from hifi_cli.mesh_state.observe_api import ObserveUrl
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
    the last closed minute. With two colours each that runs has rows of its own.

    Examples:
      hifi top
      hifi top --once
      hifi top --json                 (prints once)
    """
    if as_json or once:
        _print_once(ask_observe(data, url, _PATH), wide=wide, as_json=as_json)
        return
    with Live(
        _screen(ask_observe(data, url, _PATH), wide=wide), console=console, screen=True, auto_refresh=False
    ) as live:
        try:
            while True:
                time.sleep(interval_s)
                live.update(_screen(ask_observe(data, url, _PATH), wide=wide), refresh=True)
        except KeyboardInterrupt:
            return


def _print_once(answers: MeshAnswers, *, wide: bool, as_json: bool) -> None:
    if as_json:
        print_json(answers.bodies.get("", answers.bodies))
    else:
        print_table(top_table(answers, wide=wide), console)
        for line in status_lines(answers):
            console.print(line, highlight=False)
    print_gaps(answers.gaps)
    if answers.failed:
        raise typer.Exit(FAILED)


def _screen(answers: MeshAnswers, *, wide: bool) -> Group:
    rows = top_table(answers, wide=wide)
    fit(rows, console.width)
    return Group(rows, *status_lines(answers), *map(escape, answers.gaps))


def top_table(answers: MeshAnswers, *, wide: bool = False) -> Table:
    """Make the table of pipes, with two colours a row for each pipe of each colour that answered."""
    has_colours = "" not in answers.bodies
    extra_columns = [">retries\nwaiting", ">in flight\nrecords"] if wide else []
    pipes = table(
        "pipe",
        *(["=colour"] if has_colours else []),
        "state",
        ">in\nev/s",
        ">out\nev/s",
        ">lag p95",
        ">lost\nevents",
        ">dead\nletters",
        ">up %\ntoday",
        *extra_columns,
    )
    for row in answers.rows("pipes"):
        colour = _COLOURS.get(row["state"], "dim")
        state = f"[{colour}]{row['state']}[/] {', '.join(row['alarms'])}".rstrip()
        share = "-" if row["share_day"] is None else f"{row['share_day'] * 100:.2f}"
        cells = [
            row["pipe"],
            *([row["colour"]] if has_colours else []),
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


def status_lines(answers: MeshAnswers) -> list[str]:
    """Say how current the figures are, and which consumer groups have a backlog; a line for each colour."""
    return [
        f"\n{f'{colour}: ' if colour else ''}{_status_line(body)}" for colour, body in answers.bodies.items()
    ]


def _status_line(body: dict[str, Any]) -> str:
    status = body["status"]
    groups = ", ".join(
        f"{group['service']} {group['records']:,} records of {group['topic']} ({group['seconds']:.1f} s)"
        for group in status["groups"]
        if group["records"]
    )
    age_text = "unknown" if status["behind_s"] is None else f"{status['behind_s']} s"
    return f"Age of these figures: {age_text}. Consumer backlog: {groups or 'none'}."
