"""One partition during one assignment: its offsets, and whether work on it may begin or be written."""

import asyncio
from collections.abc import Callable

from aiokafka import TopicPartition

from hifi.errors import Fenced
from hifi.kafka.offset_tracker import OffsetTracker


class AssignedPartition:
    """A partition from its assignment to its revocation. A later assignment of the same partition is another object."""

    def __init__(self, tp: TopicPartition, committed: int | None = None, metadata: str = "") -> None:
        self.topic: str = tp.topic
        self.partition: int = tp.partition
        self.tp = tp
        self.offsets = OffsetTracker()
        self.metadata = metadata
        """The metadata of the last commit, by this owner or the previous one: small facts that survive a takeover."""
        self.metadata_at: Callable[[int], str] = lambda _: self.metadata
        """The metadata for a commit of that offset (at most 4096 bytes); it must not depend on later offsets."""
        self.active = True
        """False: begin nothing new."""
        self.revoked = asyncio.Event()
        """Set when `active` ends: a handler that waits for something stops waiting."""
        self.fenced = False
        """Another member may own the partition by now: write nothing more for it."""
        self.committed = committed
        self.position: int | None = None
        """The next offset to fetch; None until records were fetched."""
        self.task: asyncio.Task[None] | None = None
        self.waiting = True
        """The task waits for records rather than for the handler."""
        self._completed = asyncio.Event()
        self._abandoned = False

    def complete(self, offset: int) -> None:
        """Complete one record: its outputs are acknowledged."""
        self.offsets.finish(offset)
        self._completed.set()

    def complete_through(self, offset: int) -> None:
        """Complete all records up to and including this one: their outputs are acknowledged."""
        self.offsets.finish_through(offset)
        self._completed.set()

    def ensure_active(self) -> None:
        """Call before anything that others can see.

        Raises:
            Fenced: the partition is no longer assigned to this instance.
        """
        if not self.active:
            raise Fenced(f"{self.topic}[{self.partition}] is no longer assigned to this instance")

    def abandon(self) -> None:
        """Leave incomplete records to the next owner, which reads them again: draining does not wait for them."""
        self._abandoned = True
        self._completed.set()

    def revoke(self, *, fenced: bool = False) -> None:
        """Begin nothing new; called when the partition is taken away."""
        self.active = False
        self.fenced = self.fenced or fenced
        self.revoked.set()

    def fence(self) -> None:
        """Stop all work at once."""
        self.revoke(fenced=True)
        if self.task is not None:
            self.task.cancel()

    async def wait_below(self, pending: int) -> None:
        """Wait until fewer than `pending` records are incomplete, or the rest is abandoned."""
        while self.offsets.pending >= pending and not self._abandoned:
            self._completed.clear()
            await self._completed.wait()

    async def drain(self) -> None:
        """Wait until the running batch has returned and no record is incomplete."""
        if self.task is not None and not self.waiting:
            await asyncio.wait({self.task})
        await self.wait_below(1)
