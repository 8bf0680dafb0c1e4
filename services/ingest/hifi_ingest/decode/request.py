"""Decode a request into events: choose the format by its headers, then validate every event.

Either all events of a request are returned, or a refusal that names the index of each invalid one.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from hifi.pipe.source import DeclaredSource, HttpSource
from hifi.pipe.sources.collected import Format
from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.attributes import JSON_TYPE
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits, InvalidEvent
from hifi.record.cloudevents.json_slices import without_bom
from hifi.runtime.clock import monotonic_s
from hifi.runtime.http.media_type import is_json, is_utf8, media_type
from hifi.runtime.http.problem import Problem
from hifi_ingest.bodies import refusal
from hifi_ingest.decode import clean_batches, plain_json
from hifi_ingest.decode.shape import Shape, chunks
from hifi_ingest.decode.trace_headers import trace_headers, with_trace

T = TypeVar("T")

_TURN_S: Final = 0.005
"""Time that a request decodes before other requests get a turn of the event loop, seconds."""
_LARGE_BYTES: Final = 256 * 1024
"""A smaller body is decoded within a turn."""
_EVENTS_PER_STEP: Final = 100
_EVENT_MEMORY_BYTES: Final = 1200
"""Memory of an event until Kafka has acknowledged it, without its data: its record with 7 to 11 headers."""
_MEMBER_MEMORY_BYTES: Final = 200
_MEMBERS_PER_EVENT: Final = 16
"""Attributes that the events of the largest batch may have on average."""
_CLOUDEVENTS: Final = b"application/cloudevents"
_ACCEPTED_TYPES: Final = (
    "application/cloudevents+json, application/cloudevents-batch+json, application/json, application/x-ndjson"
)


@dataclass(frozen=True, slots=True)
class PipeFormats:
    """The formats that a pipe accepts."""

    formats: frozenset[Format]
    plain_json: plain_json.PlainJsonDecoder

    @classmethod
    def of(cls, pipe: str, source: DeclaredSource) -> "PipeFormats":
        """The formats that the pipe's `source` section declares."""
        if not isinstance(source, HttpSource):  # it was one until a moment ago
            source = HttpSource.model_construct(keys=[], formats=[])
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
    reserve: Callable[[int], None] = lambda _: None
    """Called with the bytes of memory that decoding will use, before it does; it may raise Problem."""
    write_key: bytes = b""


class _LoopTurn:
    """A turn of the event loop, which a request that decodes for long ends again and again."""

    __slots__ = ("_end_s",)

    def __init__(self) -> None:
        self._end_s = monotonic_s() + _TURN_S

    async def end_if_over(self) -> None:
        """Let other requests run if the time of this turn is over."""
        if monotonic_s() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = monotonic_s() + _TURN_S


async def decode_request(
    request: EventRequest, pipe: PipeFormats, limits: DecodeLimits, *, allow_plain_json: bool
) -> list[DecodedEvent]:
    """Decode all events of a request.

    Args:
        request: headers and body.
        pipe: formats that the pipe accepts.
        limits: of the events.
        allow_plain_json: whether the path of the request accepts plain JSON, not only CloudEvents.

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
        return _decode_one(lambda: cloudevents.binary(request.headers, request.body, limits), limits)
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


def _without_bom(request: EventRequest) -> EventRequest:
    body = without_bom(request.body)
    if body is request.body:  # nearly always; `replace` takes 2 µs
        return request
    return replace(request, body=body)


async def _decode_json_cloudevents(
    kind: bytes, request: EventRequest, limits: DecodeLimits
) -> list[DecodedEvent]:
    request = _without_bom(request)
    if kind == cloudevents.STRUCTURED:
        await _check_shape(request, limits, is_batch=False)
        return _decode_one(lambda: cloudevents.structured(request.body, limits), limits)
    if kind != cloudevents.BATCHED:
        raise Problem(
            415,
            f"CloudEvents are accepted in JSON format only: {_ACCEPTED_TYPES}",
            [("accept", _ACCEPTED_TYPES)],
        )
    await _check_shape(request, limits, is_batch=True)
    events = await _decode_clean(request, limits)
    if events is not None:
        return events
    members = _split(lambda: cloudevents.batched(request.body))
    is_clean = cloudevents.is_clean(request.body)
    return await _decode_each(
        len(members),
        lambda index: cloudevents.event(members[index], limits, clean=is_clean),
        request,
        limits,
    )


async def _check_shape(
    request: EventRequest, limits: DecodeLimits, *, is_batch: bool, has_members: bool = True
) -> None:
    """Refuse a body with too many events or members, and reserve memory for members, before they are decoded.

    Args:
        request: with a JSON body.
        limits: of its events.
        is_batch: whether the body is an array of events, and not one event.
        has_members: whether the members of the events are decoded one by one.

    Raises:
        Problem: 413, or an error of `reserve`.
    """
    body, max_events = request.body, limits.batch_events
    if len(body) < 2 * max_events or body.count(b",") < max_events:
        return
    max_members = max_events * _MEMBERS_PER_EVENT
    members, shape = 0, Shape()
    for chunk in chunks(body):
        shape.add(chunk)
        if is_batch and shape.outer >= max_events:
            raise _too_many_events(limits)
        if has_members:
            members = shape.inner if is_batch else shape.outer
            if members > max_members:
                raise Problem(413, f"the events have more than {max_members} attributes together")
        await asyncio.sleep(0)
    request.reserve(members * _MEMBER_MEMORY_BYTES)


async def _decode_clean(request: EventRequest, limits: DecodeLimits) -> list[DecodedEvent] | None:
    """The events of the usual batch; None: it has something unusual or invalid."""
    clean_events = clean_batches.clean_events(request.body)
    if clean_events is None or len(clean_events) > limits.batch_events:
        return None
    request.reserve(len(clean_events) * _EVENT_MEMORY_BYTES)
    events: list[DecodedEvent] = []
    loop_turn, size_bytes = _LoopTurn(), len(request.body)
    step_events = len(clean_events) or 1
    if size_bytes > _LARGE_BYTES:
        step_events = max(1, _EVENTS_PER_STEP * _LARGE_BYTES // size_bytes)
    for start in range(0, len(clean_events), step_events):
        await loop_turn.end_if_over()
        decoded = clean_batches.decode(clean_events[start : start + step_events], limits)
        if decoded is None:
            return None
        events += decoded
    return None if _invalid_together(request, events, limits) else events


def _invalid_together(
    request: EventRequest, events: Sequence[DecodedEvent], limits: DecodeLimits
) -> dict[int, InvalidEvent]:
    """Errors of events that are valid alone but repeat an earlier event of the request, or are too large."""
    invalid_events = dict(_repeated(events))
    if len(request.body) > limits.event_bytes:
        invalid_events.update(_oversized(events, limits))
    return invalid_events


async def _decode_plain_json(
    kind: bytes, request: EventRequest, decoder: plain_json.PlainJsonDecoder, limits: DecodeLimits
) -> list[DecodedEvent]:
    request = _without_bom(request)
    is_json_lines = kind in plain_json.JSON_LINES
    if is_json_lines:
        elements = plain_json.lines(request.body, limits.batch_events)
        if not elements:
            raise Problem(400, "the body has no event: all of its lines are empty")
    else:
        if plain_json.is_array(request.body):
            await _check_shape(request, limits, is_batch=True, has_members=False)
        elements = _split(lambda: plain_json.objects(request.body))
    value = next((value for name, value in request.headers if name == b"idempotency-key"), None)
    idempotency_key = None if value is None else plain_json.idempotency_key(value)

    def decode(index: int) -> DecodedEvent:
        element = elements[index]
        plain_json.check_object(element, limits, valid_json=not is_json_lines)
        return decoder.decode(element, index, idempotency_key, request.accepted_us, request.write_key)

    return await _decode_each(len(elements), decode, request, limits, is_json_lines=is_json_lines)


async def _decode_each(
    event_count: int,
    decode: Callable[[int], DecodedEvent],
    request: EventRequest,
    limits: DecodeLimits,
    *,
    is_json_lines: bool = False,
) -> list[DecodedEvent]:
    if event_count > limits.batch_events:
        raise _too_many_events(limits)
    request.reserve(event_count * _EVENT_MEMORY_BYTES)
    events: list[DecodedEvent] = []
    invalid_events: dict[int, InvalidEvent] = {}
    loop_turn, is_large = _LoopTurn(), len(request.body) > _LARGE_BYTES
    for index in range(event_count):
        if is_large:
            await loop_turn.end_if_over()
        try:
            events.append(decode(index))
        except InvalidEvent as error:
            invalid_events[index] = error
    invalid_events = invalid_events or _invalid_together(request, events, limits)
    if invalid_events:
        line_numbers = plain_json.line_numbers(request.body, invalid_events) if is_json_lines else None
        raise refusal(invalid_events, event_count, line_numbers)
    return events


def _decode_one(decode: Callable[[], DecodedEvent], limits: DecodeLimits) -> list[DecodedEvent]:
    try:
        event = decode()
    except InvalidEvent as error:
        raise refusal({0: error}, 1) from None
    if invalid_events := dict(_oversized([event], limits)):
        raise refusal(invalid_events, 1)
    return [event]


def _too_many_events(limits: DecodeLimits) -> Problem:
    return Problem(413, f"the request has too many events; the limit is {limits.batch_events}")


def _split(split: Callable[[], T]) -> T:
    try:
        return split()
    except InvalidEvent as error:
        raise Problem(400, f"the body is invalid: {error.detail}") from None


def _repeated(events: Sequence[DecodedEvent]) -> Iterator[tuple[int, InvalidEvent]]:
    """Errors of events with the source and id of an earlier event: by CloudEvents' definition the same event."""
    if len({event.id for event in events}) == len(events):
        return
    first_indexes: dict[tuple[bytes, bytes], int] = {}
    for index, event in enumerate(events):
        first_index = first_indexes.setdefault((event.source, event.id), index)
        if first_index != index:
            yield index, InvalidEvent(f"the same source and id as the event at index {first_index}", "/id")


def _oversized(events: Sequence[DecodedEvent], limits: DecodeLimits) -> Iterator[tuple[int, InvalidEvent]]:
    for index, event in enumerate(events):
        size_bytes = event.size_bytes()
        if size_bytes > limits.event_bytes:
            yield (
                index,
                InvalidEvent(
                    f"{size_bytes} bytes; the limit of an event is {limits.event_bytes}", status=413
                ),
            )


def _require_format(required: Format, pipe: PipeFormats) -> None:
    if required not in pipe.formats:
        formats_text = " and ".join(sorted(pipe.formats))
        raise Problem(415, f"this pipe accepts {formats_text} only")
