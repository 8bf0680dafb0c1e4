"""All lanes: one for each destination of each pipe, updated when a pipe changes."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection
from typing import Final

from hifi.pipe.model import Destination
from hifi.pipe.reader import declared_destination, reader
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi_egest.delivery.delivery import SourcePartition
from hifi_egest.lanes.cpu_saturation import CpuSaturation
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.resources import LaneResources

SWEEP_S: Final = 0.5
"""Time between two sweeps of all lanes, seconds."""
_RECENT_S: Final = 10.0
_CAPACITY_CHECK_S: Final = 0.05

logger = log.get(__name__)


class Lanes:
    """Provides the lane of each destination. Start before use, and stop at the end."""

    def __init__(
        self, registry: PipeRegistry, resources: LaneResources, rate_share: Callable[[], float]
    ) -> None:
        """Start without lanes; `start` opens them.

        Args:
            registry: of the pipes.
            resources: shared by the lanes.
            rate_share: returns the share of every destination's rate that this instance may use, from 0 to 1.
        """
        self._registry = registry
        self._resources = resources
        self._rate_share = rate_share
        self._lanes: dict[tuple[str, bytes], Lane] = {}
        self._read_elsewhere: set[tuple[str, bytes]] = set()
        """Pipe and destination of deliveries that another service reads."""
        self._cpu = CpuSaturation()
        self._with_capacity: list[Lane] = []
        self._capacity_checked_s = -math.inf
        self._pipes_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open a lane for every declared destination, and follow the changes of pipes."""
        self._registry.on_change(self._pipes_changed.set)
        await self._reconcile()
        self._tasks = [asyncio.create_task(self._follow_pipes()), asyncio.create_task(self._sweep_lanes())]

    async def stop(self) -> None:
        """Close all lanes, which are empty by now."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for lane in self._lanes.values():
            await lane.retire()

    def get(self, pipe: str, destination: bytes) -> Lane | None:
        """The lane of a destination; None if the pipe or the destination was deleted."""
        lane = self._lanes.get((pipe, destination))
        if lane is None and (pipe, destination) not in self._read_elsewhere:
            lane = self._open_lane(pipe, destination.decode("utf-8", "replace"))
        return lane

    def opened(self) -> Collection[Lane]:
        """The lanes of all destinations that were not deleted."""
        return self._lanes.values()

    def read_elsewhere(self, pipe: str, destination: bytes) -> bool:
        """Whether another service delivers to a destination for which `get` just found no lane."""
        return (pipe, destination) in self._read_elsewhere

    def may_wait(self, lane: Lane) -> bool:
        """Whether a delivery that does not fit in a lane waits, rather than going to the retrier."""
        now_s = monotonic_s()
        # With thousands of lanes this is not done for each delivery.
        if now_s - self._capacity_checked_s > _CAPACITY_CHECK_S:
            self._capacity_checked_s = now_s
            self._with_capacity = [
                candidate
                for candidate in self._lanes.values()
                if candidate.offered_s > now_s - _RECENT_S and candidate.has_capacity
            ]
        delays_others = any(candidate is not lane for candidate in self._with_capacity)
        return lane.may_wait(delays_others=delays_others, saturated=self._cpu.saturated())

    def revoke(self, partition: SourcePartition) -> None:
        """Drop or hand over the deliveries of a revoked partition in all lanes; requests in flight finish."""
        for lane in self._lanes.values():
            lane.revoke(partition)

    def _other_revisions(self, pipe: str, destination: str) -> dict[int, Destination]:
        """Revision to the destination as other revisions than the current one declare it."""
        declarations = {
            revision.number: revision.pipe.destination(destination)
            for revision in self._registry.in_use()
            if revision.pipe.pipe == pipe and not revision.current
        }
        return {
            number: declaration for number, declaration in declarations.items() if declaration is not None
        }

    def _open_lane(self, pipe: str, destination: str) -> Lane | None:
        declaration = declared_destination(self._registry, pipe, destination)
        if declaration is None:
            return None
        if reader(declaration) != "egest":
            self._read_elsewhere.add((pipe, destination.encode()))
            return None
        lane = Lane(pipe, declaration, self._resources, self._rate_share())
        lane.replace_revisions(self._other_revisions(pipe, destination))
        lane.hold(pipe_held=self._registry.unreadable(pipe) is not None)
        self._lanes[pipe, destination.encode()] = lane
        return lane

    async def _follow_pipes(self) -> None:
        while True:
            await self._pipes_changed.wait()
            self._pipes_changed.clear()
            try:
                await self._reconcile()
            except Exception:
                logger.exception("lanes-update-failed")

    async def _reconcile(self) -> None:
        self._read_elsewhere.clear()
        for (pipe, name), lane in list(self._lanes.items()):
            declaration = declared_destination(self._registry, pipe, name.decode())
            if declaration is not None and reader(declaration) == "egest":
                await lane.replace(declaration)
                lane.hold(pipe_held=self._registry.unreadable(pipe) is not None)
                for sender in lane.replace_revisions(self._other_revisions(pipe, name.decode())):
                    await sender.stop()
            else:
                del self._lanes[pipe, name]
                logger.info("lane-retired", pipe=pipe, destination=name.decode())
                await lane.retire()
        for revision in self._registry.in_use():
            pipe = revision.pipe.pipe
            for destination in revision.pipe.destinations:
                if (pipe, destination.name.encode()) not in self._lanes:
                    self._open_lane(pipe, destination.name)

    async def _sweep_lanes(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            rate_share = self._rate_share()
            for lane in list(self._lanes.values()):
                try:
                    lane.rate_limit.set_share(rate_share)
                    lane.sweep()
                except Exception:
                    logger.exception("sweep-failed", pipe=lane.pipe, destination=lane.destination.name)
