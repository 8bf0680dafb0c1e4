"""hifi event: what became of one event."""

from typing import Annotated, Any, Final
from urllib.parse import quote

import typer
from rich.markup import escape
from rich.table import Table

from hifi_cli.commands.minutes import PipeName
from hifi_cli.display.console import console, print_json
from hifi_cli.display.gaps import print_gaps
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import minute_utc
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.mesh_answers import ask_observe
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.options import DEFAULT_DATA, AsJson, Data

UNKNOWN: Final = 3
"""Exit status when the minute has no such event."""
_NOT_WANTED: Final = (
    "its `when` was not true for the event, or is null, or the pipe's `filter` dropped the event"
)


@report_errors
def event(
    pipe: PipeName,
    minute: Annotated[
        str, typer.Argument(metavar="MINUTE", help="A minute in UTC such as 2026-11-21T10:04.")
    ],
    event_id: Annotated[str, typer.Argument(metavar="ID", help="The ce_id of the event.")],
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say what became of an event at each destination, and which did not want it.

    While the minute is open it says so, and what it says is not final. With two
    colours both are asked.

    Exit status: 0 if the event is there, 3 if the minute has none with this id, 1
    if a colour gave no answer and the other one has none.

    Examples:
      hifi event flights 2026-11-21T10:04 4b1812-1
    """
    path = f"/api/v1/pipes/{quote(pipe)}/minutes/{quote(minute)}/event?id={quote(event_id, safe='')}"
    answers = ask_observe(data, url, path)
    for body in answers.bodies.values():
        for event_body in body["events"]:
            event_body["provisional"] = body["provisional"]
    events = answers.rows("events")
    if as_json:
        print_json(events)
    elif events:
        for event_body in events:
            print_table(event_table(event_body), console)
    elif not answers.gaps:
        bodies = answers.bodies.values()
        text = f"{pipe} has no event {event_id} in {minute_utc(next(iter(bodies))['minute'])} (UTC)"
        text += ", which is still open" if any(body["provisional"] for body in bodies) else ""
        console.print(text, highlight=False, markup=False)
    print_gaps(answers.gaps)
    if not events:
        raise typer.Exit(FAILED if answers.gaps else UNKNOWN)


def event_table(event_body: dict[str, Any]) -> Table:
    """Make the table of the outcomes of an event."""
    topic = f"{event_body['colour']} raw" if "colour" in event_body else "raw"
    deliveries = table(
        "destination",
        "outcome",
        "why",
        "release",
        title=f"{topic} {event_body['partition']}:{event_body['offset']}",
    )
    for outcome in event_body["outcomes"]:
        deliveries.add_row(
            escape(outcome["destination"] or "all"),
            outcome["outcome"],
            escape(outcome["reason"] or ""),
            escape(outcome.get("release") or ""),
        )
    for name in event_body["not_wanted"]:
        deliveries.add_row(escape(name), "not wanted", _NOT_WANTED, "")
    open_destinations = set(event_body["wanted"] or []) - {
        outcome["destination"] for outcome in event_body["outcomes"]
    }
    for name in sorted(open_destinations):
        deliveries.add_row(escape(name), "open", "it has no outcome yet", "")
    is_provisional = event_body["provisional"]
    if event_body["wanted"] is None and not event_body["outcomes"]:
        loss = "" if is_provisional else ", or it is lost: see `hifi lost`"
        deliveries.add_row("all", "open", f"enrich has not written it yet{loss}", "")
    deliveries.caption = "so far: the minute is still open" if is_provisional else None
    return deliveries
