"""hifi sources: how far the sources of pipes were read."""

import time
from typing import Any

from rich.markup import escape
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count, duration, local_time
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveApi, ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, AsJson, Data


@report_errors
def sources(data: Data = DEFAULT_DATA, url: ObserveUrl = None, *, as_json: AsJson = False) -> None:
    """Show how far the sources of pipes were read, and when the backfill is expected to end.

    A source is in state `backfill` while collect catches up with what it had
    before, such as a snapshot, and `live` after that. The end is an estimate
    from the present rates. --json has `left_s`, null while what remains does not
    get less.

    Examples:
      hifi sources
      hifi sources --json
    """
    rows = sources_of(observe_api(data, url))
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("No source is read: senders send events over HTTP, or collect does not run.")
    else:
        print_table(sources_table(rows, time.time()), console)
        for row in rows:
            if row["held"]:
                console.print(f"[yellow]{row['pipe']}: {row['held']}[/]", highlight=False)


def sources_of(observe: ObserveApi) -> list[dict[str, Any]]:
    """The pipes whose source collect reads, each with the source's progress.

    Raises:
        HifiError: observe does not answer.
    """
    pipes = observe.get("/api/v1/pipes")["pipes"]
    return [{"pipe": pipe["pipe"], **pipe["source"]} for pipe in pipes if pipe["source"] is not None]


def sources_table(rows: list[dict[str, Any]], now_s: float, title: str | None = None) -> Table:
    """Make the table of sources; `now_s`: seconds since 1970 UTC."""
    sources = table(
        "pipe",
        "=state",
        ">read\nevents",
        ">remaining\nevents",
        ">rate\nev/s",
        ">new\nev/s",
        ">backfill limit\nev/s",
        "expected end",
        title=title,
    )
    for row in rows:
        sources.add_row(
            row["pipe"],
            "[yellow]backfill[/]" if row["backfill"] else "[green]live[/]",
            count(row["done"]),
            count(row["remaining"]),
            count(row["read_per_s"]),
            count(row["arriving_per_s"]),
            count(row["limit_per_s"]) if row["backfill"] else "-",
            _end(row, now_s),
        )
    return sources


def _end(row: dict[str, Any], now_s: float) -> str:
    if not row["backfill"]:
        return "-"
    brake = escape(f", held back by {row['late']}") if row["late"] else ""
    if row["left_s"] is None:
        return f"not in sight: as much comes in as is read{brake}"
    return f"{local_time(now_s + row['left_s'])}, in {duration(row['left_s'])}{brake}"
