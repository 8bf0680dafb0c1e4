"""What a lane needs of a sender, and what a sender returns."""

import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from hifi.runtime.health import Health
from hifi_egest.delivery.delivery import Attempt, Delivery
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.http.name_resolver import NameResolver
from hifi_egest.policy.answer import Answer, NoResponse, RefusedWrite
from hifi_egest.policy.outcome import DeadLettered, SplitBatch
from hifi_egest.settings import EgestSettings


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
    """Deliveries that cannot be represented in the destination's format; the others may be sent without them."""

    rejected: list[tuple[Delivery, DeadLettered]]


SendResult: TypeAlias = SentRequest | Unsendable | SplitBatch | None
"""The result, or what keeps the request from being sent: deliveries without a representation; its size; or, as None, a
lost lease or a revoked partition."""


class Sender(Protocol):
    """Sends the requests of one destination as it is declared.

    Attributes:
        ready: requests can be sent.
        missing: why none can be sent, such as the name of a missing secret; empty: `ready`.
    """

    ready: bool
    missing: str

    async def send(self, request: OutboundRequest) -> SendResult:
        """Send a request and wait for its result. Only while `ready`."""

    def sweep(self) -> None:
        """Run periodically: release what was idle for too long."""

    async def stop(self) -> None:
        """Stop reading secrets, and close connections as soon as the requests in flight are finished."""


class SenderResources(Protocol):
    """What senders use of the resources of all lanes; `tls` and `resolver` are for HTTP."""

    @property
    def settings(self) -> EgestSettings:
        """Settings of egest."""

    @property
    def health(self) -> Health:
        """Shows destinations that cannot be used."""

    @property
    def coloured(self) -> Callable[[], bool]:
        """Whether the stream is one of two colours."""

    @property
    def log(self) -> Callable[[], str]:
        """Identity of the stream's log; raises `Misconfigured` where Kafka does not say it."""

    @property
    def tls(self) -> ssl.SSLContext:
        """Verifies the servers of https destinations."""

    @property
    def resolver(self) -> NameResolver:
        """Resolves host names."""
