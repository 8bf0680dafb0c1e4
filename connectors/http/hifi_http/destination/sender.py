"""Render the requests of a lane and send them over its own connections, with its destination's credentials."""

from collections.abc import Sequence
from typing import TypeAlias

from aiokafka import ConsumerRecord

from hifi.delivery.answer import Answer, NoResponse
from hifi.delivery.attempt import Attempt
from hifi.delivery.sender import (
    SendableRequest,
    SenderContext,
    SendResult,
    SentRequest,
    SplitBatch,
    Unsendable,
)
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Rejected
from hifi_http.declaration import HttpDestination
from hifi_http.destination.credentials import Credentials
from hifi_http.destination.pool import ConnectionPool
from hifi_http.destination.request_template import RequestTemplate, target
from hifi_http.destination.shared import shared

logger = log.get(__name__)

Rendered: TypeAlias = bytes | Unsendable | SplitBatch


class RequestSender:
    """Sends the requests of one HTTP destination as it is declared."""

    def __init__(self, destination: HttpDestination, context: SenderContext) -> None:
        """Read the credentials; the first request opens the first connection.

        Args:
            destination: as declared.
            context: what egest gives it.
        """
        scheme, host, port, _ = target(destination)
        self._timeout_s = destination.timeout
        self._max_batch_bytes = destination.batch.bytes if destination.batch is not None else None
        client = shared()
        self._pool = ConnectionPool(
            host,
            port,
            client.tls if scheme == "https" else None,
            destination.concurrency,
            client.resolver.for_pipe(context.pipe),
            self._count_stray,
        )
        pipe = context.pipe
        self._health = context.health
        self._log_fields = {"pipe": pipe, "destination": destination.name}
        self._stray_answers = metrics.STRAY_ANSWERS.labels(pipe, destination.name)
        self._missing_changed = context.missing_changed
        self._credentials = Credentials(
            pipe,
            destination,
            context.secrets_refresh_s,
            context.health,
            on_change=self._credentials_changed,
            use_route=self._pool.use,
        )
        self._has_token = destination.oauth is not None
        # Attributes rather than properties: the lane reads them for each delivery.
        self.ready = self._credentials.template is not None
        self.missing = self._credentials.missing
        self._answer_seconds = metrics.REQUEST_SECONDS.labels(pipe, destination.name)

    async def send(self, request: SendableRequest, *, has_new_token: bool = False) -> SendResult:
        """Send a request and wait for its result. Only while `ready`.

        Args:
            request: with at least one delivery.
            has_new_token: the token has been renewed for this request; a second 401 is its result.
        """
        template = self._credentials.template
        assert template is not None
        if not request.active:
            return None
        data = render(request, template, self._max_batch_bytes, now_us())
        if not isinstance(data, bytes):
            return data
        started_s, started_us, sent_us = monotonic_s(), now_us(), 0
        connected = await self._pool.connect(self._timeout_s)
        if isinstance(connected, NoResponse):
            answer: Answer | NoResponse = connected
        elif request.may_send():  # checked directly before the first byte is sent
            connection, timeout_s = connected
            sent_us = now_us()
            answer = await connection.request(data, timeout_s)
        else:
            self._pool.release(connected.connection)
            return None
        request.count_attempt(started_s, started_us)
        ended_s = monotonic_s()
        if isinstance(answer, Answer):
            self._answer_seconds.observe(max(0, answer.answered_us - sent_us) / MICROSECONDS)
            if (
                answer.status == 401
                and self._has_token
                and not has_new_token
                and await self._credentials.renew(template)
            ):  # it had been revoked: the event is not at fault
                return await self.send(request, has_new_token=True)
            attempt = Attempt(sent_us, answer.status, answer.answered_us)
        else:
            attempt = Attempt(sent_us)
        return SentRequest(answer, attempt, ended_s - started_s, ended_s)

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        self._pool.sweep()

    async def stop(self) -> None:
        """Close all connections, as soon as requests in flight are finished, and stop reading the secrets."""
        self._health.warn(self._stray_subject, None)
        self._pool.close()
        await self._credentials.stop()

    @property
    def _stray_subject(self) -> str:
        return "stray bytes from {pipe}/{destination}".format(**self._log_fields)

    def _count_stray(self) -> None:
        """Count and show bytes that answer no request."""
        self._stray_answers.inc()
        logger.warning("stray-bytes", **self._log_fields)
        self._health.warn(
            self._stray_subject,
            "it sends bytes that answer no request, so an earlier answer may have been taken for the next one; each"
            " request gets a connection of its own until the destination is declared anew or egest restarts",
        )

    def _credentials_changed(self) -> None:
        self.ready = self._credentials.template is not None
        self.missing = self._credentials.missing
        self._missing_changed()


def render(
    request: SendableRequest, template: RequestTemplate, max_batch_bytes: int | None, now_us: int
) -> Rendered:
    """Render a request.

    Args:
        request: with at least one delivery.
        template: of the destination.
        max_batch_bytes: of the body of a batch; None: the destination takes single events.
        now_us: time of the signature, microseconds since 1970 UTC.

    Returns:
        Head and body; or the deliveries that cannot be sent; or SplitBatch if the batch is too large.
    """
    records = request.records()
    try:
        body_parts = [template.part(record) for record in records]
    except Rejected:
        return Unsendable(_rejected_parts(records, template))
    if max_batch_bytes is not None and len(body_parts) > 1 and sum(map(len, body_parts)) > max_batch_bytes:
        return SplitBatch()
    try:
        return template.request(records, body_parts, now_us)
    except Rejected as rejection:
        return Unsendable([(index, rejection) for index in range(len(records))])


def _rejected_parts(
    records: Sequence[ConsumerRecord], template: RequestTemplate
) -> list[tuple[int, Rejected]]:
    rejected = []
    for index, record in enumerate(records):
        try:
            template.part(record)
        except Rejected as rejection:
            rejected.append((index, rejection))
    return rejected
