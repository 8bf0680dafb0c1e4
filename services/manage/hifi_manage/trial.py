"""Evaluate a pipe for one test event, and show the request that each destination would get. Sends nothing.

Runs no code of users and reads no secrets. Blocking: call it from a thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from aiokafka import ConsumerRecord
from pydantic import Field

from hifi.delivery.installed_kinds import installed_sender_kind
from hifi.pipe.model import ConnectorDestination, Destination, Pipe
from hifi.pipe.normalize.program import compile_pipe
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE, Headers
from hifi.runtime.errors import Misconfigured, Rejected

_JSON: Final = b"application/json"


@dataclass(frozen=True, slots=True)
class TrialDelivery:
    """The request that a destination would get.

    Attributes:
        destination: its name.
        request: head and body of the HTTP request; without its signature, and with `(secret)` in place of secrets.
            None: it would get none, or it is not an HTTP endpoint.
        reason: of a missing request; empty: there is one.
    """

    destination: str
    request: Annotated[str | None, Field(description="Head and body, without secrets.")]
    reason: Annotated[str, Field(description="Why there is no request.")] = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a test event.

    Attributes:
        data: after normalize; None: the event is refused there.
        refused: reason, explanation and JSON pointer of the dead letter; None: it is accepted.
        deliveries: one for each destination of the pipe; empty: the event is refused.
        not_evaluated: parts of the pipe that were left out, each with the reason.
    """

    data: str | None
    refused: tuple[str, str, str] | None
    deliveries: tuple[TrialDelivery, ...]
    not_evaluated: tuple[str, ...]


def try_event(pipe: Pipe, data: bytes, now_us: int) -> Trial:
    """Evaluate a pipe for the data of one event, which is JSON.

    Args:
        pipe: to evaluate.
        data: of the event.
        now_us: time of the event, microseconds since 1970 UTC.

    Raises:
        Misconfigured: the pipe cannot be used; `hifi check` says why.
    """
    omissions = tuple(_omissions(pipe))
    program = compile_pipe(_restricted(pipe))
    try:
        normalized = program.run(data, _JSON) or b""
    except Rejected as error:
        return Trial(None, (error.reason, error.detail, error.pointer), (), omissions)
    record = _record(pipe, normalized, now_us)
    deliveries = tuple(_delivery(destination, record, now_us) for destination in pipe.destinations)
    return Trial(_text(normalized), None, deliveries, omissions)


def _omissions(pipe: Pipe) -> Iterator[str]:
    if pipe.source.mask is not None:
        yield "`source.mask` is not applied: it acts at ingest"
    if pipe.normalize.function is not None:
        yield "`normalize.function` is not called: no code of users runs here"
    if any(not isinstance(mask, str) for mask in pipe.normalize.mask.values()):
        yield "fields that `normalize.mask` hashes are shown as redacted: their keys are not read here"
    if pipe.enrich.model_fields_set:
        yield "`enrich` is not evaluated: it needs Spark"
    if any(destination.when is not None for destination in pipe.destinations):
        yield "`when` of destinations is not evaluated: it needs Spark"


def _restricted(pipe: Pipe) -> Pipe:
    """The pipe without code of users, and without masks that need a secret."""
    masks = {path: mask if isinstance(mask, str) else "redact" for path, mask in pipe.normalize.mask.items()}
    normalize = pipe.normalize.model_copy(update={"mask": masks, "function": None})
    return pipe.model_copy(update={"normalize": normalize})


def _record(pipe: Pipe, data: bytes, now_us: int) -> ConsumerRecord:
    """The record as egest would read it."""
    time = datetime.fromtimestamp(now_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
    attributes = {
        "specversion": "1.0",
        "id": "test",
        "source": f"/pipes/{pipe.pipe}",
        "type": f"{pipe.pipe}.test",
        "time": time,
    }
    headers: Headers = [(CE_PREFIX + name, value.encode()) for name, value in attributes.items()]
    headers.append((CONTENT_TYPE, _JSON))
    size = len(data)
    return ConsumerRecord("", 0, 0, now_us // 1000, 0, None, data, None, 0, size, headers)


def _delivery(destination: Destination, record: ConsumerRecord, now_us: int) -> TrialDelivery:
    if isinstance(destination, ConnectorDestination):
        return TrialDelivery(
            destination.name, None, f"writes of the kind {destination.kind} are not shown here"
        )
    try:
        request = installed_sender_kind(destination.kind).example(destination, record, now_us)
    except Rejected as error:
        return TrialDelivery(destination.name, None, f"{error.reason}: {error.detail}")
    except Misconfigured as error:
        return TrialDelivery(destination.name, None, str(error))
    return TrialDelivery(destination.name, _text(request))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").replace("\r\n", "\n")
