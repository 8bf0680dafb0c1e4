"""hifi watermark: until when all events of pipes have their outcome at each destination."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveApi, ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, AsJson, Data


@report_errors
def watermark(
    pipe: Annotated[str | None, typer.Argument(metavar="PIPE", help="Only this pipe.")] = None,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show until when all acknowledged events have their outcome at each destination.

    On first pass: deliveries that wait for a retry count as settled, too.
    Events until: the same by event time; late events arrived afterwards. Chain:
    also events of the pipes that write the Kafka topic which it reads. Times
    are in UTC.

    Examples:
      hifi watermark
      hifi watermark orders --json
    """
    rows = watermarks_of(observe_api(data, url), pipe)
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("Nothing is stated yet.")
    else:
        print_table(watermark_table(rows), console)


def watermarks_of(api: ObserveApi, pipe: str | None) -> Sequence[Mapping[str, Any]]:
    """The watermarks of a pipe, or of all pipes, as observe answers."""
    path = "/api/v1/watermarks" + ("" if pipe is None else f"/{quote(pipe, safe='')}")
    rows: Sequence[Mapping[str, Any]] = api.get(path)["watermarks"]
    return rows


def watermark_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make the table."""
    chains = any(row["chain"] for row in rows)
    listing = table(
        "pipe",
        "destination",
        "state",
        "=settled\nuntil, UTC",
        "=first pass\nuntil, UTC",
        "=events\nuntil, UTC",
        *(["=chain\nuntil, UTC"] if chains else []),
        ">in\nflight",
        ">waiting\nfor a retry",
        ">parked",
        ">late\nlast minute",
        ">late by\nevent time",
        "because",
    )
    for row in rows:
        listing.add_row(
            row["pipe"],
            row["destination"],
            row["verdict"],
            _time_text(row["settled_until"]),
            _time_text(row["first_pass_until"]),
            _time_text(row["event_until"]),
            *([_time_text(row["chain"] and row["chain"]["settled_until"])] if chains else []),
            count(row["open"]["in_flight"]),
            count(row["open"]["waiting"]),
            count(row["open"]["parked"]),
            count(row["late_1m"]),
            count(row["event_late"]["last_1m"]),
            escape("; ".join(_reasons(row))),
        )
    return listing


def _reasons(row: Mapping[str, Any]) -> Sequence[str]:
    chain = row["chain"] or {"because": [], "held_by": None}
    chain_reasons = [f"chain held by {chain['held_by']}"] if chain["held_by"] else []
    return list(dict.fromkeys([*row["because"], *row["event_because"], *chain["because"], *chain_reasons]))


def _time_text(text: str | None) -> str:
    return "-" if text is None else text[5:19].replace("T", " ")
