"""hifi query: SQL over what the topics of a stream hold now."""

import sqlite3
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from rich.markup import escape

from hifi.kafka.admin import partition_counts, topic_names
from hifi.kafka.clients import topic_consumer
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.runtime.errors import Misconfigured
from hifi.runtime.read_only_sql import Result
from hifi_cli.commands.wait import duration_of
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.progress import record_progress
from hifi_cli.display.tables import print_table, short, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream, Wide
from hifi_cli.query.read_only_sql import select, tables_read
from hifi_cli.query.record_tables import RECEIPTS, TABLES, create_tables, insert, topics_of
from hifi_cli.time_argument import parse_time_ms

_MOST_RECORDS: Final = 200_000
_MOST_ROWS: Final = 1000


@report_errors
async def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT, in SQLite's SQL.")],
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="WHEN", help="Only records since this time: 2h (ago) or an RFC 3339 time."
        ),
    ] = "5m",
    records: Annotated[
        int, typer.Option("--records", metavar="COUNT", min=1, help="Most records that are read.")
    ] = _MOST_RECORDS,
    rows: Annotated[
        int, typer.Option("--rows", metavar="COUNT", min=1, help="Most rows that are shown.")
    ] = _MOST_ROWS,
    query_time: Annotated[
        str, typer.Option("--within", metavar="DURATION", help="Longest time of the query itself.")
    ] = "30s",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Run SQL over the records that topics hold now: events, retries, dead letters, receipts.

    The tables raw, normalized, enriched, retry_in, retry_out, parked,
    dead_letter and receipts have one row a record. The fields of an event are
    in value: value ->> '$.total'. On raw the data is not masked; the audit
    names who read data.

    Examples:
      hifi query "select pipe, count(*) from receipts group by pipe"
      hifi query "select value ->> '$.carrier' c, count(*) from enriched group by c"
      hifi query --since 1h "select event, headers from dead_letter" --json
    """
    target, within_s = kafka_target(data, kafka, stream), duration_of(query_time)
    since_ms = parse_time_ms(since, time.time())
    tables = tables_read(sql, TABLES)
    subject = f"stream/{target.topics.stream}"
    database = sqlite3.connect("")  # a temporary file, which is removed when it is closed
    try:
        create_tables(database, tables)
        if tables == [RECEIPTS]:
            await _load(database, target, tables, since_ms, records)
        else:
            async with target.principals.audited("read event data", {subject: None}) as values_after:
                await _load(database, target, tables, since_ms, records)
                values_after[subject] = {"query": sql}
        result = select(database, sql, rows=rows, within_s=within_s)
    finally:
        database.close()
    print_result(result, wide=wide, as_json=as_json)
    if result.more:
        errors.print(f"these are the first {rows:,} rows; --rows shows more", highlight=False)


async def _load(
    database: sqlite3.Connection,
    target: Target,
    tables: Sequence[str],
    since_ms: int | None,
    record_limit: int,
) -> None:
    """Read the records of some tables from a time on, up to the present end of their topics."""
    topics = target.topics
    try:
        async with topic_consumer(target.kafka, "hifi-query", isolation_level="read_committed") as consumer:
            existing_names = await topic_names(target.kafka, topics.prefix)
            table_of = {
                topic: table for table in tables for topic in topics_of(table, topics, existing_names)
            }
            if missing_tables := table_of.keys() - set(existing_names):
                raise Misconfigured(
                    f"{target.kafka} has no topic {', '.join(missing_tables)}; is the name of the stream right?"
                )
            counts = await partition_counts(target.kafka, list(table_of))
            partitions = [
                TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
            ]
            ranges = await offset_ranges(consumer, partitions, since_ms)
            number = sum(map(len, ranges.values()))
            if number > record_limit:
                raise Misconfigured(
                    f"{number:,} records are more than {record_limit:,}: shorten --since, or allow more with --records"
                )
            with record_progress("reading") as bars:
                bar = bars.add_task("", total=number)
                async for batch in read_ranges(consumer, ranges):
                    if batch:
                        insert(database, table_of[batch[0].topic], batch)
                        bars.advance(bar, len(batch))
    except (KafkaError, OSError) as error:
        raise Misconfigured(
            f"Kafka at {target.kafka} does not answer: {error!r}; is the mesh running?"
        ) from None


def print_result(result: Result, *, wide: bool, as_json: bool) -> None:
    """Print the rows of a query, as a table or as JSON objects.

    Raises:
        Misconfigured: two columns of JSON objects have one name.
    """
    if as_json:
        if len(set(result.columns)) < len(result.columns):
            raise Misconfigured("two columns have one name: give them others with AS")
        print_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
        return
    if not result.rows:
        console.print("no rows")
        return
    headings = [
        f">{escape(name)}"
        if all(isinstance(row[index], int | float) for row in result.rows)
        else escape(name)
        for index, name in enumerate(result.columns)
    ]
    listing = table(*headings)
    for row in result.rows:
        value_texts = ["" if value is None else str(value) for value in row]
        listing.add_row(*(escape(text if wide else short(text)) for text in value_texts))
    print_table(listing, console)
