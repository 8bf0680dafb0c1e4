"""Where an event can be seen: the stages, which of a stream's topics shows which, and which service reads which topic."""

from functools import lru_cache
from typing import Final, NamedTuple

RAW: Final = "raw"
NORMALIZED: Final = "normalized"
ENRICHED: Final = "enriched"
RETRY_IN: Final = "retry-in"
RETRY_OUT: Final = "retry-out"
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
"""Kind of topic to the service that reads it. What nobody reads ends there."""
WRITERS: Final = {RAW: "ingest", NORMALIZED: "normalize", ENRICHED: "enrich", RETRY_OUT: "retrier"}
"""Kind of topic to the one service that writes it."""


class Stage(NamedTuple):
    """A place and state of an event, or of one of its deliveries."""

    kind: str
    """A kind of topic, or `wanted`, or the outcome that a receipt tells: delivered, filtered, duplicate, …"""
    destination: str = ""
    """The destination; for dead letters of whole events the service that refused them."""
    retry_pass: int = 0
    """Trips through the retrier, on retry topics."""


def kind_of(topic: str) -> str:
    """The kind of a topic named without its stream: `retry-in.5s` is `retry-in`."""
    return topic.partition(".")[0]


@lru_cache(maxsize=4096)
def wanted(to: bytes) -> tuple[Stage, ...]:
    """The stages that a record of `enriched` shows, by its list of destinations."""
    names = to.decode("utf-8", "replace").split(",")
    return (Stage(ENRICHED), *(Stage("wanted", name.strip()) for name in names))


@lru_cache(maxsize=4096)
def receipt(destination: bytes, outcome: bytes, retry_pass: bytes) -> tuple[Stage, ...]:
    """The stage that a receipt shows. Only `retry` tells trips apart: every other outcome is final."""
    kind = outcome.decode("utf-8", "replace")
    final = kind != "retry"
    return (
        Stage(
            "to-retry" if not final else kind,
            destination.decode("utf-8", "replace"),
            0 if final else number(retry_pass),
        ),
    )


@lru_cache(maxsize=4096)
def retry(kind: str, destination: bytes, retry_pass: int) -> tuple[Stage, ...]:
    """The stage that a record of a retry topic shows."""
    return (Stage(kind, destination.decode("utf-8", "replace"), retry_pass),)


@lru_cache(maxsize=4096)
def dead(destination: bytes, service: bytes) -> tuple[Stage, ...]:
    """The stage that a dead letter shows: of a delivery where it names a destination, else of the whole event."""
    if destination:
        return (Stage("dead-delivery", destination.decode("utf-8", "replace")),)
    return (Stage("dead-event", service.decode("utf-8", "replace")),)


def number(text: bytes) -> int:
    """A whole number in a header, 0 when there is none."""
    try:
        return int(text or b"0")
    except ValueError:
        return 0
