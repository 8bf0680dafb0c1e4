"""One source partition during one assignment: what is in hand of it, and its orderly end."""

import asyncio
from typing import TYPE_CHECKING

from hifi.kafka.consumer import AssignedPartition
from hifi_egest.dedup.deduplicator import Once
from hifi_egest.dedup.takeover import Finished

if TYPE_CHECKING:
    from hifi_egest.delivery.delivery import Event


class Held:
    """What all partitions have in hand together: memory is bounded by it."""

    def __init__(self, events: int, size_bytes: int) -> None:
        """Begin with nothing in hand.

        Args:
            events: that fit.
            size_bytes: that fit.
        """
        self._most_events = events
        self._most_bytes = size_bytes
        self.events = 0
        self.size_bytes = 0
        self._changed = asyncio.Event()

    @property
    def free_events(self) -> int:
        """Deliveries that may come in addition."""
        return self._most_events - self.events

    @property
    def free_bytes(self) -> int:
        """Bytes that may come in addition."""
        return self._most_bytes - self.size_bytes

    @property
    def overfull(self) -> bool:
        """Even what is on its way to the retrier is too much: Kafka takes no more, so nothing more may be read."""
        return self.events > 2 * self._most_events or self.size_bytes > 2 * self._most_bytes

    def change(self, events: int, size_bytes: int) -> None:
        """So many came (or went, below 0)."""
        self.events += events
        self.size_bytes += size_bytes
        if events < 0:
            self._changed.set()

    async def less(self, within_s: float) -> None:
        """Wait until something went, or so many seconds have passed."""
        self._changed.clear()
        timer = asyncio.get_running_loop().call_later(within_s, self._changed.set)
        await self._changed.wait()
        timer.cancel()


class Partition:
    """An assigned partition with what egest knows of it."""

    def __init__(
        self, work: AssignedPartition, source: str, once: Once, finished: Finished, held: Held
    ) -> None:
        """Begin with nothing in hand.

        Args:
            work: of the consumer.
            source: `enriched` or `retry-out`.
            once: tells copies.
            finished: outcomes that the last owner wrote.
            held: of all partitions.
        """
        self.work = work
        self.number = work.partition
        self.source = source
        self.once = once
        self.finished = finished
        self.taken = -1
        """The highest offset whose deliveries are all in their lanes, or further."""
        self.given: set[bytes] = set()
        """Destinations of the last event whose deliveries were given to their lanes already."""
        self._event: Event | None = None
        self._held = held
        self._in_hand = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def resumed(self, event: "Event", deliveries: int) -> "Event":
        """The event, or the same one from before when a step failed on it half-way: what was given stays given."""
        if self._event is None or self._event.record.offset != event.record.offset:
            event.left, self._event, self.given = deliveries, event, set()
        return self._event

    def given_of(self, offset: int) -> set[bytes]:
        """Destinations of a record's deliveries that were given to their lanes."""
        return self.given if self._event is not None and self._event.record.offset == offset else set()

    def begin(self, size_bytes: int) -> None:
        """A delivery is taken in hand."""
        self._in_hand += 1
        self._held.change(1, size_bytes)
        self._idle.clear()

    def end(self, size_bytes: int) -> None:
        """A delivery has its outcome on record, or is left to the next owner."""
        self._in_hand -= 1
        self._held.change(-1, -size_bytes)
        if not self._in_hand:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing is in hand."""
        await self._idle.wait()
