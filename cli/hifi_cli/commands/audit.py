"""hifi audit: who changed what, and who read the data of events."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from hifi.control.principals.principal_store import audit_entries
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import utc_time
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import audit_topics
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream


@report_errors
async def audit(
    limit: Annotated[int, typer.Option("--limit", min=1, help="Number of changes, the newest ones.")] = 100,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List changes and readings of event data: who, when, what, and with which outcome.

    Numbers are those of declarations. Commands are named after the user and host that ran them.

    Examples:
      hifi audit --limit 20
    """
    topics = audit_topics(data, kafka, stream)
    entries = (await audit_entries(topics.kafka, topics.topics))[-limit:]
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = table("time\nUTC", "who", "what", "subject", "before", "after", "outcome")
    for entry in entries:
        time = utc_time(entry.at_us, "%Y-%m-%d %H:%M:%S")
        action = f"{entry.what}, taken over" if entry.take_over else entry.what
        outcome = f"{entry.outcome.value}: {entry.reason}" if entry.reason else entry.outcome.value
        text_before, text_after = _short(entry.before), _short(entry.after)
        cells = time, entry.principal, action, entry.subject, text_before, text_after, outcome
        rows.add_row(*map(escape, cells))
    print_table(rows, console)


def _short(value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, dict):
        return str(value)
    return (
        str(value["role"])
        if "role" in value
        else ", ".join(f"{name} {field}" for name, field in value.items())
    )
