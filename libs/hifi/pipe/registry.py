"""The published pipes, read from the compacted topic `pipes` and followed in the background.

The record with a pipe's name as key holds the current revision, so that publishing is one record, and while a rollout
runs the number and share of the next one. The record `NAME;REVISION` holds the body of another revision that is in
use. A service that has read to the offset of the record with which a revision was published has the revision. While
Kafka is unavailable a service stays ready with its last copy.

A record that cannot be read, such as one of a later release, holds its pipe: nothing is processed with an earlier
declaration, which may mask less, and the pipe is not deleted. See docs/decisions/broken-pipes.md.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.topics import Topics
from hifi.pipe.revision import (
    PipeRecord,
    PipeRevision,
    RevisionBody,
    Rollout,
    is_pipe_name,
    read_key,
    revision_key,
)
from hifi.pipe.secret_wait import wait_for_secrets
from hifi.record.identity import FORMAT
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Unprepared
from hifi.runtime.health import Health
from hifi.runtime.release import VERSION
from hifi.runtime.running import cancel

STREAM_KEY: Final = b"__stream__"
_COLOURS: Final = "colours"
_FORMAT: Final = "format"
_CONDITION: Final = "pipes"
_CLIENT: Final = "hifi"
_PUBLISH_S: Final = 10.0
_WAIT_MS: Final = 2_000
"""For which Kafka holds a fetch back while there is nothing new; pipes change rarely, and a new record ends it."""
HELD_ADVICE: Final = (
    "A later release may have written it: run that release here. Or publish the pipe again with the release that "
    "published it, or delete the pipe"
)
"""Advice for an operator about a pipe that is held."""

logger = log.get(__name__)


class _StreamBody(BaseModel):
    """Value of the record that `stream_record` makes."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # fields of later releases are skipped

    partitions: Annotated[int, Field(ge=1)]
    colours: bool = False
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class RegistrySnapshot:
    """Content of the topic `pipes` at one moment. `partitions` is None if the stream has not been created."""

    partitions: int | None
    pipes: Mapping[str, PipeRevision]
    offset: int
    others: Mapping[str, Sequence[int]]
    """Pipe to its revisions in use besides the current one, also of a deleted pipe, and those that cannot be read."""
    coloured: bool = False
    """The stream is one of two colours, or was: see `hifi.delivery.several_logs`."""
    held: Mapping[str, str] = field(default_factory=dict)
    """As `PipeRegistry.all_held`. `pipes` has the last declarations of these that could be read, if there were any."""


class PipeRegistry:
    """A local copy of all published pipes, loaded at start and updated in the background."""

    def __init__(
        self, bootstrap: str, topics: Topics, health: Health, secrets_of: Sequence[str] = ()
    ) -> None:
        """Read nothing before `start`.

        Args:
            bootstrap: the stream's Kafka.
            topics: of the stream.
            health: unready until the pipes are loaded.
            secrets_of: fields of `Pipe` whose secrets `start` waits for while the secret manager does not answer.
        """
        self._secrets_of = secrets_of
        self._topics = topics
        self._follower = PartitionFollower(
            bootstrap,
            health.instance or _CLIENT,
            {TopicPartition(topics.pipes, 0): self._apply},
            wait_ms=_WAIT_MS,
        )
        self._health = health
        self._pipes: dict[str, PipeRevision] = {}
        self._records: dict[str, PipeRecord] = {}
        self._bodies: dict[str, dict[int, PipeRevision]] = {}
        """Pipe to number to revision, of all revisions but the current one."""
        self._unreadable: dict[str, dict[int | None, str]] = {}
        """Pipe to number, None for the current revision, to why that record cannot be read."""
        self._since_ms: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self._change_condition = asyncio.Condition()
        self.task: asyncio.Task[None] | None = None
        """Follows the topic."""
        self._loaded_event = asyncio.Event()
        self.offset = -1
        """Last offset read; -1: none."""
        self.content_offset = -1
        """Offset of the last record that changed more than the share of a rollout; -1: none."""
        self.partitions: int | None = None
        """Number of partitions of the stream's event topics; None: not known yet."""
        self.coloured = False
        """As `RegistrySnapshot.coloured`."""
        self._format = FORMAT
        """Newest format of the stream's records."""
        health.block(_CONDITION, "the pipes have not been loaded yet")

    async def start(self) -> None:
        """Start to follow the topic, and return when all pipes published so far are loaded."""
        await self._follower.start(
            lambda error: self._health.block(_CONDITION, f"the pipes cannot be read from Kafka: {error!r}")
        )
        self._finish_load()
        self.task = asyncio.create_task(self._follower.follow(self._notify))
        loaded_task = asyncio.create_task(self._loaded_event.wait())
        try:
            await asyncio.wait({self.task, loaded_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loaded_task.cancel()
        if self.task.done():
            self.task.result()
        pipes = [revision.pipe for revision in self.in_use()]
        await wait_for_secrets(pipes, self._secrets_of, self._health)

    async def stop(self) -> None:
        """Stop following."""
        await cancel(self.task)
        await self._follower.stop()

    def partition_count(self) -> int:
        """The number of partitions of the stream's event topics, once `start` has returned."""
        assert self.partitions is not None
        return self.partitions

    def get(self, name: str) -> PipeRevision | None:
        """The published pipe of that name, as it could be read last; None if there is none or it was deleted."""
        return self._pipes.get(name)

    def of_revision(self, name: str, number: int) -> PipeRevision | None:
        """The revision with which an event was accepted, while it is in use, else the current one.

        Returns:
            None: the pipe was deleted, or never published.
        """
        current_revision = self._pipes.get(name)
        if current_revision is None or current_revision.number == number:
            return current_revision
        return self._bodies.get(name, {}).get(number, current_revision)

    def unreadable(self, name: str, number: int | None = None) -> str | None:
        """Why events of a pipe must not be processed: its current record, or that of their revision, cannot be read.

        Args:
            name: of the pipe, which may never have been read.
            number: of the revision with which the events were accepted; None: the current one.

        Returns:
            The reason; None: they may be processed.
        """
        reasons = self._unreadable.get(name)
        if reasons is None:
            return None
        current_revision = self._pipes.get(name)
        if None in reasons or number is None or current_revision is None or current_revision.number != number:
            return reasons.get(None) or reasons.get(number)
        return None

    def held(self, name: str) -> str | None:
        """Why a pipe takes no new events: its current record, or that of a rollout, cannot be read; None: it does."""
        if name not in self._unreadable:
            return None
        record = self._records.get(name)
        next_revision = None if record is None or record.next is None else record.next.revision
        return self.unreadable(name, next_revision)

    @property
    def holds_pipes(self) -> bool:
        """Whether a record of a pipe cannot be read, so that `held` or `unreadable` may give a reason."""
        return bool(self._unreadable)

    def all_held(self) -> dict[str, str]:
        """Name to reason of all pipes that are held, also of those that were never read."""
        return {name: reason for name in sorted(self._unreadable) if (reason := self.held(name)) is not None}

    def since_ms(self, name: str) -> int | None:
        """Return when Kafka appended the first record of a pipe that was read, milliseconds since 1970 UTC.

        Kafka deletes records that a newer one replaces, so the pipe may be older. None: it is not published.
        """
        return self._since_ms.get(name)

    def all(self) -> list[PipeRevision]:
        """All published pipes in their current revision, sorted by name."""
        return [self._pipes[name] for name in sorted(self._pipes)]

    def in_use(self) -> list[PipeRevision]:
        """All revisions that events may have been accepted with: each pipe's current one, then its others."""
        return [
            revision
            for current_revision in self.all()
            for revision in self.revisions(current_revision.pipe.pipe)
        ]

    def revisions(self, name: str) -> list[PipeRevision]:
        """The revisions of a pipe that are in use, the current one first; none if it is not published."""
        current_revision = self._pipes.get(name)
        if current_revision is None:
            return []
        return [current_revision, *(revision for _, revision in sorted(self._bodies.get(name, {}).items()))]

    def usable(self) -> list[PipeRevision]:
        """Those of `in_use` that events may be processed with: `unreadable` names none of them."""
        return [
            revision
            for revision in self.in_use()
            if self.unreadable(revision.pipe.pipe, revision.number) is None
        ]

    def unreadable_keys(self) -> dict[str, str]:
        """Key, as of `PipeRevision`, to the reason of every revision whose record cannot be read; from any thread."""
        return {
            name if number is None else revision_key(name, number): reason
            for name, reasons in list(self._unreadable.items())
            for number, reason in list(reasons.items())
            if self.unreadable(name, number) is not None
        }

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change, in the event loop."""
        self._listeners.append(listener)

    async def wait_for_offset(self, offset: int, timeout_s: float) -> bool:
        """Wait until the registry has read an offset; False if `timeout_s` seconds pass first."""
        if self.offset >= offset:
            return True
        try:
            async with asyncio.timeout(timeout_s), self._change_condition:
                await self._change_condition.wait_for(lambda: self.offset >= offset)
        except TimeoutError:
            return False
        return True

    async def read_once(self) -> RegistrySnapshot:
        """Read what is published so far, without following the topic.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka or the topic cannot be read.
            Misconfigured: a later release has written the stream's records in a format that this one cannot read.
        """
        await self._follower.read_once()
        if self._format > FORMAT:
            raise Misconfigured(self._later_format())
        return self.snapshot()

    def snapshot(self) -> RegistrySnapshot:
        """The content that has been read so far."""
        return RegistrySnapshot(
            self.partitions,
            dict(self._pipes),
            self.offset,
            {
                name: sorted(numbers)
                for name in self._bodies.keys() | self._unreadable.keys()
                if (
                    numbers := self._bodies.get(name, {}).keys()
                    | {number for number in self._unreadable.get(name, {}) if number is not None}
                )
            },
            self.coloured,
            self.all_held(),
        )

    def _finish_load(self) -> None:
        if self.partitions is None:
            self._health.block(
                _CONDITION,
                f"the stream {self._topics.stream} has not been created yet; run `hifi up` or create the stream",
            )
            return
        if self._format > FORMAT:
            self._health.block(_CONDITION, self._later_format())
            return
        self._loaded_event.set()
        self._health.unblock(_CONDITION)
        logger.info("pipes-loaded", pipes=len(self._pipes), offset=self.offset)

    def _later_format(self) -> str:
        return (
            f"the stream {self._topics.stream} has records of format {self._format}, and this release of hifi, "
            f"{VERSION}, reads up to {FORMAT}; nothing was changed. Run the release that wrote them, or a later one"
        )

    async def _notify(self) -> None:
        if not self._loaded_event.is_set():
            self._finish_load()
        if not self._loaded_event.is_set():
            return
        async with self._change_condition:
            self._change_condition.notify_all()
        for listener in self._listeners:
            listener()

    def _apply(self, record: Any) -> None:
        self.offset = record.offset
        if record.key == STREAM_KEY:
            stream = _StreamBody.model_validate_json(record.value or b"")
            self.partitions, self.coloured, self._format = stream.partitions, stream.colours, stream.format
            self.content_offset = record.offset
            return
        name, number = read_key(record.key or b"")
        try:
            if number is None:
                self._apply_pipe(name, record.value, record.offset)
                self._note_start(name, record.timestamp)
            else:
                self._apply_body(name, number, record.value, record.offset)
        except Exception as error:
            self._hold(name, number, record.offset, error)
            raise  # the follower counts it
        self._release(name, number, record.offset)

    def _hold(self, name: str, number: int | None, offset: int, error: Exception) -> None:
        """Note that the current record of a pipe, or that of another revision, cannot be read."""
        if not is_pipe_name(name):
            return
        reason = f"the record at offset {offset} of the topic {self._topics.pipes} cannot be read: {_reason(error)}"
        self._unreadable.setdefault(name, {})[number] = reason
        self.content_offset = offset
        self._health.warn(_subject(name, number), f"{reason}. {HELD_ADVICE}")
        logger.error(
            "pipe-held", pipe=name, offset=offset, revision=number, error=reason, kept=name in self._pipes
        )

    def _release(self, name: str, number: int | None, offset: int) -> None:
        """The record can be read, or it was deleted."""
        reasons = self._unreadable.get(name, {})
        if reasons.pop(number, None) is None:
            return
        if not reasons:
            del self._unreadable[name]
        self.content_offset = offset
        self._health.warn(_subject(name, number), None)
        logger.info("pipe-released", pipe=name, offset=offset, revision=number)

    def _apply_pipe(self, name: str, value: bytes | None, offset: int) -> None:
        if value is None:
            self._pipes.pop(name, None)
            self._records.pop(name, None)
            self.content_offset = offset
            logger.info("pipe-deleted", pipe=name, offset=offset)
            return
        record = PipeRecord.model_validate_json(value)
        if record.pipe.pipe != name:
            raise ValueError(f"the record's key is {name!r} and the pipe's name {record.pipe.pipe!r}")
        revision = self._pipes.get(name)
        published_offset = offset if record.since is None else record.since
        if published_offset > offset:
            raise ValueError(
                f"its revision was published at offset {published_offset}, which is behind it: it was copied from "
                "another topic"
            )
        self._records[name] = record
        if revision is None or (revision.offset, revision.number) != (published_offset, record.revision):
            self.content_offset = offset
            logger.info("pipe-published", pipe=name, offset=offset, revision=record.revision)
            revision = PipeRevision(record.pipe, published_offset, record.revision)
        if revision.paused != record.paused:
            logger.info("pipe-paused" if record.paused else "pipe-resumed", pipe=name, offset=offset)
        self._pipes[name] = replace(
            revision, rollout=self._rollout(name), paused=record.paused, cap=record.cap
        )

    def _note_start(self, name: str, append_ms: int) -> None:
        if name in self._pipes:
            self._since_ms.setdefault(name, append_ms)
        else:
            self._since_ms.pop(name, None)

    def _apply_body(self, name: str, number: int, value: bytes | None, offset: int) -> None:
        bodies = self._bodies.get(name, {})
        if value is None:
            changed_bodies = {revision: body for revision, body in bodies.items() if revision != number}
        else:
            pipe = RevisionBody.model_validate_json(value).pipe
            if pipe.pipe != name:
                raise ValueError(f"the record's key is {name!r} and the pipe's name {pipe.pipe!r}")
            changed_bodies = bodies | {number: PipeRevision(pipe, offset, number, current=False)}
            logger.info("revision-published", pipe=name, offset=offset, revision=number)
        self._bodies[name] = changed_bodies
        self.content_offset = offset
        if name in self._pipes:
            self._pipes[name] = replace(self._pipes[name], rollout=self._rollout(name))

    def _rollout(self, name: str) -> Rollout | None:
        """The rollout of a pipe as soon as the body of its next revision has been read."""
        next_revision = self._records[name].next
        body = None if next_revision is None else self._bodies.get(name, {}).get(next_revision.revision)
        return None if next_revision is None or body is None else Rollout(body, next_revision.share)


def _subject(name: str, number: int | None) -> str:
    return f"declaration of {name if number is None else revision_key(name, number)}"


def _reason(error: Exception) -> str:
    """The error of a record, without its content."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return ": ".join(text for text in (".".join(map(str, problem["loc"])), problem["msg"]) if text)


def stream_record(partitions: int, *, coloured: bool = False) -> Record:
    """The record that sets partitions and record format of a stream, and whether it is one of two colours."""
    value = {"partitions": partitions, _FORMAT: FORMAT} | ({_COLOURS: True} if coloured else {})
    return Record(STREAM_KEY, orjson.dumps(value), [])


async def read_registry(bootstrap: str, topics: Topics, timeout_s: float = 15) -> RegistrySnapshot:
    """Read all published pipes once.

    Raises:
        Unprepared: Kafka does not answer within `timeout_s` seconds, or has no such stream.
        Misconfigured: a later release has written records that this one cannot read.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await PipeRegistry(bootstrap, topics, Health("reader", "")).read_once()
    except (TimeoutError, KafkaError, OSError) as error:
        raise Unprepared(
            f"the pipes of the stream {topics.stream} cannot be read from Kafka at {bootstrap} ({error!r}); "
            "is the mesh running, and is this its stream?"
        ) from error


async def publish(bootstrap: str, topics: Topics, records: Iterable[Record]) -> None:
    """Write records to the topic `pipes`, acknowledged by Kafka.

    Raises:
        Unprepared: Kafka does not answer, or does not let this user write the topic.
    """
    producer = Producer(bootstrap, "hifi-publish")
    try:
        await producer.start()
    except (KafkaError, OSError) as error:
        raise Unprepared(f"Kafka does not answer at {bootstrap}: {error!r}; is the mesh running?") from None
    try:
        async with asyncio.timeout(_PUBLISH_S):
            await producer.send_and_wait(topics.pipes, 0, list(records))
    except TimeoutError:
        raise Unprepared(
            f"Kafka at {bootstrap} did not acknowledge the pipes within {_PUBLISH_S:.0f} s: check its brokers, and "
            f"that this user may write {topics.pipes}, which only the publisher may (`hifi acl show`)"
        ) from None
    finally:
        await producer.stop()
