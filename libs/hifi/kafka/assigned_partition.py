"""One partition during one assignment: its offsets, and whether work on it may begin or be written."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.kafka.batches import retrieve_error
from hifi.kafka.offset_tracker import OffsetTracker
from hifi.runtime.errors import Fenced


class CommitListener(Protocol):
    """Takes part in the commits of a partition: what it decides is kept in their metadata before it has an effect."""

    def before_commit(self, offset: int | None) -> int | None:
        """Decide; called before each round of commits, before `AssignedPartition.metadata_at`.

        Args:
            offset: that can be committed, or was; None: there is none.

        Returns:
            The offset to commit although it was committed before, since the metadata has changed; None: there is no
            need.
        """

    def after_commit(self) -> None:
        """Kafka has the metadata; called after a round of commits that did not fail."""


class AssignedPartition:
    """A partition from its assignment to its revocation. A later assignment of the same partition is another object."""

    def __init__(
        self,
        tp: TopicPartition,
        committed: int | None = None,
        metadata: str = "",
        fail: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        """Start without records.

        Args:
            tp: the partition.
            committed: its committed offset; None: there is none.
            metadata: of that commit.
            fail: gets an error after which the member has to join the group again.
        """
        self.topic: str = tp.topic
        self.partition: int = tp.partition
        self.tp = tp
        self.offsets = OffsetTracker()
        self.metadata = metadata
        """The metadata of the last commit, by this owner or the previous one: small facts that survive a takeover."""
        self.metadata_at: Callable[[int], str] = lambda _: self.metadata
        """The metadata for a commit of that offset (at most 4096 bytes); it must not depend on later offsets."""
        self.commit_listener: CommitListener | None = None
        self.end: Callable[[], LogEnd | None] = lambda: None
        """See `AdaptiveFetcher.end`."""
        self.active = True
        """False: begin nothing new."""
        self.revoked = asyncio.Event()
        """Set when `active` ends: a handler that waits for something stops waiting."""
        self.fenced = False
        """Another member may own the partition by now: write nothing more for it."""
        self.committed = committed
        self.position: int | None = None
        """The next offset to read; None until records were read."""
        self.void = False
        """The topic was deleted, and perhaps created again: its offsets mean nothing, so none is committed."""
        self.deleted: list[range] = []
        """Offsets that Kafka no longer had when they were to be read; the code that reports them removes them."""
        self.corrupt = False
        """The next batch is corrupt, so it cannot be read at the moment."""
        self._taken_position = committed
        self.task: asyncio.Task[None] | None = None
        """The handler of a batch that did not end at once; no other batch begins until it has ended."""
        self._fail = fail
        self._outputs: deque[tuple[asyncio.Future[Any], int, Callable[[int], None]]] = deque()
        self._completed = asyncio.Event()
        self._abandoned = False
        self._lost = False
        """Some outputs will never be acknowledged."""
        self._room: tuple[int, Callable[[], None]] | None = None

    @property
    def idle(self) -> bool:
        """No handler runs."""
        return self.task is None

    def begin_take(self, position: int | None) -> None:
        """Note a jump of the position since the last take: the records between are deleted, so it was reset.

        Args:
            position: before records are taken, even if there are none; None: not known.
        """
        if position is not None and self._taken_position is not None and position > self._taken_position:
            self.deleted.append(range(self._taken_position, position))

    def end_take(self, position: int | None) -> None:
        """Note the position after a take whose records were begun: what is below it need not be read again."""
        if position is not None:
            self._taken_position = position
            self.offsets.pass_to(position)

    def complete(self, offset: int) -> None:
        """Complete one record: its outputs are acknowledged."""
        self.offsets.finish(offset)
        self._announce()

    def complete_all(self, offsets: Iterable[int]) -> None:
        """Complete some records: their outputs are acknowledged."""
        self.offsets.finish_all(offsets)
        self._announce()

    def complete_through(self, offset: int) -> None:
        """Complete all records up to and including this one: their outputs are acknowledged."""
        self.offsets.finish_through(offset)
        self._announce()

    def complete_when(
        self, acknowledged: asyncio.Future[Any], offset: int, complete: Callable[[int], None] | None = None
    ) -> None:
        """Complete all records up to and including this one when Kafka has acknowledged their outputs.

        The records of earlier calls are completed first, whatever topics their outputs go to. If Kafka never
        acknowledges some outputs, nothing after them is completed: the member joins the group again, and they are read
        again from the committed offset.

        Args:
            acknowledged: of the outputs.
            offset: of the last record.
            complete: is called with the offset in place of `complete_through`.
        """
        self._outputs.append((acknowledged, offset, complete or self.complete_through))
        acknowledged.add_done_callback(self._on_acknowledged)

    def _on_acknowledged(self, ended_output: asyncio.Future[Any]) -> None:
        retrieve_error(ended_output)  # behind outputs that are lost nobody asks for it
        outputs = self._outputs
        while outputs and outputs[0][0].done():
            acknowledged, offset, complete = outputs[0]
            error = asyncio.CancelledError() if acknowledged.cancelled() else acknowledged.exception()
            if error is not None:
                self._lost = True
                self._completed.set()
                if not self._abandoned:
                    self.abandon()
                    self._fail(KafkaError(f"outputs of {self.topic}[{self.partition}] are lost: {error!r}"))
                return
            outputs.popleft()
            complete(offset)
        self._completed.set()

    async def outputs_acknowledged(self) -> None:
        """Wait until all outputs given to `complete_when` are acknowledged.

        Raises:
            Fenced: one of them never will be.
        """
        while self._outputs:
            if self._lost:
                raise Fenced(f"outputs of {self.topic}[{self.partition}] are lost")
            self._completed.clear()
            await self._completed.wait()

    def _announce(self) -> None:
        self._completed.set()
        if self._room is not None and self.offsets.pending < self._room[0]:
            (_, call), self._room = self._room, None
            call()

    def when_below(self, pending: int, call: Callable[[], None]) -> None:
        """Call once, as soon as fewer than `pending` records are incomplete; a later use replaces an earlier one."""
        self._room = pending, call

    def ensure_active(self) -> None:
        """Call before anything that others can see.

        Raises:
            Fenced: the partition is no longer assigned to this instance.
        """
        if not self.active:
            raise Fenced(f"{self.topic}[{self.partition}] is no longer assigned to this instance")

    def abandon(self) -> None:
        """Leave incomplete records to the next owner, which reads them again: draining does not wait for them.

        It waits for the outputs that were given to `complete_when`: the next owner may make other outputs.
        """
        self._abandoned = True
        self._completed.set()

    def make_void(self, error: KafkaError) -> None:
        """Commit no offset any more, and join the group again: the topic was deleted."""
        self.void = True
        self.revoke()
        self.abandon()
        self._fail(error)

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

    async def drain(self) -> None:
        """Wait until the running handler has ended and no record is incomplete, or the rest is abandoned or lost."""
        if self.task is not None:
            await asyncio.wait({self.task})
        while (self._outputs if self._abandoned else self.offsets.pending) and not self._lost:
            self._completed.clear()
            await self._completed.wait()
