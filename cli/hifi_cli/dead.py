"""hifi dead: look at dead letters, and let them go again."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hifi.dead.letter import Letter, Wanted, parse_id
from hifi.dead.read import letter, letters
from hifi.dead.replay import replay as let_go
from hifi.errors import Misconfigured, Rejected
from hifi.kafka.producer import Producer
from hifi.pipe.units import seconds
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_cli.output import console, errors, print_json, table
from hifi_cli.reported import reported
from hifi_cli.target import kafka_target

app = typer.Typer(
    no_args_is_help=True, help="Events that no node could pass on: list them, look into one, replay them."
)

OfPipe = Annotated[str | None, typer.Option("--pipe", help="Only of this pipe.")]
OfDestination = Annotated[str | None, typer.Option("--destination", help="Only for this destination.")]
OfReason = Annotated[str | None, typer.Option("--reason", help="Only with this reason, such as schema.")]
_TIME = "A time (RFC 3339, as 2026-05-01T12:00:00Z) or an age (90s, 15m, 2h, 7d)."
Since = Annotated[str | None, typer.Option("--since", help=f"Only what died since. {_TIME}")]
Until = Annotated[str | None, typer.Option("--until", help=f"Only what died before. {_TIME}")]


@app.command("list")
@reported
async def list_(
    pipe: OfPipe = None,
    destination: OfDestination = None,
    reason: OfReason = None,
    since: Since = None,
    until: Until = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List dead letters, a line each; with --json a JSON array.

    hifi dead list --pipe orders --since 1h
    hifi dead list --reason schema --json | jq '.[].pointer'
    """
    target = kafka_target(data, kafka, stream)
    wanted = _wanted(pipe, destination, reason, since, until)
    found = [one async for one in letters(target.kafka, target.topics, wanted)]
    if as_json:
        print_json([one.summary() for one in found])
        return
    rows = table("id", "died", "pipe", "event", "node", "destination", "reason", "why")
    for one in found:
        facts = one.summary()
        why = facts["detail"] + (f" at {facts['pointer']}" if facts["pointer"] else "")
        cells = [
            one.id,
            _moment(one.dead_ms),
            *(facts[name] for name in ("pipe", "event", "node", "destination")),
        ]
        reason_told = facts["reason"] + (" (replayed)" if one.replayed else "")
        rows.add_row(*map(escape, [*cells, reason_told, why]))
    console.print(rows if found else "no dead letters")


@app.command()
@reported
async def show(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `hifi dead list` shows it, such as 3:1042.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its headers and its data, as the node that refused it had them.

    hifi dead show 3:1042
    """
    target = kafka_target(data, kafka, stream)
    one = await letter(target.kafka, target.topics, *parse_id(id_))
    if as_json:
        headers = {name: value.decode("utf-8", "replace") for name, value in one.headers}
        print_json(one.summary() | {"headers": headers, "data": _data(one)})
        return
    rows = table("header", "value", title=f"dead letter {one.id}, died {_moment(one.dead_ms)}")
    for name, value in one.headers:
        rows.add_row(escape(name), escape(value.decode("utf-8", "replace")))
    console.print(rows)
    shown = _data(one)
    text = shown if isinstance(shown, str) else orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()
    console.print(escape(text) if text else "no data", soft_wrap=True)


@app.command()
@reported
async def replay(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]…", help="These; without ids: all that the options name."),
    ] = None,
    pipe: OfPipe = None,
    destination: OfDestination = None,
    reason: OfReason = None,
    since: Since = None,
    until: Until = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every dead letter of the stream.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back at the input of the node that refused them. What was replayed before is left alone.

    hifi dead replay 3:1042
    hifi dead replay --pipe orders --reason status-400
    """
    wanted = _wanted(pipe, destination, reason, since, until)
    if not ids and wanted == Wanted() and not every:
        raise Misconfigured("say which: ids, --pipe, --destination, --reason, --since or --until; or --all")
    target = kafka_target(data, kafka, stream)
    chosen = {parse_id(one) for one in ids or []}
    found = [
        one
        async for one in letters(target.kafka, target.topics, wanted)
        if not chosen or (one.partition, one.offset) in chosen
    ]
    if missing := chosen - {(one.partition, one.offset) for one in found}:
        raise Misconfigured(
            "no such dead letter: " + ", ".join(f"{part}:{offset}" for part, offset in sorted(missing))
        )
    again, before = await _replay(target.kafka, target.topics, found)
    if as_json:
        print_json({"replayed": again, "replayed_before": before})
    else:
        console.print(f"{again:,} replayed, {before:,} had been replayed before")


async def _replay(kafka: str, topics: Any, found: list[Letter]) -> tuple[int, int]:
    """How many went again, and how many had before."""
    again = before = 0
    producer = Producer(kafka, "hifi-replay")
    await producer.start()
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=errors, transient=True) as progress:
            bar = progress.add_task("replaying", total=len(found))
            async for _, topic in let_go(producer, topics, found):
                again, before = again + bool(topic), before + (not topic)
                progress.advance(bar)
    except Rejected as why:
        raise Misconfigured(f"{why.detail}; {again} were replayed before it") from None
    finally:
        await producer.stop()
    return again, before


def _wanted(
    pipe: str | None, destination: str | None, reason: str | None, since: str | None, until: str | None
) -> Wanted:
    return Wanted(pipe, destination, reason, _ms(since, "--since"), _ms(until, "--until"))


def _ms(text: str | None, option: str) -> int | None:
    """A time or an age, as milliseconds since 1970 UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = datetime.now(UTC) - timedelta(seconds=float(seconds(text)))
        except ValueError:
            raise Misconfigured(
                f"{option} {text}: write a time such as 2026-05-01T12:00:00Z or an age such as 90s, 15m, 2h, 7d"
            ) from None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return int(moment.timestamp() * 1000)


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _data(one: Letter) -> Any:
    """The data as JSON where it is some, else as text."""
    try:
        return orjson.loads(one.value or b"")
    except orjson.JSONDecodeError:
        return (one.value or b"").decode("utf-8", "replace")
