"""hifi wait: wait until all events of a pipe that were acknowledged before a time have their outcome."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import seconds
from hifi_cli.commands.minutes import PipeName
from hifi_cli.commands.watermark import watermarks_of
from hifi_cli.display.console import console
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.observe_api import ObserveUrl
from hifi_cli.mesh_state.target import observe_api
from hifi_cli.options import DEFAULT_DATA, Data

NOT_SETTLED: Final = 3
"""Exit status when something is still open at the end of the time."""
_POLL_S: Final = 0.5


@report_errors
def wait(
    pipe: PipeName,
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="Such as 2026-11-27T12:00Z, or `now`.")
    ] = "now",
    duration: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="Longest wait, such as 90s or 2m.")
    ] = "1m",
    destination: Annotated[
        str | None,
        typer.Option(
            "--destination", metavar="NAME", help="Only this destination. Default: all of the pipe."
        ),
    ] = None,
    event_time: Annotated[
        bool, typer.Option("--event-time", help="TIME is an event time, not that of acknowledgement.")
    ] = False,
    chain: Annotated[
        bool,
        typer.Option("--chain", help="Also events of the pipes that write the Kafka topic which PIPE reads."),
    ] = False,
    data: Data = DEFAULT_DATA,
    url: ObserveUrl = None,
) -> None:
    """Wait until all events that were acknowledged before a time have their outcome.

    An outcome is a delivery, a dead letter, or that the event was filtered or
    sent before. Exit status: 0 once that is so, 3 if something is missing after
    DURATION; it says what, and where.

    With --event-time: until an event with that event time or a later one was
    accepted, and all with earlier ones, as acknowledged until now, have their
    outcome, also late ones.

    Examples:
      hifi wait orders --until 2026-11-27T12:00Z --within 2m
      hifi wait orders --destination warehouse
      hifi wait orders --event-time --until 2026-11-27T12:00Z
      hifi wait carriers --chain
    """
    if chain and event_time:
        raise Misconfigured("--chain and --event-time: there is no event time of a chain; leave out either")
    until_time, within_s = moment_of(until), duration_of(duration)
    wait_start = datetime.now(UTC) if event_time else None
    api, end_s = observe_api(data, url), monotonic_s() + within_s
    while True:
        missing_lines = missing_of(
            watermarks_of(api, pipe), pipe, destination, until_time, wait_start, chain=chain
        )
        if not missing_lines:
            return
        if monotonic_s() >= end_s:
            break
        time.sleep(min(_POLL_S, max(0.0, end_s - monotonic_s())))
    for line in missing_lines:
        console.print(line, highlight=False, markup=False)
    raise typer.Exit(NOT_SETTLED)


def moment_of(text: str) -> datetime:
    """The time that somebody waits for.

    Raises:
        Misconfigured: it is no time, or has no zone.
    """
    if text == "now":
        return datetime.now(UTC)
    try:
        parsed_time = parse_iso8601(text)
    except ValueError:
        raise Misconfigured(f"--until {text!r} is not a time; write for example 2026-11-27T12:00Z") from None
    if parsed_time.tzinfo is None:
        raise Misconfigured(
            f"--until {text!r} has no time zone; append Z for UTC, or an offset such as +01:00"
        )
    return parsed_time.astimezone(UTC)


def duration_of(text: str) -> float:
    """The longest wait, seconds.

    Raises:
        Misconfigured: it is no duration.
    """
    try:
        return float(seconds(text))
    except ValueError as error:
        raise Misconfigured(f"--within: {error}") from None


def missing_of(
    rows: Sequence[Mapping[str, Any]],
    pipe: str,
    destination: str | None,
    until_time: datetime,
    wait_start: datetime | None = None,
    *,
    chain: bool = False,
) -> list[str]:
    """Descriptions of what is missing, one line a destination; empty once all is settled.

    Args:
        rows: as observe answers.
        pipe: its name.
        destination: its name; None: all.
        until_time: time before which all must be settled.
        wait_start: for an `until_time` in event time, the start of the wait: events acknowledged until then count.
        chain: whether the pipes before it count.

    Raises:
        Misconfigured: the pipe has no such destination.
    """
    destination_names = [row["destination"] for row in rows]
    if destination is not None and rows and destination not in destination_names:
        raise Misconfigured(
            f"{pipe} has no destination {destination!r}; it has {', '.join(destination_names)}"
        )
    if not rows:
        return [f"{pipe}: nothing is stated yet"]
    rows = [row for row in rows if destination in (None, row["destination"])]
    if wait_start is not None:
        return [
            _event_line(row, until_time)
            for row in rows
            if not _are_events_settled(row, until_time, wait_start)
        ]
    if chain:
        return [line for row in rows if (line := _chain_line(row, until_time))]
    return [_line(row, until_time) for row in rows if not _is_settled(row, until_time)]


def _is_settled(row: Mapping[str, Any], until_time: datetime) -> bool:
    settled_until = row["settled_until"]
    return settled_until is not None and datetime.fromisoformat(settled_until) >= until_time


def _are_events_settled(row: Mapping[str, Any], until_time: datetime, wait_start: datetime) -> bool:
    event_until, as_of = row["event_until"], row["event_as_of"]
    return (
        event_until is not None
        and datetime.fromisoformat(event_until) >= until_time
        and datetime.fromisoformat(as_of) >= wait_start
        and not row["event_late"]["open"]
    )


def _event_line(row: Mapping[str, Any], until_time: datetime) -> str:
    """The line `orders to crm: events until 11:59:58, not 12:00:00: 2 late ones are open` or the like."""
    reasons = (
        list(row["because"]) if row["verdict"] == "unknown" else [*_open_numbers(row), *row["event_because"]]
    )
    if row["event_late"]["open"]:
        reasons.append(f"{row['event_late']['open']} late ones are open")
    event_until = row["event_until"] or "an unknown time"
    is_reached = row["event_until"] is not None and datetime.fromisoformat(event_until) >= until_time
    explanation = (
        "observe has not read so far yet" if is_reached else "no event with that time or a later one was read"
    )
    detail = ", ".join(reasons) or f"nothing is open; {explanation}"
    return f"{row['pipe']} to {row['destination']}: events until {event_until}, not {_text(until_time)}: {detail}"


def _chain_line(row: Mapping[str, Any], until_time: datetime) -> str:
    """The line `alerts to desk: chain settled until 11:59:58, not 12:00:00: held by topic legs` or the like, or empty.

    Raises:
        Misconfigured: no pipe writes what it reads.
    """
    chain = row["chain"]
    if chain is None:
        raise Misconfigured(f"{row['pipe']} reads no Kafka topic that another pipe writes; leave out --chain")
    settled_until = chain["settled_until"]
    if settled_until is not None and datetime.fromisoformat(settled_until) >= until_time:
        return ""
    reasons = [*chain["because"], *([f"held by {chain['held_by']}"] if chain["held_by"] else [])]
    detail = ", ".join(reasons) or "nothing holds it; observe has not read so far yet"
    name = f"{row['pipe']} to {row['destination']}"
    return (
        f"{name}: chain settled until {settled_until or 'an unknown time'}, not {_text(until_time)}: {detail}"
    )


def _text(until_time: datetime) -> str:
    return until_time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _open_numbers(row: Mapping[str, Any]) -> list[str]:
    """Counts of open events, such as `3 at egest`."""
    numbers = [f"{number} at {service}" for service, number in row["open"]["services"].items()]
    for name, text in (("waiting", "waiting for a retry"), ("parked", "parked")):
        if row["open"][name]:
            numbers.append(f"{row['open'][name]} {text}")
    return numbers


def _line(row: Mapping[str, Any], until_time: datetime) -> str:
    """The line `orders to crm: settled until 11:59:58, not 12:00:00: 3 at egest` or the like."""
    numbers = list(row["because"]) if row["verdict"] == "unknown" else _open_numbers(row)
    settled_until = row["settled_until"] or "an unknown time"
    detail = ", ".join(numbers) or "nothing is open; observe has not read so far yet"
    return f"{row['pipe']} to {row['destination']}: settled until {settled_until}, not {_text(until_time)}: {detail}"
