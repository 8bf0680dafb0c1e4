"""hifi skew: the distributions of a pipe's watched fields, now and before."""

from typing import Any, Final
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.commands.minutes import PipeName
from hifi_cli.display.console import console, print_json
from hifi_cli.display.gaps import print_gaps
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.mesh_answers import ask_observe
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.options import DEFAULT_DATA, AsJson, Data

DRIFTED: Final = 3
"""Exit status when a field has drifted."""
_COLOURS: Final = {"steady": "green", "drifted": "red"}


@report_errors
def skew(
    pipe: PipeName,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Compare the distributions of a pipe's watched fields with those of the time before.

    Of two colours that run, each has distributions of its own.

    Exit status: 0 if no field has drifted, 3 if at least one has, 1 if a colour
    that runs gave no answer and no field of the other one has drifted.

    Examples:
      hifi skew flights
      hifi skew flights --json
    """
    answers = ask_observe(data, url, f"/api/v1/pipes/{quote(pipe)}/skew")
    fields = answers.rows("fields")
    if as_json:
        print_json(fields)
    elif not fields:
        console.print(
            f"{pipe} watches no field, or none of its minutes has closed yet; see `watch` in docs/pipes.md",
            highlight=False,
        )
    else:
        for field in fields:
            print_table(skew_table(field), console)
            console.print()
    print_gaps(answers.gaps)
    if any(field["state"] == "drifted" for field in fields):
        raise typer.Exit(DRIFTED)
    if answers.failed:
        raise typer.Exit(FAILED)


def skew_table(field: dict[str, Any]) -> Table:
    """Make the table of the buckets of one field."""
    state = field["state"]
    if field["distance"] is None:
        needed = field["needed"]
        explanation = (
            f"{needed['half_window']:,} needed in each half of the window, {needed['reference']:,} before it"
        )
    else:
        explanation = f"distance {field['distance']:.2f}, a drift from {field['threshold']:g}"
    name = f"{field['field']} of {field['colour']}" if "colour" in field else field["field"]
    title = f"{name}: [{_COLOURS.get(state, 'yellow')}]{state}[/] ({explanation})"
    minutes = field["window"]["to"] - field["window"]["from"] + 1
    buckets = table(
        "bucket",
        f">last {minutes} min\nshare",
        ">before\nshare",
        f">last {minutes} min\nevents",
        ">before\nevents",
        title=title,
    )
    for row in field["buckets"]:
        buckets.add_row(
            escape(row["label"]),
            _percent(row["window_share"]),
            _percent(row["reference_share"]),
            count(row["window"]),
            count(row["reference"]),
        )
    return buckets


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
