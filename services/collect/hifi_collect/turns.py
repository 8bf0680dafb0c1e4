"""Work on many events in parts, after each of which everything else gets a turn. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_EVENTS: Final = 250
"""Of a part: a request to Kafka takes several turns of the event loop."""


def turns(events: Sequence[T]) -> Iterator[Sequence[T]]:
    """The parts of a sequence, in order; after each comes `await asyncio.sleep(0)`."""
    return (events[at : at + _EVENTS] for at in range(0, len(events), _EVENTS))
