"""Divide many events into slices, after each of which the event loop runs everything else. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_EVENTS: Final = 250
"""Of a slice: a request to Kafka takes several turns of the event loop."""


def loop_slices(events: Sequence[T]) -> Iterator[Sequence[T]]:
    """The slices of a sequence, in order; after each comes `await asyncio.sleep(0)`."""
    return (events[start : start + _EVENTS] for start in range(0, len(events), _EVENTS))
