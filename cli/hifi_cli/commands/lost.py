"""hifi lost: the lost events of a minute."""

from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.commands.minutes import PipeName
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, short, table
from hifi_cli.display.units import minute_utc
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Wide

LOST: Final = 3
"""Exit status when the minute lost events."""
_MOST: Final = 100_000


@report_errors
def lost(
    pipe: PipeName,
    minute: Annotated[
        str, typer.Argument(metavar="MINUTE", help="A minute in UTC such as 2026-11-21T10:04.")
    ],
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List the events that a pipe lost in a minute.

    Exit status: 0 if no event was lost, 3 if there are lost events.

    Examples:
      hifi lost flights 2026-11-21T10:04
    """
    body = observe_api(data, url).get(
        f"/api/v1/pipes/{quote(pipe)}/minutes/{quote(minute)}/lost?limit={_MOST}"
    )
    if as_json:
        print_json(body["lost"])
    elif not body["count"]:
        console.print(f"{pipe} lost nothing in {minute_utc(body['minute'])} (UTC)", highlight=False)
    else:
        print_table(lost_table(body, wide=wide), console)
    if body["count"]:
        raise typer.Exit(LOST)


def lost_table(body: dict[str, Any], *, wide: bool = False) -> Table:
    """Make the table of lost events."""
    lost_events = table("event id", "lost at", "destination", title=f"{body['count']:,} lost events")
    if wide:
        lost_events.add_column("partition", justify="right", no_wrap=True)
        lost_events.add_column("epoch:sequence", no_wrap=True)
    unknown = (
        f"hidden: {body.get('hidden_because') or 'the pipe masks it'}"
        if body["hidden"]
        else "unknown: the event is on no topic"
    )
    for row in body["lost"]:
        cells = [escape(short(row.get("ce_id") or unknown)), row["hop"], row["destination"]]
        if wide:
            cells += [str(row["partition"]), f"{row['epoch']}:{row['sequence']}"]
        lost_events.add_row(*cells)
    return lost_events
