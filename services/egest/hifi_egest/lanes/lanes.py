"""All lanes, one for each destination of each pipe, kept in step with the pipes in force."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Final

from hifi import log
from hifi.clock import monotonic_s
from hifi.pipe.registry import PipeRegistry
from hifi_egest.delivery.partition import Partition
from hifi_egest.lanes.cpu_saturation import Load
from hifi_egest.lanes.lane import Lane, Tools

SWEEP_S: Final = 0.5
_LATELY_S: Final = 10.0
_LOOK_S: Final = 0.05

logger = log.get(__name__)


class Lanes:
    """Start them before use, stop them in the end."""

    def __init__(self, registry: PipeRegistry, tools: Tools, share: Callable[[], float]) -> None:
        """Begin without lanes; `start` makes them.

        Args:
            registry: of the pipes.
            tools: shared by the lanes.
            share: of every rate that this instance may use now, from 0 to 1.
        """
        self._registry = registry
        self._tools = tools
        self._share = share
        self._lanes: dict[tuple[bytes, bytes], Lane] = {}
        self._load = Load()
        self._starving: list[Lane] = []
        self._looked_s = -math.inf
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Make a lane for every destination there is, and follow the pipes."""
        self._registry.on_change(self._changed.set)
        await self._reconcile()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._sweep())]

    async def stop(self) -> None:
        """Stop following; nothing is in the lanes any more."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for lane in self._lanes.values():
            await lane.retire()

    def get(self, pipe: bytes, destination: bytes) -> Lane | None:
        """The lane of a destination; None: the pipe or the destination is no more."""
        lane = self._lanes.get((pipe, destination))
        if lane is None:
            self._create(pipe.decode("utf-8", "replace"), destination.decode("utf-8", "replace"))
            lane = self._lanes.get((pipe, destination))
        return lane

    def may_wait(self, lane: Lane) -> bool:
        """Whether what does not fit in a lane should wait a moment rather than go to the retrier."""
        now_s = monotonic_s()
        if now_s - self._looked_s > _LOOK_S:  # with thousands of lanes not for each delivery
            self._looked_s = now_s
            lately = (one for one in self._lanes.values() if one.offered_s > now_s - _LATELY_S)
            self._starving = [one for one in lately if one.starves]
        alone = not any(one is not lane for one in self._starving)
        return lane.may_wait(alone=alone, saturated=self._load.saturated())

    def drop(self, partition: Partition) -> None:
        """A partition is given up."""
        for lane in self._lanes.values():
            lane.drop(partition)

    def _create(self, pipe: str, destination: str) -> None:
        known = self._registry.get(pipe)
        declared = known.pipe.destination(destination) if known is not None else None
        if declared is not None:
            self._lanes[pipe.encode(), destination.encode()] = Lane(
                pipe, declared, self._tools, self._share()
            )

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._reconcile()
            except Exception:
                logger.exception("lanes-not-in-step")

    async def _reconcile(self) -> None:
        for (pipe, name), lane in list(self._lanes.items()):
            known = self._registry.get(pipe.decode())
            declared = known.pipe.destination(name.decode()) if known is not None else None
            if declared is not None:
                await lane.replace(declared)
            else:
                del self._lanes[pipe, name]
                logger.info("lane-retired", pipe=pipe.decode(), destination=name.decode())
                await lane.retire()
        for known in self._registry.all():
            for destination in known.pipe.destinations:
                if (known.pipe.pipe.encode(), destination.name.encode()) not in self._lanes:
                    self._create(known.pipe.pipe, destination.name)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            share = self._share()
            for lane in list(self._lanes.values()):
                try:
                    lane.share(share)
                    lane.sweep()
                except Exception:
                    logger.exception("sweep-failed", pipe=lane.pipe, destination=lane.destination.name)
