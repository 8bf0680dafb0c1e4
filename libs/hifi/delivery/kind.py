"""The interface of a kind of destinations. docs/connectors.md shows how to add one.

egest keeps the queue, the order within a key, retries, dead letters, the circuit breaker and the receipts. A kind only
writes batches of events, and says by the error that it raises why a batch could not be written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson

from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.errors import Rejected

CONTENT_TYPE_ATTRIBUTE: Final = "datacontenttype"
"""CloudEvents attribute that is the content type of a message, and no `ce_…` header of it."""
SettingsT = TypeVar("SettingsT", bound=StrictModel)


class OutboundEvent(NamedTuple):
    """An event to write.

    Attributes:
        data: after the destination's transform.
        content_type: media type of the data.
        attributes: CloudEvents attributes by name, such as `id`, `source`, `type` and `time`, without
            `datacontenttype`.
        key: event key. All events of a key have the same partition.
        log: identity of the stream's log, 32 hex digits. Each colour of a stream has one of its own, and so has a
            stream that is made anew, grown or restored.
        partition: number of the event's partition.
        offset: of the event in the topic `raw` of its log; it ascends in the order in which the events of a partition
            were accepted. Each delivery of the same event has the same log, partition and offset, also after retries.
        accepted_us: when the event was accepted, microseconds since 1970 UTC. It is the order between events of
            different logs, whose offsets do not compare.
        retried: the retrier brought the event back.
    """

    data: bytes
    content_type: str
    attributes: Mapping[str, str]
    key: bytes | None
    log: str
    partition: int
    offset: int
    accepted_us: int
    retried: bool = False

    def attribute(self, name: str) -> str | None:
        """An attribute, `datacontenttype` included; None: the event does not have it."""
        return self.content_type if name == CONTENT_TYPE_ATTRIBUTE else self.attributes.get(name)

    def json(self) -> Any:
        """The data, decoded.

        Raises:
            Rejected: the data is not JSON.
        """
        try:
            return orjson.loads(self.data)
        except orjson.JSONDecodeError as error:
            raise Rejected("not-json", f"the data is not JSON: {error.msg}") from None


class DestinationWriter(ABC):
    """Writes the events of one destination."""

    @abstractmethod
    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write a batch: all of its events or, if an error is raised, none of them.

        egest calls it for up to `concurrency` batches at a time, and cancels it after `timeout`. A batch that failed is
        written again, and a batch whose outcome is not known may be written twice, so writing the same event again
        should change nothing. It may also come after newer events of its key: compare `offset` within `log` and
        `partition`, and `accepted_us` between logs.

        Args:
            events: at least one, those of a key in their order.

        Raises:
            Rejected: the events cannot be written, now or later. egest splits the batch until single events are left,
                and writes a dead letter for each that is rejected alone, with this reason and detail.
            RejectedEvents: the same of some events, which egest leaves out, so that the others do not wait.
            Unacknowledged, TimeoutError, OSError: it is not known whether the events were written: try again.
            Retryable, ConnectionRefusedError, Misconfigured: the events were not written: try again.
        """

    async def close(self) -> None:  # noqa: B027 - most kinds have something to close, but not all
        """Release connections. No write is under way, and none follows."""


class WriterContext(NamedTuple):
    """The names and limits of a destination, for its writer.

    Attributes:
        stream: name.
        pipe: name.
        destination: name.
        concurrency: largest number of batches that are written at the same time.
        timeout_s: time after which a write is cancelled, seconds.
    """

    stream: str
    pipe: str
    destination: str
    concurrency: int
    timeout_s: float


class Declared(NamedTuple, Generic[SettingsT]):
    """A destination in a version of its pipe."""

    destination: ConnectorDestination
    pipe: Pipe
    settings: SettingsT


@dataclass(frozen=True)
class DestinationKind(Generic[SettingsT]):
    """A kind of destinations: a package names an object of this class in the entry-point group `hifi.destinations`.

    Attributes:
        settings: class of the key `settings` of such a destination.
        open: makes the writer. It runs on the event loop when a pipe is declared or a secret has changed, so it reads
            secrets and makes no connection; the first write does. It raises `Misconfigured` for a missing secret.
        check: raises `Misconfigured` if the settings do not fit the rest of the declaration; None: they always do.
        complete: the settings with what follows from the rest of the declaration, as they are published; it raises
            `Misconfigured` if nothing follows. None: they are published as they are declared.
        check_change: raises `Misconfigured` if the settings cannot follow those of the version in force, given as the
            destination, its pipe and settings before and after; None: they always can.
        several_logs: whether such a destination may get the events of several logs of a stream: of two colours, or of a
            stream that is made anew. Their offsets all begin at 0, so it must know an event by its log, too. False, the
            default: pipes with it are refused where there are several logs.
        one_log: why a destination with these settings may nevertheless get the events of one log alone, or None; None:
            there are no such settings.
        unproven: which proof such a destination with these settings lacks, or None: `hifi check` says that it is
            experimental. None: there are no such settings.
    """

    settings: type[SettingsT]
    open: Callable[[SettingsT, WriterContext], DestinationWriter]
    check: Callable[[ConnectorDestination, Pipe, SettingsT], None] | None = None
    complete: Callable[[ConnectorDestination, Pipe, SettingsT], Mapping[str, Any]] | None = None
    check_change: Callable[["Declared[SettingsT]", "Declared[SettingsT]"], None] | None = None
    several_logs: bool = False
    one_log: Callable[[SettingsT], str | None] | None = None
    unproven: Callable[[SettingsT], str | None] | None = None
