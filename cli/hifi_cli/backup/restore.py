"""Writes a backup into a stream and its control plane."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Final

from hifi.control.principals.audit import AuditEntry, AuditOutcome
from hifi.delivery.several_logs import refused_destinations, require_fit_for_colours
from hifi.kafka.fenced_writer import FencedWriter, Overtaken, Transaction
from hifi.kafka.topics import PrincipalTopics, Topics
from hifi.pipe import rollout
from hifi.pipe.registry import RegistrySnapshot, read_registry
from hifi.pipe.revision import PipeRecord, read_key
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_cli.backup.restored_numbers import RestoredNumbers
from hifi_cli.backup.state import (
    AUDIT,
    CONTROL,
    DECLARED,
    DESTINATIONS,
    PIPES,
    RELEASES,
    SCHEMAS,
    SOURCE_POSITIONS,
    WRITE_KEYS,
    State,
    StateRecord,
    check,
    control_topics,
    declared_numbers,
    pipes_of,
    stream_topics,
)
from hifi_cli.backup.state_reader import read_state

_WITHIN_S: Final = 300.0
_CLIENT: Final = "hifi-restore"


async def restore(
    state: State,
    bootstrap: str,
    topics: Topics,
    control: tuple[str, PrincipalTopics] | None,
    entry: AuditEntry,
    *,
    force: bool,
    fresh_destinations: bool,
) -> dict[str, int]:
    """Write the state of a backup; everything is checked before the first record is written.

    The stream's records are one transaction, and those of the control plane another one after it, so that the
    rollout service finds each declared pipe as it was in force.

    Args:
        state: of the backup.
        bootstrap: the stream's Kafka.
        topics: of the stream, which exists.
        control: Kafka and topics of the control plane, or of principals and audit only; None: neither is written.
        entry: for the audit: who restores what.
        force: whether the stream may contain something. The backup's pipes, releases and principals then replace
            those with the same name; others stay.
        fresh_destinations: whether the destinations of the pipes are known to hold nothing of the stream's old log.

    Returns:
        Topic to the number of records written.

    Raises:
        Misconfigured: the backup or the stream is not fit for it, or a destination would lose events; nothing was
            written.
        Retryable: Kafka did not acknowledge everything; the text says what was written.
    """
    check(state)
    control_names = () if control is None else control_topics(control[1])
    if any(record.topic in CONTROL and record.topic not in control_names for record in state.records):
        raise Misconfigured(
            "the backup has records of a control plane and the mesh has none: start it with `hifi up --control`"
        )
    present_state = await read_state(bootstrap, topics, control)
    present_counts = present_state.declared_counts()
    if present_counts and not force:
        counts_text = ", ".join(f"{count} of {topic}" for topic, count in present_counts.items())
        raise Misconfigured(
            f"the stream {topics.stream} is not empty, its records: {counts_text}. Restore into a new stream, or let"
            " the backup replace pipes, releases and principals of the same names with --force"
        )
    if state.partitions != present_state.partitions:
        state = state.without_source_positions()
    registry = await read_registry(bootstrap, topics)
    _require_destinations(state, registry, fresh_destinations=fresh_destinations)
    written_counts = await _write_stream(state, bootstrap, topics, registry)
    if control is None:
        return written_counts
    try:
        return written_counts | await _write_control(state, present_state, *control, entry)
    except Retryable as error:
        raise Retryable(
            f"{error}. The pipes were restored, the control plane was not: repeat it with --force"
        ) from error


def _require_destinations(state: State, registry: RegistrySnapshot, *, fresh_destinations: bool) -> None:
    pipes = pipes_of(state)
    if registry.coloured:
        require_fit_for_colours(pipes)
    lines = sorted(set(refused_destinations(pipes)))
    if lines and not fresh_destinations:
        raise Misconfigured(
            "nothing was restored: the offsets of a new stream begin at 0 again, and these destinations would take its "
            "events for copies of those that the old stream wrote, and lose them:\n  "
            + "\n  ".join(lines)
            + "\nEmpty or rename the tables, folders, topics and positions topics that they wrote, then restore with "
            "--fresh-destinations"
        )


async def _write_stream(
    state: State, bootstrap: str, topics: Topics, registry: RegistrySnapshot
) -> dict[str, int]:
    names, pipes = stream_topics(topics), list(_pipes(state, registry))
    positions = [_position(position) for position in state.of(SOURCE_POSITIONS)]
    keys, parked_destinations = state.of(WRITE_KEYS), state.of(DESTINATIONS)
    async with _transaction(bootstrap, f"{topics.stream}.restore") as transaction:
        for destination in parked_destinations:  # before an event can arrive for one
            await transaction.add(names[DESTINATIONS], destination.record())
        for record in pipes:
            await transaction.add(names[PIPES], record)
        for position in positions:
            await transaction.add(names[SOURCE_POSITIONS], position.record(), position.partition)
        for key in keys:
            await transaction.add(names[WRITE_KEYS], key.record())
    return _nonzero(
        {
            PIPES: len(pipes),
            SOURCE_POSITIONS: len(positions),
            WRITE_KEYS: len(keys),
            DESTINATIONS: len(parked_destinations),
        }
    )


def _pipes(state: State, registry: RegistrySnapshot) -> list[Record]:
    """The records of the pipes: bodies of revisions before the records that name them.

    A pipe that is in force already gets the backup's current revision as a new one, since events of the revisions that
    it has may be on their way. The rollout service begins a rollout that ran anew.

    Raises:
        Misconfigured: the stream has a record of such a pipe that cannot be read.
    """
    records = state.of(PIPES)
    rollout.require_readable(registry, sorted({read_key(body.key.encode())[0] for body in records}))
    pipe_records = [pipe_record for pipe_record in records if read_key(pipe_record.key.encode())[1] is None]
    replaced_names = {pipe_record.key for pipe_record in pipe_records} & set(registry.pipes)
    bodies = [
        body.record()
        for body in records
        if body not in pipe_records and read_key(body.key.encode())[0] not in replaced_names
    ]
    new_records = [
        replace(pipe_record, value={**pipe_record.value, "since": None}).record()
        for pipe_record in pipe_records
        if pipe_record.key not in replaced_names
    ]
    for pipe_record in pipe_records:
        if pipe_record.key in replaced_names:
            restored = PipeRecord.model_validate(pipe_record.value)
            new_records += rollout.put_at_once(
                registry, restored.pipe, paused=restored.paused, cap=restored.cap
            )
    return bodies + new_records


def _position(position: StateRecord) -> StateRecord:
    """The highest position of a source partition. Its runs lie in offsets that the new `raw` does not have."""
    return replace(position, value={"highest": position.value["highest"], "through": -1, "runs": []})


async def _write_control(
    state: State, present_state: State, bootstrap: str, control: PrincipalTopics, entry: AuditEntry
) -> dict[str, int]:
    topic_names = control_topics(control)
    restored_numbers = RestoredNumbers(declared_numbers(present_state))
    written_counts = dict.fromkeys(topic_names, 0)

    async with _transaction(bootstrap, f"{control.control}.restore") as transaction:
        for declaration in state.of(DECLARED):
            record = restored_numbers.declaration(declaration).record()
            restored_numbers.declared[declaration.offset] = await transaction.append(
                topic_names[DECLARED], record
            )
            written_counts[DECLARED] += 1
        for release in state.of(RELEASES):
            restored_numbers.releases[release.offset] = await transaction.append(
                topic_names[RELEASES], release.record()
            )
            written_counts[RELEASES] += 1
        for kind in topic_names:
            # A registry that has schemas keeps them: no id may get another meaning.
            has_schemas = kind == SCHEMAS and present_state.of(SCHEMAS)
            if kind not in (DECLARED, RELEASES) and not has_schemas:
                for original_record in state.of(kind):
                    renumbered_record = restored_numbers.referring(original_record)
                    if renumbered_record is not None:
                        await transaction.add(topic_names[kind], renumbered_record.record())
                        written_counts[kind] += 1
        audit_record = entry.ended(AuditOutcome.DONE, f"{len(state.records)} records").record()
        await transaction.add(topic_names[AUDIT], audit_record)
    return _nonzero(written_counts)


def _nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    return {topic: count for topic, count in counts.items() if count}


@contextlib.asynccontextmanager
async def _transaction(bootstrap: str, transactional_id: str) -> AsyncIterator[Transaction]:
    """A transaction that is committed at the end of the block; all is written or nothing.

    Raises:
        Retryable: Kafka did not acknowledge it.
    """
    writer = FencedWriter(bootstrap, transactional_id, _CLIENT, timeout_s=_WITHIN_S)
    try:
        async with writer.transaction() as transaction:
            yield transaction
    except Overtaken as error:
        raise Retryable("another restore has begun meanwhile: this one has written nothing") from error
    finally:
        await writer.stop()
