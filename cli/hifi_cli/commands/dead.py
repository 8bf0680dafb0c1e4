"""hifi dead: list, show and replay dead letters."""

import contextlib
import heapq
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any

import typer
from aiokafka.errors import KafkaError
from rich.markup import escape
from rich.table import Table

from hifi.delivery.dead_letters.letter import DeadLetter, DeadLetterFilter, parse_id
from hifi.delivery.dead_letters.reader import letter, letters
from hifi.delivery.dead_letters.replay import replay as replay_letters
from hifi.kafka.producer import Producer
from hifi.pipe.registry import RegistrySnapshot, read_registry
from hifi.runtime.errors import Misconfigured, Rejected
from hifi_cli.display.console import console, errors, print_json, print_text
from hifi_cli.display.progress import record_progress
from hifi_cli.display.tables import print_table, short, table
from hifi_cli.display.units import local_time
from hifi_cli.error_reporting import FAILED, report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream, Wide
from hifi_cli.time_argument import parse_time_ms

app = typer.Typer(
    no_args_is_help=True,
    help="List, show and replay dead letters: events and deliveries that failed for good.",
)
Pipe = Annotated[str | None, typer.Option("--pipe", metavar="NAME", help="Only dead letters of this pipe.")]
Destination = Annotated[
    str | None, typer.Option("--destination", metavar="NAME", help="Only dead letters of this destination.")
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help="Only dead letters with this reason, such as schema."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Only dead letters since this time: 2h (ago) or an RFC 3339 time."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="WHEN", help="Only dead letters before this time, written as for --since."
    ),
]


@app.command("list")
@report_errors
async def list_(
    pipe: Pipe = None,
    destination: Destination = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="COUNT", min=1, help="Show at most this many, the newest ones.")
    ] = 50,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters: the event, the service that refused it, the reason, and whether it was replayed.

    The data of the events is not shown; see `hifi dead show`.

    Examples:
      hifi dead list
      hifi dead list --wide
      hifi dead list --pipe orders --reason schema --since 2h
      hifi dead list --json | jq -r '.[].event'
    """
    target = kafka_target(data, kafka, stream)
    newest: list[tuple[int, int, int, DeadLetter]] = []  # a heap, so that the oldest is the first
    total = 0
    letter_filter = _filter(pipe, destination, reason, since, until)
    async for dead_letter in letters(target.kafka, target.topics, letter_filter):
        total += 1
        bare_letter = replace(dead_letter, key=None, value=None)  # there may be gigabytes of data
        heapq.heappush(newest, (bare_letter.dead_ms, bare_letter.partition, bare_letter.offset, bare_letter))
        if len(newest) > limit and not as_json:
            heapq.heappop(newest)
    dead_letters = [dead_letter for *_, dead_letter in sorted(newest)]
    if as_json:
        print_json([dead_letter.summary() for dead_letter in dead_letters])
        return
    if not dead_letters:
        console.print("no dead letters")
        return
    print_table(dead_letter_table(dead_letters, wide=wide), console)
    if total > limit:
        console.print(f"These are the newest {limit:,} of {total:,}; --limit shows more.", highlight=False)


@app.command()
@report_errors
async def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id from `hifi dead list`, such as 3:1042.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    value: Annotated[
        bool,
        typer.Option(
            "--value",
            help="Show the event's data too, as the service received it: not masked if normalize refused it.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: its reason, all its headers and, with --value, its data.

    Examples:
      hifi dead show 3:1042
      hifi dead show 3:1042 --value
    """
    target = kafka_target(data, kafka, stream)
    dead_letter = await letter(target.kafka, target.topics, *parse_id(name))
    if value:
        subject = f"pipe/{dead_letter.summary()['pipe']}"
        async with target.principals.audited("read event data", {subject: None}) as values_after:
            values_after[subject] = {"dead_letters": [dead_letter.id]}
    body = (dead_letter.value or b"").decode("utf-8", "replace")
    headers = {
        header: content.decode("utf-8", "replace") for header, content in dead_letter.header_fields.items()
    }
    if as_json:
        letter_fields: dict[str, Any] = dead_letter.summary() | {
            "key": (dead_letter.key or b"").decode("utf-8", "replace"),
            "headers": headers,
        }
        print_json(
            letter_fields | ({"value": body} if value else {"value_bytes": len(dead_letter.value or b"")})
        )
        return
    rows = table(
        "=header", "value", title=f"Dead letter {dead_letter.id}, {local_time(dead_letter.dead_ms / 1000)}"
    )
    for header, content in headers.items():
        rows.add_row(header, escape(content))
    print_table(rows, console)
    if value:
        print_text(body)
    else:
        console.print(
            f"{len(dead_letter.value or b''):,} bytes of data; use --value to show them", highlight=False
        )


@app.command()
@report_errors
async def replay(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids from `hifi dead list`.")
    ] = None,
    pipe: Pipe = None,
    destination: Destination = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    all_letters: Annotated[bool, typer.Option("--all", help="Replay all dead letters.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay dead letters: process them again, starting with the service that refused them.

    Fix the cause first. Dead letters that have been replayed before are skipped,
    so the command can be repeated safely, also after Ctrl-C.

    Examples:
      hifi dead replay 3:1042
      hifi dead replay --pipe orders --destination warehouse --since 1d
    """
    letter_filter = _filter(pipe, destination, reason, since, until)
    if not names and letter_filter == DeadLetterFilter() and not all_letters:
        raise Misconfigured("no dead letters selected: give ids, a filter such as --pipe, or --all")
    wanted_positions = {parse_id(name) for name in names or ()}
    target = kafka_target(data, kafka, stream)
    outcomes: Counter[str] = Counter()
    works = set[bytes]()
    registry = await read_registry(target.kafka, target.topics)
    values_before = {f"pipe/{pipe or 'all'}": _selection(names, destination, reason, since, until)}
    async with (
        target.principals.audited("replay dead letters", values_before) as values_after,
        _producer(target) as producer,
    ):
        with record_progress("replaying") as bars:
            bar = bars.add_task("", total=None)
            show_progress = lambda read_count, total: bars.update(bar, completed=read_count, total=total)  # noqa: E731
            async for dead_letter in letters(target.kafka, target.topics, letter_filter, show_progress):
                if not wanted_positions or (dead_letter.partition, dead_letter.offset) in wanted_positions:
                    outcomes[await _replayed(producer, target, dead_letter, registry, works)] += 1
                    values_after.update({subject: dict(outcomes) for subject in values_before})
    missing_count = len(wanted_positions) - outcomes.total() if wanted_positions else 0
    counts = {
        "replayed": outcomes["replayed"],
        "already": outcomes["already"],
        "refused": outcomes["refused"],
    }
    if as_json:
        print_json(counts | {"missing": missing_count})
    else:
        suffix = f"; {counts['already']:,} had been replayed before" if counts["already"] else ""
        suffix += f"; {counts['refused']:,} cannot be replayed" if counts["refused"] else ""
        suffix += f"; {missing_count:,} of the ids do not exist" if missing_count else ""
        console.print(f"{counts['replayed']:,} dead letter(s) replayed{suffix}", highlight=False)
    if counts["refused"] or missing_count:
        raise typer.Exit(FAILED)


def _selection(names: list[str] | None, *filters: str | None) -> dict[str, Any]:
    """The arguments of a replay that were given, for the audit."""
    by_option = dict(zip(("destination", "reason", "since", "until"), filters, strict=True))
    return {"ids": names or []} | {name: text for name, text in by_option.items() if text}


async def _replayed(
    producer: Producer,
    target: Target,
    dead_letter: DeadLetter,
    registry: RegistrySnapshot,
    works: set[bytes],
) -> str:
    pipes, held_pipes = registry.pipes, registry.held
    try:
        async for _, topic in replay_letters(
            producer, target.topics, [dead_letter], pipes, held_pipes, works
        ):
            return "replayed" if topic else "already"
    except Rejected as error:
        errors.print(f"{dead_letter.id}: {error.detail}", highlight=False, markup=False)
    return "refused"


@contextlib.asynccontextmanager
async def _producer(target: Target) -> AsyncIterator[Producer]:
    producer = Producer(target.kafka, "hifi-dead-replay")
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise Misconfigured(
            f"Kafka at {target.kafka} does not answer: {error!r}; is the mesh running?"
        ) from None
    try:
        yield producer
    finally:
        await producer.stop()


def _filter(
    pipe: str | None, destination: str | None, reason: str | None, since: str | None, until: str | None
) -> DeadLetterFilter:
    now_s = time.time()
    return DeadLetterFilter(
        pipe,
        destination,
        reason,
        parse_time_ms(since, now_s),
        parse_time_ms(until, now_s),
    )


def dead_letter_table(dead_letters: list[DeadLetter], *, wide: bool = False) -> Table:
    """Make the table of dead letters, in the order given."""
    extra_columns = ["detail"] if wide else []
    rows = table("=id", "=time", "pipe", "event", "refused by", "reason", *extra_columns, "replayed")
    for dead_letter in dead_letters:
        letter_fields = dead_letter.summary()
        served = letter_fields["destination"] or letter_fields["step"]
        refused_by = letter_fields["service"] + (f" for {served}" if served else "")
        detail = letter_fields["detail"] + (
            f" at {letter_fields['pointer']}" if letter_fields["pointer"] else ""
        )
        dead_time = local_time(dead_letter.dead_ms / 1000)
        cells = [
            dead_letter.id,
            dead_time if wide else dead_time[5:],
            letter_fields["pipe"],
            short(letter_fields["event"]),
            refused_by,
            letter_fields["reason"],
        ]
        if wide:
            cells.append(detail)
        rows.add_row(*map(escape, cells), "yes" if letter_fields["replayed"] else "")
    return rows
