"""Stages of an event or delivery, and which stages a record of each topic shows."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from hifi.record.headers import DESTINATION, OUTCOME, PASS, SERVICE, TO
from hifi.record.packed_text import is_number

RAW: Final = "raw"
NORMALIZED: Final = "normalized"
ENRICHED: Final = "enriched"
RETRY_IN: Final = "retry-in"
RETRY_OUT: Final = "retry-out"
PARKED: Final = "parked"
"""Read as a retry topic of which only what Kafka deleted is passed: what is parked stays, and comes back with the next
pass."""
DEAD_LETTER: Final = "dead-letter"
RECEIPTS: Final = "receipts"
ACCEPTED: Final = "accepted"

READERS: Final = {
    RAW: "normalize",
    NORMALIZED: "enrich",
    ENRICHED: "egest",
    RETRY_OUT: "egest",
    RETRY_IN: "retrier",
}
"""Kind of topic to the service that reads it. No service reads the other kinds."""
LAKE: Final = "enriched/lake"
"""Stands for `enriched` as the service lake reads it, where its commits count instead of egest's."""
WRITERS: Final = {RAW: "ingest", NORMALIZED: "normalize", ENRICHED: "enrich", RETRY_OUT: "retrier"}
"""Kind of topic to the only service that writes it."""


_STEPS: Final = b"state"
"""Service whose dead letters are of events that a step does not count: the events themselves go on."""


class EventStage(NamedTuple):
    """A topic or state of an event, or of one of its deliveries."""

    kind: str
    """A kind of topic, or `wanted`, or the outcome in a receipt: delivered, filtered, duplicate, …"""
    destination: str = ""
    """The destination; for dead letters of whole events the service that refused them."""
    retry_pass: int = 0
    """Number of passes through the retrier, on retry topics."""


NOT_FOLDED: Final = "not-folded"
"""Kind of the stage of an event that a step does not count. It settles no delivery, and no count has it."""
_NOT_FOLDED: Final = (EventStage(NOT_FOLDED, "state"),)

StageReader: TypeAlias = Callable[[Mapping[str, bytes]], tuple[EventStage, ...]]
"""Returns the stages that the fields of a record show (`hifi.record.fields`). Raises KeyError if one is missing."""


def kind_of(topic: str) -> str:
    """The kind of a topic named without its stream: `retry-in` for `retry-in.5s`."""
    return topic.partition(".")[0]


def stage_reader(kind: str) -> StageReader:
    """The function that reads the stages of a kind of topic from the fields of a record."""
    if kind == ENRICHED:
        return lambda headers: wanted(headers.get(TO, b""))
    if kind == RECEIPTS:
        return lambda headers: receipt(
            headers.get(DESTINATION, b""), headers[OUTCOME], headers.get(PASS, b"0")
        )
    if kind in (RETRY_IN, RETRY_OUT):
        # The retrier counts a pass when it returns a delivery: the pass that starts on `retry-in` has the next number.
        started_passes = int(kind == RETRY_IN)
        return lambda headers: retry(
            kind, headers[DESTINATION], number(headers.get(PASS, b"0")) + started_passes
        )
    if kind == PARKED:
        return lambda headers: parked(headers[DESTINATION], number(headers.get(PASS, b"0")) + 1)
    if kind == DEAD_LETTER:
        return lambda headers: dead(headers.get(DESTINATION, b""), headers.get(SERVICE, b""))
    plain_stages = (EventStage(kind),)
    return lambda _: plain_stages


@lru_cache(maxsize=4096)
def wanted(to_header: bytes) -> tuple[EventStage, ...]:
    """The stages of a record of `enriched` with this list of destinations."""
    destination_names = to_header.decode("utf-8", "replace").split(",")
    return (EventStage(ENRICHED), *(EventStage("wanted", name.strip()) for name in destination_names))


@lru_cache(maxsize=4096)
def receipt(destination: bytes, outcome: bytes, retry_pass: bytes) -> tuple[EventStage, ...]:
    """The stage of a receipt. Only `retry` and `parked` have a retry pass: every other outcome is final."""
    kind = outcome.decode("utf-8", "replace")
    name = destination.decode("utf-8", "replace")
    return (
        EventStage("to-retry", name, number(retry_pass))
        if kind in ("retry", "parked")
        else EventStage(kind, name),
    )


@lru_cache(maxsize=4096)
def retry(kind: str, destination: bytes, retry_pass: int) -> tuple[EventStage, ...]:
    """The stage of a record on a retry topic."""
    return (EventStage(kind, destination.decode("utf-8", "replace"), retry_pass),)


@lru_cache(maxsize=4096)
def parked(destination: bytes, retry_pass: int) -> tuple[EventStage, ...]:
    """The stages of a parked delivery: those of a retry, and that it is parked."""
    return (*retry(RETRY_IN, destination, retry_pass), *retry(PARKED, destination, retry_pass))


@lru_cache(maxsize=4096)
def dead(destination: bytes, service: bytes) -> tuple[EventStage, ...]:
    """The stage of a dead letter: of a delivery if it names a destination, of a step, else of the whole event."""
    if destination:
        return (EventStage("dead-delivery", destination.decode("utf-8", "replace")),)
    if service == _STEPS:
        return _NOT_FOLDED
    return (EventStage("dead-event", service.decode("utf-8", "replace")),)


def number(text: bytes) -> int:
    """The whole number in a header, 0 if there is none."""
    return int(text) if is_number(text) else 0
