"""hifi usage: events, bytes and deliveries by pipe, write key and day."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer
from rich.table import Table

from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import count
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import observe_apis
from hifi_cli.options import DEFAULT_DATA, AsJson, Data

_STATES: Final = ("open", "closed", "final")
"""From the least certain one on."""
_REST: Final = "without a key"


@report_errors
def usage(
    first: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="First day. Default: 30 days ago.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last day. Default: today.")] = None,
    pipe: Annotated[str | None, typer.Option("--pipe", metavar="PIPE", help="Only this pipe.")] = None,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show events, bytes and deliveries by day (UTC), pipe and write key.

    A day is `open` until its last minute is closed, then `closed`, and `final`
    when its figures do not change any more: two days later. Deliveries are
    counted for the pipe, not for its keys. With two colours, both are added up.

    Examples:
      hifi usage
      hifi usage --from 2026-11-01 --to 2026-11-30 --pipe orders --json
    """
    parameters = {"from": first, "to": last, "pipe": pipe}
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    answers = [api.get(f"/api/v1/usage?{query}")["usage"] for api in observe_apis(data, url)]
    rows = added_up(answers)
    if as_json:
        print_json(rows)
    elif not rows:
        console.print("No usage in these days.")
    else:
        print_table(usage_table(rows), console)


def added_up(answers: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The rows of the API, those of several colours added up."""
    merged_rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for rows in answers for row in rows):
        earlier_row = merged_rows.get((row["day"], row["pipe"]))
        merged_rows[row["day"], row["pipe"]] = dict(row) if earlier_row is None else _sum(earlier_row, row)
    return [merged_rows[day_and_pipe] for day_and_pipe in sorted(merged_rows)]


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    keys = {key["key"]: dict(key) for key in first["keys"]}
    for key in second["keys"]:
        earlier_totals = keys.get(key["key"], {"events": 0, "bytes": 0})
        keys[key["key"]] = {
            "key": key["key"],
            "events": earlier_totals["events"] + key["events"],
            "bytes": earlier_totals["bytes"] + key["bytes"],
        }
    return {
        **first,
        **{name: first[name] + second[name] for name in ("events", "bytes", "deliveries")},
        "state": min(first["state"], second["state"], key=_STATES.index),
        "keys": [keys[name] for name in sorted(keys)],
    }


def usage_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Make the table: a row for each day and pipe, and one below it for each of its write keys."""
    listing = table(
        "=day\nUTC", "pipe", "write key", ">accepted\nevents", ">data\nbytes", ">made\ndeliveries", "state"
    )
    for row in rows:
        listing.add_row(
            row["day"],
            row["pipe"],
            "all",
            count(row["events"]),
            count(row["bytes"]),
            count(row["deliveries"]),
            row["state"],
        )
        keys = list(row["keys"])
        events, size = (row[unit] - sum(key[unit] for key in keys) for unit in ("events", "bytes"))
        if keys and row["state"] != "open" and events:
            keys.append({"key": _REST, "events": events, "bytes": size})
        for key in keys:
            listing.add_row("", "", key["key"], count(key["events"]), count(key["bytes"]), "-", "")
    return listing
