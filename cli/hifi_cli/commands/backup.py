"""hifi backup: save what is declared."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from hifi.kafka.topics import PrincipalTopics
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup import backup_file
from hifi_cli.backup.state_reader import read_state
from hifi_cli.display.console import console
from hifi_cli.display.gaps import print_gaps
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target
from hifi_cli.options import DEFAULT_DATA, Data, Kafka, Stream


@report_errors
async def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the backup, with mode 0600.")],
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Save pipes, releases, principals, audit and source positions in a file.

    The file has no secrets and no tokens, and no events: what Kafka keeps of
    events is not declared state. `hifi restore` writes it into a new stream.

    Examples:
      hifi backup hifi-2026-11-24.ndjson
    """
    target = kafka_target(data, kafka, stream)
    if file.exists():
        raise Misconfigured(f"{file} exists; name a new file")
    state = await read_state(target.kafka, target.topics, control_of(target))
    content = backup_file.encode(state)
    _write(file, content)
    print_counts(state.counts())
    print_gaps(state.unreadable)
    console.print(f"Wrote {file}: {len(content):,} bytes.", highlight=False, soft_wrap=True)


def control_of(target: Target) -> tuple[str, PrincipalTopics]:
    """Kafka and topics of the mesh's control plane; if it has none, those of its principals and audit."""
    if target.control is None:
        return target.principals.kafka, target.principals.topics
    return target.control.kafka, target.control.topics


def print_counts(counts: Mapping[str, int]) -> None:
    """Print a table of topics and records."""
    rows = table("topic", ">records")
    for topic, count in counts.items():
        rows.add_row(topic, str(count))
    print_table(rows, console)


def _write(file: Path, content: bytes) -> None:
    """Write the file completely or not at all."""
    unfinished_file = file.with_name(file.name + ".unfinished")
    try:
        with os.fdopen(
            os.open(unfinished_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        unfinished_file.rename(file)
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written: {error}") from None
