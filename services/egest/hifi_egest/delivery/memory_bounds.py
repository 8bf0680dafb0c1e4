"""The memory bounds of deliveries: of egest as a whole, and of each lane."""

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

    async def wait_for_release(self, timeout_s: float) -> None:
        """Wait until a delivery is released, at most `timeout_s` seconds."""
        await _wait_until_set(self._released, timeout_s)


class LaneRoom:
    """Counts the deliveries of a lane, queued or in flight, and says whether another one fits."""

    def __init__(self, max_events: int, max_bytes: int, budget: InFlightBudget) -> None:
        """Start empty.

        Args:
            max_events: deliveries, queued or in flight.
            max_bytes: their estimated size in memory.
            budget: of all lanes together.
        """
        self.max_events = max_events
        self._max_bytes = max_bytes
        self._budget = budget
        self._released = asyncio.Event()
        self.events = 0
        """Deliveries in the lane, queued or in flight."""
        self.size_bytes = 0
        self.unrecorded = 0
        """Outcomes that Kafka has not acknowledged."""

    def fits(self, size_bytes: int, queued_retries: int = 0) -> bool:
        """Whether one more delivery fits.

        Args:
            size_bytes: of the delivery.
            queued_retries: queued deliveries that the retrier brought back, if this is such a delivery. They may fill
                half of the lane, so that fresh ones find room.
        """
        # No lane may hold more than is free in total: then many slow lanes leave room for the next (dynamic
        # thresholds: Choudhury and Hahne, 1998).
        budget = self._budget
        if self.events >= self.max_events or self.events >= budget.free_events:
            return False
        if queued_retries and queued_retries * 2 >= min(self.max_events, budget.free_events):
            return False
        needed_bytes = self.size_bytes + size_bytes
        return not self.events or (needed_bytes <= self._max_bytes and needed_bytes <= budget.free_bytes)

    def add(self, size_bytes: int) -> None:
        """Count a delivery that enters the lane."""
        self.events += 1
        self.size_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Count a delivery that leaves the lane."""
        self.events -= 1
        self.size_bytes -= size_bytes
        self._released.set()

    async def wait_for_release(self, timeout_s: float) -> None:
        """Wait until a delivery leaves the lane, at most `timeout_s` seconds."""
        await _wait_until_set(self._released, timeout_s)


async def _wait_until_set(released: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set anew, at most `timeout_s` seconds."""
    released.clear()
    timer = asyncio.get_running_loop().call_later(timeout_s, released.set)
    await released.wait()
    timer.cancel()
