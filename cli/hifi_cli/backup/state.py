"""What a backup contains: records of a stream's topics and of its control plane's. Pure."""

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
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.revision import PipeRecord, RevisionBody, read_key, revision_key
from hifi.record.event import Record
from hifi.runtime.errors import Misconfigured

PIPES: Final = "pipes"
SOURCE_POSITIONS: Final = "source-positions"
DECLARED: Final = "declared"
RELEASES: Final = "releases"
REQUESTS: Final = "requests"
ROLLOUTS: Final = "rollouts"
DEPLOYMENTS: Final = "deployments"
PRINCIPALS: Final = "principals"
AUDIT: Final = "audit"
SCHEMAS: Final = "schemas"
_NEWEST_BY_KEY: Final = frozenset(
    {PIPES, SOURCE_POSITIONS, RELEASES, ROLLOUTS, DEPLOYMENTS, PRINCIPALS, SCHEMAS}
)
"""Compacted topics, of which the newest record of each key counts."""
_NEW_STREAM: Final = frozenset({PRINCIPALS, AUDIT, SOURCE_POSITIONS})
"""What a stream may contain and still be empty: `hifi up --control` creates its first principal."""


def stream_topics(topics: Topics) -> dict[str, str]:
    """Name in backups to the topic, on the stream's Kafka."""
    return {PIPES: topics.pipes, SOURCE_POSITIONS: topics.source_positions}


def control_topics(control: ControlTopics) -> dict[str, str]:
    """Name in backups to the topic, on the control plane's Kafka; what refers to a record comes after it."""
    return {
        DECLARED: control.declared,
        RELEASES: control.releases,
        REQUESTS: control.requests,
        ROLLOUTS: control.rollouts,
        DEPLOYMENTS: control.deployments,
        PRINCIPALS: control.principals,
        AUDIT: control.audit,
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

    def of(self, topic: str) -> list[StateRecord]:
        """The records of one of the topics."""
        return [one for one in self.records if one.topic == topic]

    def counts(self) -> dict[str, int]:
        """Topic to the number of its records, of those that have any."""
        counted = Counter(one.topic for one in self.records)
        return {topic: counted[topic] for topic in ALL if counted[topic]}

    def declared_counts(self) -> dict[str, int]:
        """The counts without what a new stream may contain; empty: the stream is empty."""
        return {topic: count for topic, count in self.counts().items() if topic not in _NEW_STREAM}

    def without_source_positions(self) -> "State":
        """The state without the positions of sources."""
        return replace(self, records=[one for one in self.records if one.topic != SOURCE_POSITIONS])


def effective(topic: str, records: Iterable[StateRecord]) -> list[StateRecord]:
    """The records that count, in their order: of a compacted topic the newest of each key that is not deleted."""
    if topic not in _NEWEST_BY_KEY:
        return list(records)
    newest: dict[tuple[int, str], StateRecord] = {}
    for one in records:
        newest.pop((one.partition, one.key), None)
        newest[one.partition, one.key] = one
    return [one for one in newest.values() if one.value is not None]


def declared_numbers(state: State) -> dict[str, int]:
    """Pipe to the number that its next declaration replaces."""
    declared = Declarations()
    for one in state.of(DECLARED):
        with contextlib.suppress(
            ValueError
        ):  # a pipe that this release cannot read has a number all the same
            declared.take(one.key.encode(), orjson.dumps(one.value), one.offset)
    return {one.key: declared.number(one.key) for one in state.of(DECLARED)}


def check(state: State) -> None:
    """Check that this release can read every record that it must act on, and that revisions are complete.

    Raises:
        Misconfigured: it cannot; the text names the record.
    """
    keys = {one.key for one in state.of(PIPES)}
    newest = set(declared_numbers(state).values())
    for one in state.records:
        try:
            if one.topic == PIPES:
                _check_pipe(one, keys)
            elif one.topic == DECLARED:
                _check_declaration(one, newest=one.offset in newest)
            else:
                _CHECKS[one.topic](one)
        except (KeyError, TypeError, ValueError) as error:
            raise Misconfigured(
                f"the record {one.key!r} of {one.topic} (offset {one.offset}) cannot be restored by this release: "
                f"{error}. Restore with the release that made the backup"
            ) from None


def _check_pipe(one: StateRecord, keys: Iterable[str]) -> None:
    name, revision = read_key(one.key.encode())
    if revision is not None:
        found = RevisionBody.model_validate(one.value).pipe
    else:
        record = PipeRecord.model_validate(one.value)
        found = record.pipe
        if record.next is not None and revision_key(name, record.next.revision) not in keys:
            raise ValueError(f"its next revision {record.next.revision} is missing")
    if found.pipe != name:
        raise ValueError(f"it contains the pipe {found.pipe!r}")


def _check_declaration(one: StateRecord, *, newest: bool) -> None:
    """Earlier declarations are history, whose pipes this release need not know."""
    if newest:
        Declarations().take(one.key.encode(), orjson.dumps(one.value), one.offset)
    elif not isinstance(one.value["replaces"], int):
        raise ValueError("`replaces` is no whole number")


def _check_schema(one: StateRecord) -> None:
    kind, *parts = orjson.loads(one.key)
    if kind == "version" and not (
        len(parts) == 2 and isinstance(one.value["id"], int) and one.value["schema"]
    ):
        raise ValueError("it is no version of a subject")


def _check_position(one: StateRecord) -> None:
    if not isinstance(one.value["highest"], int):
        raise ValueError("`highest` is no whole number")  # noqa: TRY004 - as the decoders of the other records


_CHECKS: Final[Mapping[str, Callable[[StateRecord], object]]] = {
    SOURCE_POSITIONS: _check_position,
    RELEASES: lambda one: desired_release.decode(orjson.dumps(one.value), one.offset),
    REQUESTS: lambda one: request.decode(orjson.dumps(one.value)),
    ROLLOUTS: lambda one: rollout_status.decode(orjson.dumps(one.value)),
    DEPLOYMENTS: lambda one: deployment.decode(orjson.dumps(one.value)),
    PRINCIPALS: lambda one: Principals().take(one.key.encode(), orjson.dumps(one.value), one.offset),
    AUDIT: lambda one: Audit().take(None, orjson.dumps(one.value), one.offset),
    SCHEMAS: _check_schema,
}
