"""hifi audit: who changed what through the management API."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from hifi.runtime.clock import MICROSECONDS
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import kafka_target
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
    """List changes through the management API and of its principals: who, when, what, and with which outcome.

    Numbers are those of declarations.

    Examples:
      hifi audit --limit 20
    """
    entries = (await kafka_target(data, kafka, stream).require_control().audit())[-limit:]
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = table("time\nUTC", "who", "what", "subject", "before", "after", "outcome")
    for entry in entries:
        time = datetime.fromtimestamp(entry.at_us / MICROSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S")
        what = f"{entry.what}, taken over" if entry.take_over else entry.what
        outcome = f"{entry.outcome.value}: {entry.reason}" if entry.reason else entry.outcome.value
        rows.add_row(
            time, entry.principal, what, entry.subject, _short(entry.before), _short(entry.after), outcome
        )
    print_table(rows, console)


def _short(value: object) -> str:
    if value is None:
        return "-"
    return str(value["role"]) if isinstance(value, dict) else str(value)
