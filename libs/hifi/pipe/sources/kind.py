"""The interface of a kind of sources. docs/connectors.md shows how to add one.

collect elects the instance that reads a source, keeps its progress, limits the rate of its backfill and writes its
events to `raw`. A kind makes events of what it reads: by itself (`PolledSource`), or of the records of a topic that
collect reads in a consumer group (`TopicEvents`).
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from aiokafka import ConsumerRecord

from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.event import EventReader, SourceEvent

MOST_EVENTS: Final = 2000
"""Largest number of events of a batch: each one waits for a transaction that writes its progress, and for `raw`."""

DeclarationT = TypeVar("DeclarationT", bound=CollectedSource)
Warn: TypeAlias = Callable[[str, str | None], None]
"""Shows a warning about a subject on the health page of collect; None removes it."""


class SourceContext(NamedTuple):
    """The names and limits of a source and of collect, for a kind.

    Attributes:
        stream: name.
        pipe: name.
        max_event_bytes: largest data of an event; mark larger ones as refused.
        temporary_folder: for large files; None: that of the system.
        reader_memory_bytes: memory that a process which reads what may be damaged may allocate.
    """

    stream: str
    pipe: str
    max_event_bytes: int
    temporary_folder: Path | None = None
    reader_memory_bytes: int = 256 * 1024 * 1024


class SourceTurn(ABC):
    """The operations of a source while this instance reads it."""

    @property
    @abstractmethod
    def entries(self) -> Mapping[str, Any]:
        """The progress of the source, JSON by name, as `keep` has written it."""

    @abstractmethod
    def over(self) -> bool:
        """Whether reading has to end: the service stops, the pipe has changed, or another instance was elected."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Wait, at most until the turn is over."""

    @abstractmethod
    async def keep(self, entries: Mapping[str, Any]) -> None:
        """Write entries down; None removes one. After it, what they announce may be written to `raw`.

        Raises:
            Fenced: this instance has no right to read the source any more, or it is not known whether it has.
        """

    @abstractmethod
    async def write(
        self,
        partition: str,
        events: Sequence[SourceEvent],
        accepted_us: int,
        remaining: int | None = None,
    ) -> None:
        """Write a batch of at most `MOST_EVENTS` to `raw`, and return when Kafka has acknowledged it.

        An event whose position was written before is a copy and is dropped, so a batch that may have been written is
        written again with the same positions and accepted time.

        Args:
            partition: name of the source partition; positions rise within it.
            events: in the order of their positions.
            accepted_us: accepted time of all of them, microseconds since 1970 UTC.
            remaining: estimate of how many events come after these; None: not known, as for events that are written
                again.

        Raises:
            Fenced: the pipe has another source now.
        """

    @abstractmethod
    def warn(self, subject: str, reason: str | None) -> None:
        """Show a warning about a subject; None removes it."""

    @abstractmethod
    def works(self) -> None:
        """Tell that the source answers."""


class PolledSource(ABC):
    """Reads a source that keeps no position for its readers. One instance of collect reads it at a time.

    Attributes:
        name: of what is read; without `;`. Another name is another source, which is read from its beginning.
        by_age: whether events of a backlog are backfill only if their time is older than `backfill.after`.
    """

    name: str
    by_age: bool = False

    @abstractmethod
    async def read(self, turn: SourceTurn) -> None:
        """Read from where `turn.entries` ends until the turn is over.

        Raises:
            Fenced: the turn has ended otherwise.
            Retryable: the source does not answer; it is read again from the entries on.
            Misconfigured: its settings cannot be used.
        """


class Held(NamedTuple):
    """The data that a source keeps for hifi until it is read.

    Attributes:
        bytes: how much; 0: nothing, or it is not known.
        excess: one sentence if that is more than it should be; empty: it is not.
    """

    bytes: int
    excess: str


NOTHING_HELD: Final = Held(0, "")


class TopicEvents(ABC):
    """Makes events of the records of the topic that a `TopicSource` names. Every instance of collect reads a part.

    Attributes:
        held: what the source keeps, as of the last look.
    """

    held: Held = NOTHING_HELD

    @property
    def notice(self) -> str:
        """A note for people on the rows of the source, such as that they may be incomplete; empty: there is none."""
        return ""

    @abstractmethod
    def event_reader(self, cluster: str) -> EventReader:
        """A function that makes the event of each record.

        Args:
            cluster: id of the Kafka cluster.
        """

    async def provide_topic(self) -> None:  # noqa: B027 - most topics are there
        """Have the topic written; called before it is read, again while it raises `Retryable`.

        Raises:
            Retryable: what writes the topic does not answer.
            Misconfigured: the settings of the source cannot be used.
        """

    async def watch_topic(self, warn: Warn) -> None:  # noqa: B027 - most need no watch
        """Watch what writes the topic, until cancelled."""

    async def prepare(self, batch: Sequence[ConsumerRecord]) -> None:  # noqa: B027 - most need nothing
        """Get what a batch needs, such as schemas; called right before its events are made, again while it fails.

        Raises:
            Retryable, Misconfigured: it is not there (yet).
        """

    def remember(self, events: Sequence[SourceEvent]) -> Awaitable[None] | None:  # noqa: ARG002
        """Write down what `following` has to know of events; their positions are committed when that is done."""
        return None

    async def following(
        self,
        record: ConsumerRecord,  # noqa: ARG002
        event: SourceEvent,  # noqa: ARG002
    ) -> Sequence[tuple[str, Sequence[SourceEvent]]]:
        """Some of the events that take the place of one that is `followed`, by the source partition that they are of.

        It is asked for again after each `following_written`, until there are none. After a crash it begins anew, and
        has the same events then, but for those after which `following_written` has returned.
        """
        return ()

    async def following_written(self) -> None:  # noqa: B027
        """Take note that Kafka has acknowledged what `following` has returned last, which were some events."""

    async def close(self) -> None:  # noqa: B027
        """End what was begun."""


@dataclass(frozen=True)
class SourceKind(Generic[DeclarationT]):
    """A kind of sources: a package names an object of this class in the entry-point group `hifi.sources`.

    Attributes:
        declaration: class of the key `source` of such a pipe. Its module is imported by every service and by `hifi
            check`, so it must import no client.
        open: makes what reads a source; it makes no connection, and raises `Misconfigured` for a missing secret.
    """

    declaration: type[DeclarationT]
    open: Callable[[DeclarationT, SourceContext], PolledSource | TopicEvents]
