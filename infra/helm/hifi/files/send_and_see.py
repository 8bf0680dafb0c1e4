"""Sends an event to a pipe and waits until each destination that wants it has accepted it: the test of the Helm chart.

`hifi event` tells that while the event's minute is still open.

Variables: PIPE, EVENT (JSON with {id}), WITHIN_S, and those of `hifi send` and `hifi event`: HIFI_URL, HIFI_KEY,
HIFI_OBSERVE_URL, HIFI_TOKEN_FILE. Exit status: 0 when it has arrived, 1 when it has not.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TypedDict

HIFI = "/opt/hifi/bin/hifi"
PIPE, WITHIN_S = os.environ["PIPE"], float(os.environ["WITHIN_S"])
event_id = f"helm-test-{uuid.uuid4()}"
end_s = time.monotonic() + WITHIN_S


class ReportedOutcome(TypedDict):
    """What `hifi event` says of the event at one destination."""

    destination: str
    outcome: str


class ReportedEvent(TypedDict):
    """What `hifi event` says of the event."""

    outcomes: list[ReportedOutcome]
    wanted: list[str]


def answer(minute: datetime) -> list[ReportedEvent]:
    """The answer of `hifi event` for the event in a minute; empty: the event is unknown there."""
    completed = subprocess.run(
        [HIFI, "event", PIPE, f"{minute:%Y-%m-%dT%H:%M}", event_id, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if completed.returncode not in {0, 3}:
        return []
    events: list[ReportedEvent] = json.loads(completed.stdout or "[]")
    return events


def has_arrived(event: ReportedEvent) -> bool:
    """Whether each destination that wants the event has accepted it."""
    delivered_destinations = {
        outcome["destination"] for outcome in event["outcomes"] if outcome["outcome"] == "delivered"
    }
    return bool(event["wanted"]) and delivered_destinations >= set(event["wanted"])


first_minute = datetime.now(UTC).replace(second=0, microsecond=0)
event = os.environ["EVENT"].replace("{id}", event_id)
completed_send = subprocess.run(
    [HIFI, "send", PIPE, "-", "--patience", f"{WITHIN_S:g}"], input=f"{event}\n", text=True, check=False
)
if completed_send.returncode != 0:
    sys.exit(f"{PIPE} did not take the event {event_id}")
minute_count = (datetime.now(UTC) - first_minute) // timedelta(minutes=1) + 2
minutes = [first_minute + timedelta(minutes=number) for number in range(minute_count)]
events: list[ReportedEvent] = []
while time.monotonic() < end_s:
    events = [
        reported_event
        for minute in minutes
        if minute <= datetime.now(UTC)
        for reported_event in answer(minute)
    ]
    if any(map(has_arrived, events)):
        print(f"the event {event_id} of {PIPE} has arrived at each destination that wants it")
        sys.exit(0)
    time.sleep(1)
sys.exit(f"the event {event_id} of {PIPE} has not arrived within {WITHIN_S:g} s: {events}")
