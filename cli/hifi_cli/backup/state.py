"""Content of a backup: records of a stream's topics and of its control plane's. Pure."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from hifi.control import request, rollout_status
from hifi.control.declaration import Declarations
from hifi.control.principals.audit import Audit
from hifi.control.principals.principal import Principals
from hifi.control.releases import deployment, desired_release
from hifi.delivery.destination_state import EGEST, DestinationState, DestinationStates
from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics
from hifi.pipe.issued_key import IssuedKeys
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRecord, RevisionBody, read_key, revision_key
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured

PIPES: Final = "pipes"
SOURCE_POSITIONS: Final = "source-positions"
WRITE_KEYS: Final = "write-keys"
DESTINATIONS: Final = "destinations"
DECLARED: Final = "declared"
RELEASES: Final = "releases"
REQUESTS: Final = "requests"
ROLLOUTS: Final = "rollouts"
DEPLOYMENTS: Final = "deployments"
PRINCIPALS: Final = "principals"
AUDIT: Final = "audit"
SCHEMAS: Final = "schemas"
NEWEST_BY_KEY: Final = frozenset(
    {PIPES, SOURCE_POSITIONS, WRITE_KEYS, DESTINATIONS, RELEASES, ROLLOUTS, DEPLOYMENTS, PRINCIPALS, SCHEMAS}
)
"""Compacted topics, of which the newest record of each key counts."""
_NEW_STREAM: Final = frozenset({PRINCIPALS, AUDIT, SOURCE_POSITIONS})
"""Topics whose records a stream may have and still be empty: `hifi up --control` creates its first principal."""


def stream_topics(topics: Topics) -> dict[str, str]:
    """Name in backups to the topic, on the stream's Kafka."""
    return {
        PIPES: topics.pipes,
        SOURCE_POSITIONS: topics.source_positions,
        WRITE_KEYS: topics.write_keys,
        DESTINATIONS: topics.destinations,
    }


def control_topics(control: PrincipalTopics) -> dict[str, str]:
    """Name in backups to the topic, on the control plane's Kafka; what refers to a record comes after it.

    A stream without a control plane has principals and an audit all the same.
    """
    every_stream = {PRINCIPALS: control.principals, AUDIT: control.audit}
    if not isinstance(control, ControlTopics):
        return every_stream
    return {
        DECLARED: control.declared,
        RELEASES: control.releases,
        REQUESTS: control.requests,
        ROLLOUTS: control.rollouts,
        DEPLOYMENTS: control.deployments,
        **every_stream,
        SCHEMAS: control.schemas,
    }


CONTROL: Final = tuple(control_topics(ControlTopics("")))
ALL: Final = (*stream_topics(Topics("")), *CONTROL)


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A record of the state.

    Attributes:
        topic: one of `ALL`.
        partition: of the topic.
        offset: of the record; other records refer to it.
        key: of the record.
        value: of the record, JSON; None deletes.
    """

    topic: str
    partition: int
    offset: int
    key: str
    value: Any

    def record(self) -> Record:
        """The record to write."""
        return Record(self.key.encode(), orjson.dumps(self.value), [])


@dataclass(frozen=True, slots=True)
class State:
    """The declared state of a stream and its control plane.

    Attributes:
        stream: its name.
        control: name of the control plane; empty: there is none.
        partitions: of the stream's event topics.
        at_us: when it was read, microseconds since 1970 UTC.
        records: topic after topic as in `ALL`; those of a topic in their order.
    """

    stream: str
    control: str
    partitions: int
    at_us: int
    records: Sequence[StateRecord]
    unreadable: Sequence[str] = ()
    """A sentence about each record that is left out, since nobody can read it. It is not in a backup."""

    def of(self, topic: str) -> list[StateRecord]:
        """The records of one of the topics."""
        return [record for record in self.records if record.topic == topic]

    def counts(self) -> dict[str, int]:
        """Topic to the number of its records, of those that have any."""
        record_counts = Counter(record.topic for record in self.records)
        return {topic: record_counts[topic] for topic in ALL if record_counts[topic]}

    def declared_counts(self) -> dict[str, int]:
        """The counts without what a new stream may contain; empty: the stream is empty."""
        return {topic: count for topic, count in self.counts().items() if topic not in _NEW_STREAM}

    def without_source_positions(self) -> "State":
        """The state without the positions of sources."""
        return replace(self, records=[record for record in self.records if record.topic != SOURCE_POSITIONS])


def effective(topic: str, records: Iterable[StateRecord]) -> list[StateRecord]:
    """The records that count, in their order: of a compacted topic the newest of each key that is not deleted.

    Of `destinations` only those count with which people parked one: a new stream has parked nothing.
    """
    if topic not in NEWEST_BY_KEY:
        return list(records)
    newest_records: dict[tuple[int, str], StateRecord] = {}
    for record in records:
        newest_records.pop((record.partition, record.key), None)
        newest_records[record.partition, record.key] = record
    return [
        record
        for record in newest_records.values()
        if record.value is not None and (topic != DESTINATIONS or _is_parked_by_people(record))
    ]


def _is_parked_by_people(record: StateRecord) -> bool:
    """Whether a record of `destinations` says so; egest parks again by itself what does not answer."""
    states = DestinationStates()
    with contextlib.suppress(ValueError, KeyError, TypeError):  # services skip it, and raise an alarm
        states.take(record.key.encode(), orjson.dumps(record.value), record.offset)
    return any(
        change.state is DestinationState.PARKED and change.by != EGEST for change in states.all().values()
    )


def declared_numbers(state: State) -> dict[str, int]:
    """Pipe to the number that its next declaration replaces."""
    declarations = Declarations()
    for record in state.of(DECLARED):
        # A pipe that this release cannot read has a number all the same.
        with contextlib.suppress(ValueError):
            declarations.take(record.key.encode(), orjson.dumps(record.value), record.offset)
    return {record.key: declarations.number(record.key) for record in state.of(DECLARED)}


def pipes_of(state: State) -> list[Pipe]:
    """The pipes that a restore brings into force, at once or in a rollout; `check` has passed."""
    records = state.of(PIPES)
    in_force = [record for record in records if read_key(record.key.encode())[1] is None]
    pipes = [PipeRecord.model_validate(record.value).pipe for record in in_force]
    pipes += [RevisionBody.model_validate(record.value).pipe for record in records if record not in in_force]
    declarations = Declarations()
    for record in state.of(DECLARED):
        with contextlib.suppress(ValueError):
            declarations.take(record.key.encode(), orjson.dumps(record.value), record.offset)
    return pipes + [
        declaration.pipe for declaration in declarations.newest.values() if declaration.pipe is not None
    ]


def check(state: State) -> None:
    """Check that this release can read every record that it must act on, and that revisions are complete.

    Raises:
        Misconfigured: it cannot; the text names the record.
    """
    keys = {record.key for record in state.of(PIPES)}
    newest_numbers = set(declared_numbers(state).values())
    for record in state.records:
        try:
            if record.topic == PIPES:
                _check_pipe(record, keys)
            elif record.topic == DECLARED:
                _check_declaration(record, newest=record.offset in newest_numbers)
            else:
                _CHECKS[record.topic](record)
        except (KeyError, TypeError, ValueError) as error:
            raise Misconfigured(
                f"the record {record.key!r} of {record.topic} (offset {record.offset}) cannot be restored by this "
                f"release: {error}. Restore with the release that made the backup"
            ) from None


def _check_pipe(state_record: StateRecord, keys: Iterable[str]) -> None:
    name, revision = read_key(state_record.key.encode())
    if revision is not None:
        pipe = RevisionBody.model_validate(state_record.value).pipe
    else:
        record = PipeRecord.model_validate(state_record.value)
        pipe = record.pipe
        if record.next is not None and revision_key(name, record.next.revision) not in keys:
            raise ValueError(f"its next revision {record.next.revision} is missing")
    if pipe.pipe != name:
        raise ValueError(f"it contains the pipe {pipe.pipe!r}")


def _check_declaration(record: StateRecord, *, newest: bool) -> None:
    """Earlier declarations are history, whose pipes this release need not know."""
    if newest:
        Declarations().take(record.key.encode(), orjson.dumps(record.value), record.offset)
    elif not isinstance(record.value["replaces"], int):
        raise ValueError("`replaces` is no whole number")


def _check_schema(record: StateRecord) -> None:
    kind, *version_key = orjson.loads(record.key)
    if kind == "version" and not (
        len(version_key) == 2 and isinstance(record.value["id"], int) and record.value["schema"]
    ):
        raise ValueError("it is no version of a subject")


def _check_position(record: StateRecord) -> None:
    if not isinstance(record.value["highest"], int):
        raise ValueError("`highest` is no whole number")  # noqa: TRY004 - as the decoders of the other records


_CHECKS: Final[Mapping[str, Callable[[StateRecord], object]]] = {
    SOURCE_POSITIONS: _check_position,
    RELEASES: lambda record: desired_release.decode(orjson.dumps(record.value), record.offset),
    REQUESTS: lambda record: request.decode(orjson.dumps(record.value)),
    ROLLOUTS: lambda record: rollout_status.decode(orjson.dumps(record.value)),
    DEPLOYMENTS: lambda record: deployment.decode(orjson.dumps(record.value)),
    PRINCIPALS: lambda record: Principals().take(
        record.key.encode(), orjson.dumps(record.value), record.offset
    ),
    DESTINATIONS: lambda record: DestinationStates().take(
        record.key.encode(), orjson.dumps(record.value), record.offset
    ),
    WRITE_KEYS: lambda record: IssuedKeys().take(
        record.key.encode(), orjson.dumps(record.value), record.offset
    ),
    AUDIT: lambda record: Audit().take(None, orjson.dumps(record.value), record.offset),
    SCHEMAS: _check_schema,
}
