"""A source partition during one assignment, with the number of its deliveries in flight."""

import asyncio
from typing import Final

from hifi.kafka.consumer import AssignedPartition
from hifi_egest.delivery.in_flight_budget import InFlightBudget

ENRICHED: Final = "enriched"
RETRY_OUT: Final = "retry-out"


class SourcePartition:
    """A partition of `enriched` or `retry-out`, from its assignment to its revocation."""

    def __init__(self, assigned: AssignedPartition, source: str, budget: InFlightBudget) -> None:
        """Start with nothing in flight.

        Args:
            assigned: the consumer's view of the partition.
            source: `enriched` or `retry-out`.
            budget: shared by all partitions.
        """
        self.assigned = assigned
        self.number = assigned.partition
        self.source = source
        self.source_name = source.encode()
        self._budget = budget
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, size_bytes: int) -> None:
        """Count a new delivery."""
        if not self._in_flight:
            self._idle.clear()
        self._in_flight += 1
        self._budget.add(size_bytes)

    def end(self, deliveries: int, size_bytes: int) -> None:
        """Count deliveries as completed, or as left to the partition's next owner; `size_bytes`: of all together."""
        self._in_flight -= deliveries
        self._budget.release(deliveries, size_bytes)
        if not self._in_flight:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no delivery is in flight."""
        await self._idle.wait()
