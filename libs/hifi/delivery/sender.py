"""The interface of a kind of destinations that sends requests by itself, such as HTTP.

A kind with a `DestinationWriter` (hifi.delivery.kind) says only by an error why a batch could not be written. A sender
also says which status came, when, and whether a request without an answer may have arrived.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from aiokafka import ConsumerRecord

from hifi.delivery.answer import Answer, NoResponse, RefusedWrite
from hifi.delivery.attempt import Attempt
from hifi.pipe.model import SelfDeclaredKind
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health


class SentRequest(NamedTuple):
    """The result of a request that was sent, or tried to be.

    Attributes:
        result: of the request.
        attempt: its times and status.
        took_s: from its start to its end, seconds.
        ended_s: when it ended, monotonic seconds.
    """

    result: Answer | NoResponse | RefusedWrite
    attempt: Attempt
    took_s: float
    ended_s: float


class Unsendable(NamedTuple):
    """Deliveries that cannot be represented in the destination's format; the others may be sent without them.

    Attributes:
        rejected: index in the request and reason of each.
    """

    rejected: Sequence[tuple[int, Rejected]]


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """Send the batch again as two halves."""


SendResult: TypeAlias = SentRequest | Unsendable | SplitBatch | None
"""The result, or what keeps the request from being sent: deliveries without a representation; its size; or, as None, a
lost lease or a revoked partition."""


RequestT_contra = TypeVar("RequestT_contra", contravariant=True)


class SendableRequest(Protocol):
    """The deliveries of one request, as a sender needs them."""

    @property
    def active(self) -> bool:
        """Whether none of its partitions is being revoked."""

    def records(self) -> list[ConsumerRecord]:
        """The record of each delivery, in the order in which they are sent."""

    def may_send(self) -> bool:
        """Whether all its partitions certainly still belong to this instance. Asked before the first byte is sent."""

    def count_attempt(self, started_s: float, started_us: int) -> None:
        """Count a request that was sent, or tried to be.

        Args:
            started_s: when it started, monotonic seconds.
            started_us: the same, microseconds since 1970 UTC.
        """


class Sender(Protocol[RequestT_contra]):
    """Sends the requests of one destination as it is declared.

    Attributes:
        ready: requests can be sent.
        missing: why none can be sent, such as the name of a missing secret; empty: `ready`.
    """

    ready: bool
    missing: str

    async def send(self, request: RequestT_contra) -> SendResult:
        """Send a request and wait for its result. Only while `ready`."""

    def sweep(self) -> None:
        """Run periodically: release what was idle for too long."""

    async def stop(self) -> None:
        """Stop reading secrets, and close connections as soon as the requests in flight are finished."""


class SenderContext(NamedTuple):
    """The context that egest gives a sender.

    Attributes:
        pipe: name.
        health: shows a destination that cannot be used.
        secrets_refresh_s: time between two reads of the secrets, seconds.
        missing_changed: called whenever `missing` changes.
    """

    pipe: str
    health: Health
    secrets_refresh_s: float
    missing_changed: Callable[[], None]


@dataclass(frozen=True)
class SenderKind(SelfDeclaredKind):
    """A kind of destinations that sends by itself: an entry point of the group `hifi.destinations` names an object.

    Attributes:
        open: makes the sender; the first request makes the first connection.
        check: raises `Misconfigured` if the declaration cannot be used. It reads no secret.
        example: the request of one event at a time in microseconds since 1970 UTC, with its secrets hidden; it raises
            `Rejected` if the event cannot be sent, and `Misconfigured`.
    """

    open: Callable[[Any, SenderContext], Sender[SendableRequest]]
    check: Callable[[Any], None]
    example: Callable[[Any, ConsumerRecord, int], bytes]
