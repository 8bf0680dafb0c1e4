"""hifi destinations: list, park, resume and expire destinations that stay down."""

import contextlib
from typing import Annotated

import typer
from aiokafka import TopicPartition
from rich.markup import escape

from hifi.delivery.destination_state import (
    DestinationName,
    DestinationState,
    DestinationStates,
    StateChange,
    state_record,
)
from hifi.kafka.clients import topic_consumer
from hifi.kafka.producer import Producer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.pipe.registry import read_registry
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import utc_time
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream

app = typer.Typer(help="List, park, resume and expire destinations that stay down.")
PipeName = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]
Named = Annotated[str, typer.Argument(metavar="DESTINATION", help="Name of the destination in the pipe.")]
Reason = Annotated[str, typer.Option(help="Shown by `hifi destinations list`.")]


@app.command("list")
@report_errors
async def list_(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the destinations that were parked: state, since when, by whom and why.

    Examples:
      hifi destinations list
    """
    target = kafka_target(data, kafka, stream)
    changes = sorted((await _read(target)).all().items())
    rows = [
        {
            "pipe": name.pipe,
            "destination": name.destination,
            "state": change.state,
            "since": utc_time(change.at_us, "%Y-%m-%dT%H:%M:%S+00:00"),
            "by": change.by,
            "reason": change.reason,
        }
        for name, change in changes
    ]
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print("No destination was ever parked.")
        return
    listing = table("pipe", "destination", "state", "since", "by", "reason")
    for row in rows:
        listing.add_row(*map(escape, row.values()))
    print_table(listing, console)


@app.command()
@report_errors
async def park(
    pipe: PipeName,
    destination: Named,
    reason: Reason = "",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Send nothing to a destination: its deliveries wait on the topic `parked` until it is resumed.

    Examples:
      hifi destinations park flights billing --reason "moves to another region"
    """
    await _set_state(kafka_target(data, kafka, stream), pipe, destination, DestinationState.PARKED, reason)
    console.print(
        f"{pipe}/{destination} is parked. Resume it with `hifi destinations resume`.", highlight=False
    )


@app.command()
@report_errors
async def resume(
    pipe: PipeName,
    destination: Named,
    reason: Reason = "",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Deliver again, also what is parked; its attempts and age are counted from 0.

    Examples:
      hifi destinations resume flights billing
    """
    await _set_state(kafka_target(data, kafka, stream), pipe, destination, DestinationState.ACTIVE, reason)
    console.print(f"{pipe}/{destination} is active; what is parked comes back.", highlight=False)


@app.command()
@report_errors
async def expire(
    pipe: PipeName,
    destination: Named,
    reason: Reason = "",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Make dead letters with the reason `expired` of what is parked; new events are delivered.

    Examples:
      hifi destinations expire flights billing
    """
    await _set_state(kafka_target(data, kafka, stream), pipe, destination, DestinationState.EXPIRING, reason)
    console.print(f"What is parked of {pipe}/{destination} becomes dead letters.", highlight=False)


async def _read(target: Target) -> DestinationStates:
    states = DestinationStates()
    async with topic_consumer(target.kafka, "hifi-destinations") as consumer:
        ranges = await offset_ranges(consumer, [TopicPartition(target.topics.destinations, 0)])
        async for records in read_ranges(consumer, ranges):
            for record in records:
                with contextlib.suppress(ValueError):  # services skip it, and raise an alarm
                    states.take(record.key, record.value, record.offset)
    return states


async def _set_state(
    target: Target, pipe: str, destination: str, state: DestinationState, reason: str
) -> None:
    """Publish a state.

    Raises:
        Misconfigured: there is no such destination.
    """
    name = DestinationName(pipe, destination)
    revision = (await read_registry(target.kafka, target.topics)).pipes.get(pipe)
    declared = (
        {destination.name for destination in revision.pipe.destinations} if revision is not None else set()
    )
    states = (await _read(target)).all()
    if destination not in declared and name not in states:
        choice = f"; it has {', '.join(sorted(declared))}" if declared else ""
        raise Misconfigured(f"the pipe {pipe!r} has no destination {destination!r}{choice}")
    subject, change_before = f"destination/{pipe}/{destination}", states.get(name)
    old_state = DestinationState.ACTIVE if change_before is None else change_before.state
    async with target.principals.audited(
        f"make it {state.value}", {subject: old_state.value}
    ) as values_after:
        producer = Producer(target.kafka, "hifi-destinations")
        await producer.start()
        try:
            change = StateChange(state, "operator", reason, now_us())
            await producer.send_and_wait(target.topics.destinations, 0, [state_record(name, change)])
        finally:
            await producer.stop()
        values_after[subject] = state.value
