"""hifi step: what a step made of events, and what another declaration of it makes of them."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from rich.markup import escape

from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.pipe.sources.step import StepSource
from hifi.pipe.sources.timestamps import rfc3339
from hifi.pipe.step_refusals import step_refusals
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.commands.check import PipeFile, load_pipe
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.progress import record_progress
from hifi_cli.display.tables import print_table, short, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_cli.time_argument import parse_time_ms

if TYPE_CHECKING:
    from hifi_state.comparison import StepDifferences
    from hifi_state.explanation import EnrichedRecord, ExplainedEvent
    from hifi_state.fold.progress import Progress

MISSING: Final = 3
"""Exit status when observe names one of the events as missing."""
_EARLIER: Final = 10_000
"""Records before an event that are read to tell whether it is a copy."""
_MOST: Final = 100_000
"""Records that are explained at once."""
_MOST_COMPARED: Final = 200_000
_RANGE: Final = 20_000
"""Records that are compared at once, of which Spark has all in memory."""
_RANGE_BYTES: Final = 16 * 1024 * 1024
_OFFSETS: Final = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")
_TITLES: Final = {
    "folded": "in its windows",
    "copy": "copy",
    "left-out": "left out by where",
    "unread": "not read yet",
    "read-before": "does not count since the step changed",
    "missing": "[bold red]missing[/]",
}
_REASONS: Final = {
    "kind": "the other declaration has another kind of results",
    "key": "the key of the other has other fields",
    "windows": "no window of the other has this start and length",
    "apart": "the events are too far apart for the other",
    "events": "by the other its events do not count, or in another result",
}
app = typer.Typer(help="Explain what a step made of events, and compare a changed one.")


@app.callback()
def step() -> None:
    """Explain what a step made of events, and compare a changed one."""


@app.command()
@report_errors
async def explain(
    name: Annotated[str, typer.Argument(metavar="STEP", help="Pipe of the step.")],
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, metavar="NUMBER", help="Partition of `enriched`.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="N[..M]", help="Offset in `enriched`, or the first and the last."),
    ] = None,
    identifier: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="`ce_id` or identity of an event, instead.")
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="WHEN", help="With --id: enriched since 2h (ago) or an RFC 3339 time."
        ),
    ] = "1h",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Compute anew, from `enriched`, what a step made of an event or of a range.

    Says for each event whether it is in its windows and which these are, a copy,
    left out by `where`, not read yet, or a dead letter and why. With --data,
    events that observe has found to be in no window are `missing`. An event that
    came before its partition had a watermark is judged exactly only while its
    windows are open, and one beyond the limit of its key only if the others are
    among the 10,000 records before. Starts Spark (about 8 s).

    Exit status: 0, or 3 if an event is missing.

    Examples:
      hifi step explain carrier-delays --partition 3 --offset 1200..1300
      hifi step explain carrier-delays --id 4b1812-1
    """
    target = kafka_target(data, kafka, stream)
    bounds = None if offset is None else _OFFSETS.fullmatch(offset)
    if (identifier is None) == (bounds is None or partition is None):
        raise Misconfigured("give --partition with --offset N or N..M, or --id")
    progress = await _progress(target, name)
    subject = f"stream/{target.topics.stream}"
    sought_ids: set[str] = set()
    async with target.principals.audited("read event data", {subject: None}) as values_after:
        with _answering(target):
            if identifier is not None:
                since_ms = parse_time_ms(since, time.time())
                event_ranges, sought_ids = await _event_ranges(target, progress.pipes, identifier, since_ms)
            else:
                assert bounds is not None
                assert partition is not None
                first_offset = int(bounds[1])
                event_ranges = {partition: range(first_offset, int(bounds[2] or first_offset) + 1)}
            earlier, records = await _records(target, event_ranges)
        values_after[subject] = {
            "explain": name,
            "offsets": {str(number): str(event_ranges[number]) for number in event_ranges},
        }
    events = _explained(name, progress, earlier, records)
    missing_ids = _missing(target, name)
    rows = [_row(event, missing_ids) for event in events if identifier is None or event.event in sought_ids]
    if as_json:
        print_json(rows)
    elif not rows:
        console.print(f"no event of {' or '.join(progress.pipes)} is there", highlight=False)
    else:
        _print(rows)
    if any(row["verdict"] == "missing" for row in rows):
        raise typer.Exit(MISSING)


@app.command()
@report_errors
async def compare(
    file: PipeFile,
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="Enriched since 2h (ago) or an RFC 3339 time."),
    ] = "1h",
    records: Annotated[
        int, typer.Option("--records", metavar="COUNT", min=1, help="Most records that are read.")
    ] = _MOST_COMPARED,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Compare a changed step, before it is applied, with the declaration in force.

    Computes both from the same events of `enriched`, and changes nothing. Says
    which keys of the step differ, what becomes of the events by each, and how
    many results are equal, differ or stand in only one, and why. Results are
    common with equal key, start and end of the window, or of the same events.
    Only those count that have all their events within the time. Doubles may
    differ in the last digits. Starts Spark (about 8 s).

    Exit status: 0, whatever differs.

    Examples:
      hifi step compare pipes/carrier-delays.yaml
      hifi step compare pipes/carrier-delays.yaml --since 20m --json
    """
    pipe, target = load_pipe(file), kafka_target(data, kafka, stream)
    read_pipes = await _read_pipes(target, file, pipe)
    progress = await _progress(target, pipe.pipe)
    pipe_names = tuple(read_pipe.pipe for read_pipe in read_pipes)
    if progress.pipes != pipe_names:
        raise Misconfigured(
            f"{pipe.pipe} reads {' and '.join(progress.pipes)}, and by {file} {' and '.join(pipe_names)}: no event is"
            " common"
        )
    since_ms = parse_time_ms(since, time.time())
    with _answering(target):
        async with topic_consumer(target.kafka, "hifi-step") as consumer:
            ranges = await _ranges(target, consumer, since_ms)
    count = sum(map(len, ranges.values()))
    if count > records:
        raise Misconfigured(
            f"{count:,} records are more than {records:,}: shorten --since, or allow more with --records"
        )
    no_event = Misconfigured(
        f"no event of {' or '.join(pipe_names)} was enriched since {since}: give an earlier --since"
    )
    if not count:
        raise no_event
    subject = f"stream/{target.topics.stream}"
    async with target.principals.audited("read event data", {subject: None}) as values_after:
        comparison = await _compared(target, pipe, read_pipes, progress, ranges)
        values_after[subject] = {"compare": pipe.pipe, "since": since}
    if not comparison.events:
        raise no_event
    if as_json:
        print_json(_comparison_json(pipe.pipe, comparison))
    else:
        _print_comparison(comparison)


async def _read_pipes(target: Target, file: Path, pipe: Pipe) -> list[Pipe]:
    """The published pipes that the step of a file reads."""
    if not isinstance(pipe.source, StepSource):
        raise Misconfigured(
            f"{file}: the pipe {pipe.pipe} is no step; its source is of the kind {pipe.source.kind}"
        )
    snapshot = await read_registry(target.kafka, target.topics)
    pipes = {name: revision.pipe for name, revision in snapshot.pipes.items()}
    for path, reason in step_refusals(pipe, pipes):
        raise Misconfigured(f"{file}: {'.'.join(map(str, path))}: {reason}")
    in_force = pipes.get(pipe.pipe)
    if in_force is None or not isinstance(in_force.source, StepSource):
        raise Misconfigured(f"no step {pipe.pipe} is in force with which to compare {file}")
    return [pipes[name] for name in pipe.source.read_pipes]


async def _in_parts(
    target: Target, ranges: Mapping[TopicPartition, range]
) -> AsyncGenerator[list["EnrichedRecord"], None]:
    """All records of the ranges, in parts that fit in memory."""
    part: list[EnrichedRecord] = []
    size_bytes = 0
    with _answering(target):
        async with topic_consumer(target.kafka, "hifi-step") as consumer:
            async for batch in read_ranges(consumer, ranges):
                part += map(_record, batch)
                size_bytes += sum(len(record.value or b"") for record in batch)
                if len(part) >= _RANGE or size_bytes >= _RANGE_BYTES:
                    yield part
                    part, size_bytes = [], 0
    if part:
        yield part


async def _compared(
    target: Target,
    pipe: Pipe,
    read_pipes: Sequence[Pipe],
    progress: "Progress",
    ranges: Mapping[TopicPartition, range],
) -> "StepDifferences":
    from hifi.spark.catalyst import Catalyst
    from hifi.spark.spark_session import local_spark
    from hifi_state.checked_step import checked_declaration
    from hifi_state.comparison import StepComparison

    assert isinstance(pipe.source, StepSource)
    start = {tp.partition: offsets.start for tp, offsets in ranges.items()}
    with local_spark() as spark, TemporaryDirectory() as folder, record_progress("comparing") as bars:
        catalyst = Catalyst(spark)
        declaration = checked_declaration(catalyst, pipe.source, read_pipes)
        comparison = StepComparison(catalyst, pipe.pipe, progress, declaration, start, Path(folder))
        bar = bars.add_task("", total=sum(map(len, ranges.values())))
        try:
            async with aclosing(_in_parts(target, ranges)) as parts:
                async for part in parts:
                    await asyncio.to_thread(comparison.add, part)
                    bars.advance(bar, len(part))
            return await asyncio.to_thread(comparison.compared)
        finally:
            comparison.close()


def _comparison_json(name: str, comparison: "StepDifferences") -> dict[str, Any]:
    return {
        "step": name,
        "changes": [change._asdict() for change in comparison.changes],
        "events": [
            {"kept": kept_verdict, "declared": declared_verdict, "events": event_count}
            for (kept_verdict, declared_verdict), event_count in comparison.events.most_common()
        ],
        "from": _time(comparison.from_ms),
        "until": _time(comparison.until_ms),
        "equal": comparison.equal,
        "differing": comparison.differing,
        "fields": comparison.fields,
        "only_kept": comparison.only_kept,
        "only_declared": comparison.only_declared,
        "examples": [example._asdict() for example in comparison.examples],
    }


def _print_comparison(comparison: "StepDifferences") -> None:
    if comparison.changes:
        changes = table("changed", "in force", "in the file")
        for change in comparison.changes:
            changes.add_row(escape(change.path), _shown(change.kept), _shown(change.declared))
        print_table(changes, console)
    else:
        console.print("nothing in the step is changed")
    events = table(">\nevents", "\nin force", "\nin the file")
    for (kept_verdict, declared_verdict), number in comparison.events.most_common():
        events.add_row(f"{number:,}", _title(kept_verdict), _title(declared_verdict))
    print_table(events, console)
    if comparison.until_ms is None or comparison.from_ms >= comparison.until_ms:
        console.print("\nno result has all its events in this time: give an earlier --since", highlight=False)
        return
    results = table(">\nresults", "")
    results.add_row(f"{comparison.equal:,}", "equal")
    results.add_row(f"{comparison.differing:,}", "differ")
    for name, number in comparison.fields.most_common():
        results.add_row(f"{number:,}", f"  in {escape(name)}")
    for side, reasons in (("in force", comparison.only_kept), ("in the file", comparison.only_declared)):
        for reason, number in reasons.most_common():
            results.add_row(f"{number:,}", f"only {side}: {_REASONS[reason]}")
    print_table(results, console)
    begin = f"after {_time(comparison.from_ms)} and " if comparison.from_ms else ""
    console.print(f"that end {begin}up to {_time(comparison.until_ms)}", highlight=False)
    if comparison.examples:
        examples = table("\nexample", "\nin force", "\nin the file")
        for example in comparison.examples:
            examples.add_row(_fields(example.place), _fields(example.kept), _fields(example.declared))
        print_table(examples, console)


def _title(verdict: str) -> str:
    return _TITLES.get(verdict, f"dead letter {escape(verdict)}")


def _shown(value: Any) -> str:
    return (
        "-" if value is None else escape(short(f"{value:.15g}" if isinstance(value, float) else str(value)))
    )


def _fields(values: Mapping[str, Any] | None) -> str:
    """Values of a result by name; a dash: there is no result."""
    if values is None:
        return "-"
    return "\n".join(
        f"{escape(name)}: {'null' if value is None else _shown(value)}" for name, value in values.items()
    )


def _time(time_ms: int | None) -> str | None:
    return rfc3339(time_ms).decode() if time_ms else None


@contextmanager
def _answering(target: Target) -> Iterator[None]:
    """Tell that Kafka does not answer."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise Misconfigured(f"Kafka at {target.kafka} does not answer: {error!r}") from None


async def _progress(target: Target, name: str) -> "Progress":
    from hifi_state.fold_log import kept_progress

    newest_value: bytes | None = None

    def take(key: bytes | None, value: bytes | None, _: int) -> None:
        nonlocal newest_value
        if key == name.encode():
            newest_value = value

    topic = target.topics.folds
    follower = TopicFollower(target.kafka, "hifi-step", {topic: take})
    with _answering(target):
        await follower.read_once()
    progress = kept_progress(newest_value, name, topic)
    if progress is None:
        raise Misconfigured(f"{name} is no step, or the service state has not begun it")
    return progress


async def _event_ranges(
    target: Target, pipes: Sequence[str], identifier: str, since_ms: int | None
) -> tuple[dict[int, range], set[str]]:
    """Partition to offsets of an event and its copies, from the first to the last; and its identities."""
    from hifi_state.explanation import events_of

    text = identifier.encode()
    offsets: dict[int, list[int]] = {}
    identities: set[str] = set()
    async with topic_consumer(target.kafka, "hifi-step") as consumer:
        async for batch in read_ranges(consumer, await _ranges(target, consumer, since_ms)):
            for record, event in events_of(pipes, map(_record, batch)):
                if text == event.seq or text == dict(reversed(record.headers)).get("ce_id"):
                    offsets.setdefault(record.partition, []).append(record.offset)
                    identities.add(event.seq.decode())
    event_ranges = {
        partition: range(min(numbers), max(numbers) + 1) for partition, numbers in offsets.items()
    }
    return event_ranges, identities


async def _ranges(target: Target, consumer: Any, since_ms: int | None) -> dict[TopicPartition, range]:
    """The offsets of `enriched` from a time on."""
    topic = target.topics.enriched
    count = (await partition_counts(target.kafka, [topic]))[topic]
    return await offset_ranges(
        consumer, [TopicPartition(topic, number) for number in range(count or 0)], since_ms
    )


async def _records(
    target: Target, event_ranges: dict[int, range]
) -> tuple[list["EnrichedRecord"], list["EnrichedRecord"]]:
    """The records before the ranges, and those in them."""
    if sum(map(len, event_ranges.values())) > _MOST:
        raise Misconfigured(f"these are more than {_MOST:,} records: give a shorter range")
    earlier: list[EnrichedRecord] = []
    records: list[EnrichedRecord] = []
    async with topic_consumer(target.kafka, "hifi-step") as consumer:
        tps = {
            TopicPartition(target.topics.enriched, number): offsets
            for number, offsets in event_ranges.items()
        }
        ranges = {
            tp: range(max(held_range.start, tps[tp].start - _EARLIER), min(held_range.stop, tps[tp].stop))
            for tp, held_range in (await offset_ranges(consumer, tps)).items()
        }
        async for batch in read_ranges(consumer, ranges):
            for record in map(_record, batch):
                (records if record.offset >= event_ranges[record.partition].start else earlier).append(record)
    return earlier, records


def _record(record: ConsumerRecord) -> "EnrichedRecord":
    from hifi_state.explanation import EnrichedRecord

    return EnrichedRecord(record.partition, record.offset, record.key, record.value, list(record.headers))


def _explained(
    name: str, progress: "Progress", earlier: Sequence["EnrichedRecord"], records: Sequence["EnrichedRecord"]
) -> list["ExplainedEvent"]:
    if not records:
        return []
    from hifi.spark.catalyst import Catalyst
    from hifi.spark.spark_session import local_spark
    from hifi_state.explanation import StepExplainer

    with local_spark() as spark:
        return StepExplainer(Catalyst(spark), name, progress).explain(earlier, records)


def _missing(target: Target, name: str) -> set[str]:
    """Identities of the events that observe has found to be missing."""
    if target.observe is None:
        return set()
    try:
        observed_step = target.observe.get(f"/api/v1/pipes/{name}")["step"]
    except HifiError as error:
        errors.print(f"observe does not say which events are missing: {error}", highlight=False, markup=False)
        return set()
    findings = observed_step["findings"] if observed_step else []
    return {
        suspect["event"]
        for finding in findings
        if finding["events"] > 0 and finding["kind"] != "letters"
        for suspect in finding["suspects"]
    }


def _row(event: "ExplainedEvent", missing_ids: set[str]) -> dict[str, Any]:
    is_missing = event.verdict == "folded" and event.event in missing_ids
    return {
        "partition": event.partition,
        "offset": event.offset,
        "event": event.event,
        "time": rfc3339(event.time_ms).decode(),
        "verdict": "missing" if is_missing else event.verdict,
        "windows": [[rfc3339(start).decode(), rfc3339(end).decode()] for start, end in event.windows],
    }


def _print(rows: Sequence[dict[str, Any]]) -> None:
    listing = table(">partition", ">offset", "event", "time", "what became of it", "windows")
    for row in rows:
        windows = ", ".join(f"{start} to {end}" for start, end in row["windows"])
        verdict = _title(row["verdict"])
        listing.add_row(
            str(row["partition"]), str(row["offset"]), escape(row["event"]), row["time"], verdict, windows
        )
    print_table(listing, console)
