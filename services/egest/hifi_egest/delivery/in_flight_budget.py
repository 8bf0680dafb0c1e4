"""The memory bound on deliveries that egest has read and not completed."""

import asyncio


class InFlightBudget:
    """Deliveries in flight in all partitions together, and how many more may be read."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        """Start with nothing in flight.

        Args:
            max_events: deliveries.
            max_bytes: their estimated size in memory.
        """
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.events = 0
        self.size_bytes = 0
        self._released = asyncio.Event()

    @property
    def free_events(self) -> int:
        """Deliveries that may be added."""
        return self._max_events - self.events

    @property
    def free_bytes(self) -> int:
        """Bytes that may be added."""
        return self._max_bytes - self.size_bytes

    @property
    def exceeded(self) -> bool:
        """Whether reading must stop: Kafka does not even acknowledge what goes to the retrier."""
        return self.events > 2 * self._max_events or self.size_bytes > 2 * self._max_bytes

    def add(self, size_bytes: int) -> None:
        """Add a delivery."""
        self.events += 1
        self.size_bytes += size_bytes

    def release(self, events: int, size_bytes: int) -> None:
        """Release deliveries; `size_bytes`: of all together."""
        self.events -= events
        self.size_bytes -= size_bytes
        self._released.set()

    async def wait_for_release(self, within_s: float) -> None:
        """Wait until a delivery is released, at most `within_s` seconds."""
        self._released.clear()
        timer = asyncio.get_running_loop().call_later(within_s, self._released.set)
        await self._released.wait()
        timer.cancel()
