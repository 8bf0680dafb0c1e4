"""Send the requests of a lane over its own connections, with its destination's credentials."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from hifi import metrics
from hifi.clock import MICROSECONDS, monotonic_s, now_us
from hifi.pipe.destination_request import target
from hifi.pipe.model import Destination
from hifi_egest.delivery.delivery import Attempt
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.http.credentials import Credentials
from hifi_egest.http.pool import ConnectionPool
from hifi_egest.lanes.rendering import Unsendable, render
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.policy.answer import Answer, NoResponse
from hifi_egest.policy.outcome import SplitBatch


class SentRequest(NamedTuple):
    """The result of a request that was sent, or tried to be.

    Attributes:
        result: of the request.
        attempt: its times and status.
        took_s: from its start to its end, seconds.
        ended_s: when it ended, monotonic seconds.
    """

    result: Answer | NoResponse
    attempt: Attempt
    took_s: float
    ended_s: float


SendResult: TypeAlias = SentRequest | Unsendable | SplitBatch | None
"""The result, or what keeps the request from being sent: deliveries without a representation; its size; or, as None, a
lost lease or a revoked partition."""


class RequestSender:
    """Sends the requests of one destination as it is declared."""

    def __init__(
        self,
        pipe: str,
        destination: Destination,
        resources: LaneResources,
        *,
        credentials_changed: Callable[[], None],
    ) -> None:
        """Read the credentials; the first request opens the first connection.

        Args:
            pipe: name.
            destination: as declared.
            resources: shared by all lanes.
            credentials_changed: called whenever `missing` changes.
        """
        scheme, host, port, _ = target(destination)
        self._timeout_s = destination.timeout
        self._max_batch_bytes = destination.batch.bytes if destination.batch is not None else None
        self._pool = ConnectionPool(
            host,
            port,
            resources.tls if scheme == "https" else None,
            destination.concurrency,
            resources.resolver,
        )
        secrets_refresh_s = resources.settings.egest_secrets_refresh_s
        self.credentials = Credentials(
            pipe, destination, secrets_refresh_s, resources.health, credentials_changed
        )
        self._answer_seconds = metrics.REQUEST_SECONDS.labels(pipe, destination.name)

    async def send(self, request: OutboundRequest) -> SendResult:
        """Send a request and wait for its result. Only while the credentials have a template."""
        template = self.credentials.template
        assert template is not None
        if not request.active:
            return None
        data = render(request, template, self._max_batch_bytes, now_us())
        if not isinstance(data, bytes):
            return data
        started_s, started_us = monotonic_s(), now_us()
        result, sent_us = await self._pool.exchange(data, self._timeout_s, request.may_send)
        if result is None:
            return None
        request.count_attempt(started_s, started_us)
        ended_s = monotonic_s()
        if isinstance(result, Answer):
            self._answer_seconds.observe(max(0, result.answered_us - sent_us) / MICROSECONDS)
            attempt = Attempt(sent_us, result.status, result.answered_us)
        else:
            attempt = Attempt(sent_us)
        return SentRequest(result, attempt, ended_s - started_s, ended_s)

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        self._pool.sweep()

    def close_connections(self) -> None:
        """Close all connections; requests in flight finish first."""
        self._pool.close()
