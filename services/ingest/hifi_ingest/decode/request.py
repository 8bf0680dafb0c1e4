"""Decode a request into events: choose the format by its headers, then validate every event. Pure.

Either all events of a request are returned, or a refusal that names the index of each invalid one.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hifi.http.media_type import is_json, is_utf8, media_type
from hifi.http.problem import Problem
from hifi.pipe.model import Format, Source
from hifi_ingest.decode import clean_batches, cloudevents, plain_json
from hifi_ingest.decode.attributes import JSON_TYPE
from hifi_ingest.decode.event import DecodedEvent, InvalidEvent, refusal
from hifi_ingest.decode.trace_headers import trace_headers, with_trace

T = TypeVar("T")

_EVENTS_PER_TURN: Final = 250
"""Events decoded before other requests get a turn of the event loop."""
_CLOUDEVENTS: Final = b"application/cloudevents"
_ACCEPTED_TYPES: Final = (
    "application/cloudevents+json, application/cloudevents-batch+json, application/json, application/x-ndjson"
)


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of the events of one request."""

    event_bytes: int
    """Data and attributes of one event."""
    batch_events: int
    depth: int
    """Nesting of JSON."""


@dataclass(frozen=True, slots=True)
class PipeFormats:
    """The formats that a pipe accepts."""

    formats: frozenset[Format]
    plain_json: plain_json.PlainJsonDecoder

    @classmethod
    def of(cls, pipe: str, source: Source) -> "PipeFormats":
        """The formats that the pipe's `source` section declares."""
        return cls(frozenset(source.formats), plain_json.PlainJsonDecoder(pipe, source))


@dataclass(frozen=True, slots=True)
class EventRequest:
    """A complete request."""

    headers: Sequence[tuple[bytes, bytes]]
    """Names in lower case."""
    body: bytes
    """Without its content coding."""
    accepted_us: int
    """Microseconds since 1970 UTC."""


async def decode_request(
    request: EventRequest, pipe: PipeFormats, limits: DecodeLimits, *, allow_plain_json: bool
) -> list[DecodedEvent]:
    """Decode all events of a request.

    Args:
        request: headers and body.
        pipe: formats that the pipe accepts.
        limits: of the events.
        allow_plain_json: the path of the request accepts plain JSON, not only CloudEvents.

    Raises:
        Problem: 400, 413, 415 or 422; no event of the request may be accepted.
    """
    events = await _decode(request, pipe, limits, allow_plain_json=allow_plain_json)
    return with_trace(events, trace_headers(request.headers))


async def _decode(
    request: EventRequest, pipe: PipeFormats, limits: DecodeLimits, *, allow_plain_json: bool
) -> list[DecodedEvent]:
    content_type = next((value for name, value in request.headers if name == b"content-type"), b"")
    kind = media_type(content_type) or b""
    if not is_utf8(content_type) and (is_json(content_type) or kind in plain_json.JSON_LINES):
        # RFC 8259, 8.1: JSON between systems is UTF-8.
        raise Problem(415, "JSON must be encoded in UTF-8: leave out charset, or send charset=utf-8")
    if kind.startswith(_CLOUDEVENTS):
        _require_format(Format.CLOUDEVENTS, pipe)
        return await _decode_json_cloudevents(kind, request, limits)
    if any(name.startswith(cloudevents.PREFIX) for name, _ in request.headers):
        _require_format(Format.CLOUDEVENTS, pipe)
        return _decode_one(lambda: cloudevents.binary(request.headers, request.body, limits.depth), limits)
    if not allow_plain_json:
        raise Problem(
            415,
            "the request is not a CloudEvent: send ce- headers or the content type"
            " application/cloudevents+json; send plain JSON to /v1/pipes/{pipe}/events",
        )
    if not (kind == JSON_TYPE or kind.endswith(b"+json") or kind in plain_json.JSON_LINES):
        raise Problem(
            415, f"the content type must be one of {_ACCEPTED_TYPES}", [("accept", _ACCEPTED_TYPES)]
        )
    _require_format(Format.JSON, pipe)
    return await _decode_plain_json(kind, request, pipe.plain_json, limits)


async def _decode_json_cloudevents(
    kind: bytes, request: EventRequest, limits: DecodeLimits
) -> list[DecodedEvent]:
    if kind == cloudevents.STRUCTURED:
        return _decode_one(lambda: cloudevents.structured(request.body, limits.depth), limits)
    if kind != cloudevents.BATCHED:
        raise Problem(
            415,
            f"CloudEvents are accepted in JSON format only: {_ACCEPTED_TYPES}",
            [("accept", _ACCEPTED_TYPES)],
        )
    events = await _decode_clean(request, limits)
    if events is not None:
        return events
    members = _split(lambda: cloudevents.batched(request.body))
    clean = cloudevents.is_clean(request.body)
    return await _decode_each(
        len(members),
        lambda index: cloudevents.event(members[index], limits.depth, clean=clean),
        request,
        limits,
    )


async def _decode_clean(request: EventRequest, limits: DecodeLimits) -> list[DecodedEvent] | None:
    """The events of the usual batch; None: it has something unusual or invalid."""
    found = clean_batches.clean_events(request.body)
    if found is None or len(found) > limits.batch_events:
        return None
    events: list[DecodedEvent] = []
    for start in range(0, len(found), _EVENTS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        decoded = clean_batches.decode(found[start : start + _EVENTS_PER_TURN], limits.depth)
        if decoded is None:
            return None
        events += decoded
    return None if _invalid_together(request, events, limits) else events


def _invalid_together(
    request: EventRequest, events: Sequence[DecodedEvent], limits: DecodeLimits
) -> dict[int, InvalidEvent]:
    """Events that are valid alone but repeat an earlier one of the request, or are too large."""
    invalid = dict(_repeated(events))
    if len(request.body) > limits.event_bytes:
        invalid.update(_oversized(events, limits))
    return invalid


async def _decode_plain_json(
    kind: bytes, request: EventRequest, decoder: plain_json.PlainJsonDecoder, limits: DecodeLimits
) -> list[DecodedEvent]:
    by_line = kind in plain_json.JSON_LINES
    elements = plain_json.lines(request.body) if by_line else _split(lambda: plain_json.objects(request.body))
    value = next((value for name, value in request.headers if name == b"idempotency-key"), None)
    key = None if value is None else plain_json.idempotency_key(value)

    def decode(index: int) -> DecodedEvent:
        element = elements[index]
        plain_json.check_object(element, limits.depth, valid_json=not by_line)
        return decoder.decode(element, index, key, request.accepted_us)

    return await _decode_each(len(elements), decode, request, limits)


async def _decode_each(
    total: int, decode: Callable[[int], DecodedEvent], request: EventRequest, limits: DecodeLimits
) -> list[DecodedEvent]:
    if total > limits.batch_events:
        raise Problem(413, f"the request has {total} events; the limit is {limits.batch_events}")
    events: list[DecodedEvent] = []
    invalid: dict[int, InvalidEvent] = {}
    for start in range(0, total, _EVENTS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        for index in range(start, min(start + _EVENTS_PER_TURN, total)):
            try:
                events.append(decode(index))
            except InvalidEvent as error:
                invalid[index] = error
    invalid = invalid or _invalid_together(request, events, limits)
    if invalid:
        raise refusal(invalid, total)
    return events


def _decode_one(decode: Callable[[], DecodedEvent], limits: DecodeLimits) -> list[DecodedEvent]:
    try:
        event = decode()
    except InvalidEvent as error:
        raise refusal({0: error}, 1) from None
    if invalid := dict(_oversized([event], limits)):
        raise refusal(invalid, 1)
    return [event]


def _split(split: Callable[[], T]) -> T:
    try:
        return split()
    except InvalidEvent as error:
        raise Problem(400, f"the body is invalid: {error.detail}") from None


def _repeated(events: Sequence[DecodedEvent]) -> Iterator[tuple[int, InvalidEvent]]:
    """Events with the source and id of an earlier one: by CloudEvents' definition the same event."""
    if len({event.id for event in events}) == len(events):
        return
    first: dict[tuple[bytes, bytes], int] = {}
    for index, event in enumerate(events):
        earlier = first.setdefault((event.source, event.id), index)
        if earlier != index:
            yield index, InvalidEvent(f"the same source and id as the event at index {earlier}", "/id")


def _oversized(events: Sequence[DecodedEvent], limits: DecodeLimits) -> Iterator[tuple[int, InvalidEvent]]:
    for index, event in enumerate(events):
        size = event.size_bytes()
        if size > limits.event_bytes:
            yield (
                index,
                InvalidEvent(f"{size} bytes; the limit of an event is {limits.event_bytes}", status=413),
            )


def _require_format(required: Format, pipe: PipeFormats) -> None:
    if required not in pipe.formats:
        declared = " and ".join(sorted(pipe.formats))
        raise Problem(415, f"this pipe accepts {declared} only")
