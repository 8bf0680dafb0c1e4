"""From a request's headers and body to its events: which format it is, and every flaw of every event. Pure.

A request is checked whole: either all of its events come out, or a refusal that names each bad index.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hifi.http.media_type import media_type
from hifi.pipe.model import Format, Source
from hifi_ingest.decode import cloudevents, plain_json, trace_headers
from hifi_ingest.decode.attributes import JSON_TYPE, Incoming
from hifi_ingest.http.answers import Flaw, Problem, flawed

T = TypeVar("T")

_TURN: Final = 250
"""Events that are decoded before other requests get their turn."""
_CLOUDEVENTS: Final = b"application/cloudevents"
_ACCEPTED_TYPES: Final = (
    "application/cloudevents+json, application/cloudevents-batch+json, application/json, application/x-ndjson"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large things may be."""

    event_bytes: int
    batch_events: int
    depth: int


@dataclass(frozen=True, slots=True)
class Taking:
    """What a pipe takes."""

    formats: frozenset[Format]
    plain: plain_json.PlainSource

    @classmethod
    def of(cls, pipe: str, source: Source) -> "Taking":
        """As the pipe declares it."""
        return cls(frozenset(source.formats), plain_json.PlainSource(pipe, source))


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that is there whole: headers with names in lower case, body with its coding undone."""

    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    accepted_us: int
    """Microseconds since 1970 UTC."""


async def events(sent: Sent, taking: Taking, bounds: Bounds, *, plain_too: bool) -> list[Incoming]:
    """All events of a request.

    Args:
        sent: the request.
        taking: what the pipe takes.
        bounds: how large things may be.
        plain_too: plain JSON may come in here, not only CloudEvents.

    Raises:
        Problem: 400, 413, 415 or 422; nothing of the request is to be taken.
    """
    found = await _decoded(sent, taking, bounds, plain_too=plain_too)
    return trace_headers.carried(found, trace_headers.context(sent.headers))


async def _decoded(sent: Sent, taking: Taking, bounds: Bounds, *, plain_too: bool) -> list[Incoming]:
    content_type = next((value for name, value in sent.headers if name == b"content-type"), b"")
    kind = media_type(content_type) or b""
    if kind.startswith(_CLOUDEVENTS):
        _want(Format.CLOUDEVENTS, taking)
        return await _cloudevents(kind, sent, bounds)
    if any(name.startswith(cloudevents.PREFIX) for name, _ in sent.headers):
        _want(Format.CLOUDEVENTS, taking)
        return _single(lambda: cloudevents.binary(sent.headers, sent.body, bounds.depth), bounds)
    if not plain_too:
        raise Problem(
            415,
            "this is no CloudEvent: send ce- headers or the content type application/cloudevents+json;"
            " plain JSON goes to /v1/pipes/{pipe}/events",
        )
    if not (kind == JSON_TYPE or kind.endswith(b"+json") or kind in plain_json.JSON_LINES):
        raise Problem(
            415, f"the content type must be one of {_ACCEPTED_TYPES}", [("accept", _ACCEPTED_TYPES)]
        )
    _want(Format.JSON, taking)
    return await _plain(kind, sent, taking.plain, bounds)


async def _cloudevents(kind: bytes, sent: Sent, bounds: Bounds) -> list[Incoming]:
    if kind == cloudevents.STRUCTURED:
        return _single(lambda: cloudevents.structured(sent.body, bounds.depth), bounds)
    if kind != cloudevents.BATCHED:
        raise Problem(
            415,
            f"of CloudEvents' formats only JSON is taken: {_ACCEPTED_TYPES}",
            [("accept", _ACCEPTED_TYPES)],
        )
    members = _whole(lambda: cloudevents.batched(sent.body))
    clean = cloudevents.is_clean(sent.body)
    return await _each(
        len(members), lambda index: cloudevents.event(members[index], bounds.depth, clean=clean), sent, bounds
    )


async def _plain(kind: bytes, sent: Sent, source: plain_json.PlainSource, bounds: Bounds) -> list[Incoming]:
    by_line = kind in plain_json.JSON_LINES
    elements = plain_json.lines(sent.body) if by_line else _whole(lambda: plain_json.objects(sent.body))
    value = next((value for name, value in sent.headers if name == b"idempotency-key"), None)
    key = None if value is None else plain_json.idempotency_key(value)

    def one(index: int) -> Incoming:
        element = elements[index]
        plain_json.check(element, bounds.depth, checked=not by_line)
        return source.event(element, index, key, sent.accepted_us)

    return await _each(len(elements), one, sent, bounds)


async def _each(total: int, one: Callable[[int], Incoming], sent: Sent, bounds: Bounds) -> list[Incoming]:
    if total > bounds.batch_events:
        raise Problem(413, f"{total} events in one request; {bounds.batch_events} is the most")
    found: list[Incoming] = []
    flaws: dict[int, Flaw] = {}
    for start in range(0, total, _TURN):
        if start:
            await asyncio.sleep(0)
        for index in range(start, min(start + _TURN, total)):
            try:
                found.append(one(index))
            except Flaw as flaw:
                flaws[index] = flaw
    if not flaws:
        flaws.update(_repeated(found))
        if len(sent.body) > bounds.event_bytes:
            flaws.update(_oversized(found, bounds))
    if flaws:
        raise flawed(flaws, total)
    return found


def _single(one: Callable[[], Incoming], bounds: Bounds) -> list[Incoming]:
    try:
        event = one()
    except Flaw as flaw:
        raise flawed({0: flaw}, 1) from None
    if flaws := dict(_oversized([event], bounds)):
        raise flawed(flaws, 1)
    return [event]


def _whole(read: Callable[[], T]) -> T:
    try:
        return read()
    except Flaw as flaw:
        raise Problem(400, f"the body as a whole is refused: {flaw.detail}") from None


def _repeated(found: Sequence[Incoming]) -> Iterator[tuple[int, Flaw]]:
    """Events of one request with the same source and id: CloudEvents says that they are the same event."""
    if len({event.id for event in found}) == len(found):
        return
    first: dict[tuple[bytes, bytes], int] = {}
    for index, event in enumerate(found):
        earlier = first.setdefault((event.source, event.id), index)
        if earlier != index:
            yield index, Flaw(f"the same source and id as the event at index {earlier}", "/id")


def _oversized(found: Sequence[Incoming], bounds: Bounds) -> Iterator[tuple[int, Flaw]]:
    for index, event in enumerate(found):
        size = event.size_bytes()
        if size > bounds.event_bytes:
            yield index, Flaw(f"{size} bytes; an event may have {bounds.event_bytes}", status=413)


def _want(wanted: Format, taking: Taking) -> None:
    if wanted not in taking.formats:
        declared = " and ".join(sorted(taking.formats))
        raise Problem(415, f"this pipe takes {declared} only")
