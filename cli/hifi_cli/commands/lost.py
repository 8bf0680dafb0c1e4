"""hifi lost: the lost events of a minute."""

from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.commands.minutes import PipeName
from hifi_cli.display.console import console, print_json
from hifi_cli.display.gaps import print_gaps
from hifi_cli.display.tables import print_table, short, table
from hifi_cli.display.units import minute_utc
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.mesh_answers import MeshAnswers, ask_observe
from hifi_cli.mesh_state.observe_api import ObserveUrl
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
    """List the events that a pipe lost in a minute, with two colours those of both.

    Exit status: 0 if no event was lost, 3 if there are lost events, 1 if a colour
    gave no answer and the other one lost none.

    Examples:
      hifi lost flights 2026-11-21T10:04
    """
    path = f"/api/v1/pipes/{quote(pipe)}/minutes/{quote(minute)}/lost?limit={_MOST}"
    answers = ask_observe(data, url, path)
    body = joined(answers)
    if as_json:
        print_json(body["lost"])
    elif body["count"]:
        print_table(lost_table(body, wide=wide), console)
    elif not answers.gaps:
        console.print(f"{pipe} lost nothing in {minute_utc(body['minute'])} (UTC)", highlight=False)
    print_gaps(answers.gaps)
    if body["count"]:
        raise typer.Exit(LOST)
    if answers.gaps:
        raise typer.Exit(FAILED)


def joined(answers: MeshAnswers) -> dict[str, Any]:
    """The answer of the API, the lost events of two colours together; `hidden` if one of the two hides their ids."""
    bodies = answers.bodies.values()
    hiding_body = max(bodies, key=lambda body: bool(body["hidden"]))
    return hiding_body | {"count": sum(body["count"] for body in bodies), "lost": answers.rows("lost")}


def lost_table(body: dict[str, Any], *, wide: bool = False) -> Table:
    """Make the table of lost events."""
    lost_events = table("event id", "lost at", "destination", title=f"{body['count']:,} lost events")
    has_colours = any("colour" in row for row in body["lost"])
    if has_colours:
        lost_events.add_column("colour", no_wrap=True)
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
        if has_colours:
            cells.append(row["colour"])
        if wide:
            cells += [str(row["partition"]), f"{row['epoch']}:{row['sequence']}"]
        lost_events.add_row(*cells)
    return lost_events
