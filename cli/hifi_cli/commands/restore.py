"""hifi restore: write a backup into a new stream."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from hifi.control.principals.audit import AuditEntry
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup import backup_file
from hifi_cli.backup.restore import restore as restore_state
from hifi_cli.backup.state import SOURCE_POSITIONS
from hifi_cli.commands.backup import control_of, print_counts
from hifi_cli.display.console import console
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.audited_command import author
from hifi_cli.mesh_state.target import kafka_target
from hifi_cli.options import DEFAULT_DATA, Data, Kafka, Stream


@report_errors
async def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `hifi backup` wrote.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Restore into a stream that is not empty: the backup's pipes, releases and principals replace "
            "those with the same name; others stay.",
        ),
    ] = False,
    fresh_destinations: Annotated[
        bool,
        typer.Option(
            "--fresh-destinations",
            help="What Iceberg upserts and kinds of other packages wrote for the old stream was emptied or renamed. "
            "Without it pipes with such destinations are refused: they would lose new events.",
        ),
    ] = False,
) -> None:
    """Write a backup into a new stream and its control plane.

    The whole backup is checked before the first record is written. Rollouts
    go on with the share that they had. Principals use the tokens that they had.
    The offsets of the new stream begin at 0 again, so destinations that know an
    event by its offset alone must be empty: say so with --fresh-destinations.

    Examples:
      hifi up --control &
      hifi restore hifi-2026-11-24.ndjson
    """
    try:
        state = backup_file.decode(file.read_bytes(), str(file))
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from None
    target = kafka_target(data, kafka, stream)
    entry = AuditEntry(author(), "restore", f"stream/{target.topics.stream}", now_us())
    written_counts = await restore_state(
        state,
        target.kafka,
        target.topics,
        control_of(target),
        entry,
        force=force,
        fresh_destinations=fresh_destinations,
    )
    print_counts(written_counts)
    saved_at = datetime.fromtimestamp(state.at_us / MICROSECONDS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    console.print(f"Restored the stream {target.topics.stream} as it was at {saved_at}.", highlight=False)
    if written_counts.get(SOURCE_POSITIONS):
        console.print("normalize reads source positions when it starts: restart it now.", highlight=False)
    omitted_count = state.counts().get(SOURCE_POSITIONS, 0) - written_counts.get(SOURCE_POSITIONS, 0)
    if omitted_count:
        console.print(
            f"Left out {omitted_count} source positions: they belong to partitions, and the stream has another number "
            "of them. Events that a source repeats now can arrive twice.",
            highlight=False,
        )
