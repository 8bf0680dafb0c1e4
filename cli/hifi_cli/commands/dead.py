"""hifi dead: look at dead letters, and let them go again."""

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

import typer
from aiokafka.errors import KafkaError
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hifi.dead_letters.letter import DeadLetter, DeadLetterFilter, parse_id
from hifi.dead_letters.reader import letter, letters
from hifi.dead_letters.replay import replay as let_go
from hifi.errors import Misconfigured, Rejected
from hifi.kafka.producer import Producer
from hifi_cli.display.console import console, errors, print_json, table
from hifi_cli.error_reporting import FAILED, reported
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_cli.time_argument import milliseconds_since_1970

app = typer.Typer(
    no_args_is_help=True, help="Events that no service could pass on: list them, look into one, replay them."
)
Pipe = Annotated[str | None, typer.Option("--pipe", help="Only of this pipe.")]
Where = Annotated[str | None, typer.Option("--destination", help="Only of this destination.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Only with this reason, such as schema.")]
Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Died since: 2h (ago), or a time of RFC 3339.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="Died before, written as --since.")
]


@app.command("list")
@reported
async def list_(
    pipe: Pipe = None,
    destination: Where = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most the last so many.")] = 50,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List dead letters: which event, refused by which service, why, and whether it was replayed. Never its data.

    hifi dead list
    hifi dead list --pipe orders --reason schema --since 2h
    hifi dead list --json | jq -r '.[].event'
    """
    target = kafka_target(data, kafka, stream)
    found = [
        one
        async for one in letters(
            target.kafka, target.topics, _wanted(pipe, destination, reason, since, until)
        )
    ]
    found.sort(key=lambda one: (one.dead_ms, one.partition, one.offset))
    if as_json:
        print_json([one.summary() for one in found])
        return
    rows = table("id", "died at", "pipe", "event", "refused by", "reason", "detail", "replayed")
    for one in found[-limit:]:
        rows.add_row(*_row(one))
    console.print(rows if found else "no dead letters")
    if len(found) > limit:
        console.print(f"the last {limit:,} of {len(found):,}; --limit shows more", highlight=False)


@app.command()
@reported
async def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="As `hifi dead list` shows it, such as 3:1042.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    value: Annotated[
        bool,
        typer.Option(
            "--value", help="Show the event's data too: as the service got it, before normalize unmasked."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: what failed where, every header, and on request its data.

    hifi dead show 3:1042
    hifi dead show 3:1042 --value
    """
    target = kafka_target(data, kafka, stream)
    one = await letter(target.kafka, target.topics, *parse_id(name))
    body = (one.value or b"").decode("utf-8", "replace")
    headers = {header: content.decode("utf-8", "replace") for header, content in one.headers}
    if as_json:
        told: dict[str, Any] = one.summary() | {
            "key": (one.key or b"").decode("utf-8", "replace"),
            "headers": headers,
        }
        print_json(told | ({"value": body} if value else {"value_bytes": len(one.value or b"")}))
        return
    rows = table("header", "value", title=f"dead letter {one.id}, {_clock(one)}")
    for header, content in headers.items():
        rows.add_row(header, escape(content))
    console.print(rows)
    if value:
        print(body)
    else:
        console.print(f"{len(one.value or b''):,} bytes of data; --value shows them", highlight=False)


@app.command()
@reported
async def replay(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Some, as `hifi dead list` shows them.")
    ] = None,
    pipe: Pipe = None,
    destination: Where = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let dead letters go again, from the service that refused them on, once the cause is mended.

    What was replayed already is left out, so repeating the command is harmless, also after a Ctrl-C.

      hifi dead replay 3:1042
      hifi dead replay --pipe orders --destination warehouse --since 1d
    """
    wanted = _wanted(pipe, destination, reason, since, until)
    if not names and wanted == DeadLetterFilter() and not everything:
        raise Misconfigured("say which: ids, a filter such as --pipe, or --all")
    places = {parse_id(name) for name in names or ()}
    target = kafka_target(data, kafka, stream)
    outcome: Counter[str] = Counter()
    async with _producer(target) as producer:
        with Progress(
            TextColumn("replaying"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=errors,
            transient=True,
        ) as bars:
            bar = bars.add_task("", total=None)
            told = lambda done, total: bars.update(bar, completed=done, total=total)  # noqa: E731
            async for one in letters(target.kafka, target.topics, wanted, told):
                if not places or (one.partition, one.offset) in places:
                    outcome[await _replayed(producer, target, one)] += 1
    missing = len(places) - outcome.total() if places else 0
    counts = {"replayed": outcome["replayed"], "already": outcome["already"], "refused": outcome["refused"]}
    if as_json:
        print_json(counts | {"missing": missing})
    else:
        more = f"; {counts['already']:,} had been replayed before" if counts["already"] else ""
        more += f"; {counts['refused']:,} cannot be replayed" if counts["refused"] else ""
        more += f"; {missing:,} of the ids are no dead letters" if missing else ""
        console.print(f"{counts['replayed']:,} dead letter(s) replayed{more}", highlight=False)
    if counts["refused"] or missing:
        raise typer.Exit(FAILED)


async def _replayed(producer: Producer, target: Target, one: DeadLetter) -> str:
    try:
        async for _, topic in let_go(producer, target.topics, [one]):
            return "replayed" if topic else "already"
    except Rejected as error:
        errors.print(f"{one.id}: {error.detail}", highlight=False, markup=False)
    return "refused"


@contextlib.asynccontextmanager
async def _producer(target: Target) -> AsyncIterator[Producer]:
    producer = Producer(target.kafka, "hifi-dead-replay")
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise Misconfigured(f"no Kafka answers at {target.kafka}: {error!r}; is the mesh up?") from None
    try:
        yield producer
    finally:
        await producer.stop()


def _wanted(
    pipe: str | None, destination: str | None, reason: str | None, since: str | None, until: str | None
) -> DeadLetterFilter:
    now_s = time.time()
    return DeadLetterFilter(
        pipe,
        destination,
        reason,
        milliseconds_since_1970(since, now_s),
        milliseconds_since_1970(until, now_s),
    )


def _row(one: DeadLetter) -> list[str]:
    facts = one.summary()
    refused_by = facts["service"] + (f" for {facts['destination']}" if facts["destination"] else "")
    detail = facts["detail"] + (f" at {facts['pointer']}" if facts["pointer"] else "")
    texts = [one.id, _clock(one), facts["pipe"], facts["event"], refused_by, facts["reason"], detail]
    return [*map(escape, texts), "yes" if facts["replayed"] else ""]


def _clock(one: DeadLetter) -> str:
    return f"{datetime.fromtimestamp(one.dead_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
