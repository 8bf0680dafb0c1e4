"""Write the requests of a lane with the writer of its destination's kind."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hifi.delivery.answer import Answer, NoResponse, RefusedWrite
from hifi.delivery.attempt import Attempt
from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.delivery.sender import SendResult, SentRequest, SplitBatch, Unsendable
from hifi.delivery.several_logs import require_usable
from hifi.delivery.transform import Transform, compile_transform
from hifi.pipe.limit_check import destination_refusals, require_none
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import ConnectorDestination
from hifi.pipe.named_secrets import secrets
from hifi.pipe.strict_model import StrictModel
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import (
    HifiError,
    Misconfigured,
    Missing,
    Rejected,
    RejectedEvents,
    Retryable,
    Unacknowledged,
)
from hifi_egest.delivery.delivery import OutboundRequest
from hifi_egest.policy.outcome import NO_LOG
from hifi_egest.senders.outbound_events import outbound_events
from hifi_egest.senders.resources import SenderResources

WRITTEN: Final = 200
"""Status of a write that succeeded, on receipts and in metrics."""
RETRY_S: Final = 5.0
"""Time between two attempts to open a writer, seconds."""
_FAILURES: Final[Mapping[type[Exception], tuple[str, bool]]] = {
    Unacknowledged: ("unacknowledged", True),
    TimeoutError: ("timeout", True),
    ConnectionRefusedError: ("connect", False),
    OSError: ("connection", True),
    HifiError: ("unavailable", False),
}
"""Error of a write, the reason that retries and receipts show, and whether the events may have been written."""

logger = log.get(__name__)


class _OpenWriter:
    """A writer that is closed after its last write, and takes no other one from then on."""

    def __init__(self, writer: DestinationWriter) -> None:
        self._writer = writer
        self._writes = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def write(self, events: Sequence[OutboundEvent], timeout_s: float) -> None:
        if self._closing:
            raise Retryable("the destination was declared anew or deleted")
        self._writes += 1
        self._idle.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._writer.write(events)
        finally:
            self._writes -= 1
            if not self._writes:
                self._idle.set()

    async def close(self) -> None:
        self._closing = True
        await self._idle.wait()
        await self._writer.close()


class ConnectorSender:
    """Sends the requests of one destination of another kind than HTTP, as it is declared."""

    def __init__(
        self,
        pipe: str,
        destination: ConnectorDestination,
        resources: SenderResources,
        *,
        missing_changed: Callable[[], None],
    ) -> None:
        """Open the writer, and open it anew when a secret changes.

        Args:
            pipe: name.
            destination: as declared.
            resources: shared by all lanes.
            missing_changed: called whenever `missing` changes.
        """
        self.ready = False
        self.missing = ""
        self._destination = destination
        self._max_batch_bytes = destination.batch.bytes if destination.batch is not None else None
        self._context = WriterContext(
            resources.settings.stream, pipe, destination.name, destination.concurrency, destination.timeout
        )
        self._coloured = resources.coloured
        self._read_log = resources.log
        self._health = resources.health
        self._subject = f"destination {pipe}/{destination.name}"
        self._refresh_s = resources.settings.egest_secrets_refresh_s
        self._missing_changed = missing_changed
        self._log_fields = {"pipe": pipe, "destination": destination.name, "kind": destination.kind}
        self._answer_seconds = metrics.REQUEST_SECONDS.labels(pipe, destination.name)
        self._secrets: list[str] = []
        self._writer: _OpenWriter | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._transform: Transform | None = None
        try:
            self._open_writer()
        except Misconfigured as error:
            self._report_missing(error)
        self._task = asyncio.create_task(self._refresh())

    async def send(self, request: OutboundRequest) -> SendResult:
        """Write the events of a request and wait for the result. Only while `ready`."""
        writer = self._writer
        assert writer is not None
        try:
            log_identity = self._read_log()
        except Misconfigured as error:
            return SentRequest(
                NoResponse(NO_LOG, str(error), ambiguous=False), Attempt(now_us()), 0, monotonic_s()
            )
        events, rejected = outbound_events(request.deliveries, self._transform, log_identity)
        if rejected:
            return Unsendable(rejected)
        size_bytes = sum(len(event.data) for event in events)
        if self._max_batch_bytes is not None and len(events) > 1 and size_bytes > self._max_batch_bytes:
            return SplitBatch()
        if not request.may_send():
            return None
        started_s, sent_us = monotonic_s(), now_us()
        try:
            write_result = await self._write(writer, events)
        except RejectedEvents as error:
            # The last one of a batch without others is refused alone, with its attempt.
            refused_events = list(error.events.items())[: len(events) - 1]
            return Unsendable(refused_events)
        request.count_attempt(started_s, sent_us)
        ended_s, ended_us = monotonic_s(), now_us()
        if isinstance(write_result, Answer):
            self._answer_seconds.observe(max(0, ended_us - sent_us) / MICROSECONDS)
            attempt = Attempt(sent_us, WRITTEN, ended_us)
        else:
            attempt = Attempt(sent_us)
        return SentRequest(write_result, attempt, ended_s - started_s, ended_s)

    def sweep(self) -> None:
        """Do nothing: writers keep their own connections."""

    async def stop(self) -> None:
        """Stop reading secrets, and close the writer as soon as its writes are finished."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._close_writer()
        self._health.warn(self._subject, None)

    async def _write(
        self, writer: _OpenWriter, events: Sequence[OutboundEvent]
    ) -> Answer | NoResponse | RefusedWrite:
        try:
            await writer.write(events, self._destination.timeout)
        except RejectedEvents as error:
            if len(events) > 1:
                raise
            return RefusedWrite(error.reason, error.detail)
        except Rejected as error:
            return RefusedWrite(error.reason, error.detail)
        except Missing as error:
            return NoResponse(f"missing {error.what}", str(error), ambiguous=False)
        except (HifiError, OSError) as error:
            reason, ambiguous = next(
                failure for kind, failure in _FAILURES.items() if isinstance(error, kind)
            )
            return NoResponse(reason, str(error) or "the write did not end in time", ambiguous=ambiguous)
        except Exception as error:
            # An error in the kind's code: the batch is split like a rejected one, so the others are written.
            logger.exception("write-failed", **self._log_fields)
            error_name = type(error).__name__
            return RefusedWrite(
                "write-failed", f"the kind {self._destination.kind} fails with {error_name}; see the log"
            )
        return Answer(WRITTEN)

    # The writer

    def _open_writer(self) -> None:
        """Open the writer, unless it is open with the current secrets. Raises `Misconfigured`."""
        require_usable(self._destination, coloured=self._coloured())
        require_none(destination_refusals(self._context.pipe, self._destination, pipe_limits()))
        self._read_log()  # where Kafka does not say it, no event may be written
        try:
            kind, settings = read_settings(self._destination)
            current_secrets = _read_secrets(settings)
            if self._writer is not None and current_secrets == self._secrets:
                return
            expression = self._destination.transform
            self._transform = compile_transform(expression) if expression is not None else None
            new_writer = _OpenWriter(kind.open(settings, self._context))
        except Misconfigured:
            raise
        except Exception as error:
            logger.exception("open-failed", **self._log_fields)
            error_name = type(error).__name__
            raise Misconfigured(
                f"the kind {self._destination.kind} cannot be opened: {error_name}; see the log"
            ) from error
        self._close_writer()
        self._writer, self._secrets, self.ready = new_writer, current_secrets, True

    def _close_writer(self) -> None:
        if self._writer is not None:
            task = asyncio.create_task(self._close_idle(self._writer))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_idle(self, writer: _OpenWriter) -> None:
        try:
            await writer.close()
        except Exception:
            logger.exception("writer-close-failed", **self._log_fields)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s if self.ready else RETRY_S)
            try:
                self._open_writer()
            except Misconfigured as error:
                if self.ready:  # the writer stays in use with the secrets that it has
                    logger.warning("refresh-failed", error=str(error), **self._log_fields)
                elif self.missing != str(error):
                    self._report_missing(error)
                    self._missing_changed()
                continue
            except Exception:
                logger.exception("refresh-failed", **self._log_fields)
                continue
            if self.missing:
                self.missing = ""
                logger.info("destination-usable", **self._log_fields)
                self._health.warn(self._subject, None)
                self._missing_changed()

    def _report_missing(self, error: Misconfigured) -> None:
        logger.error("destination-unusable", error=str(error), **self._log_fields)
        self._health.warn(self._subject, str(error))
        self.missing = str(error)


def _read_secrets(settings: StrictModel) -> list[str]:
    return [secret.read() for _, secret in secrets(settings)]
