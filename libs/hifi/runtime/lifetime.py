"""When a service, or a part that ends before it, has to stop, and its health."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from hifi.runtime.clock import wait_at_most
from hifi.runtime.health import Health


class Lifetime:
    """Health and end of a service or of a part of it.

    Args:
        health: where its conditions and warnings are shown.
    """

    def __init__(self, health: Health) -> None:
        self.health = health
        self.stopping = asyncio.Event()
        """Set when it has to end: begin nothing new, finish what runs, commit, leave."""
        self.error: BaseException | None = None
        """Because of which it has to end; None: it was asked to."""

    def stop(self) -> None:
        """Begin to drain; calling it again does nothing."""
        self.stopping.set()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error; only the first one is kept."""
        if self.error is None:
            self.error = error
        self.stop()

    def watch(self, task: "asyncio.Future[Any]") -> None:
        """Fail when a task or a future ends with an error."""
        task.add_done_callback(self._on_end)

    def _on_end(self, task: "asyncio.Future[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def unless_stopped(self, work: Awaitable[object]) -> bool:
        """Wait for something that may take long, such as Kafka coming up; False: the stop came first.

        What is awaited is cancelled at the stop. Its exception is raised here.
        """
        work_task, stop_task = asyncio.ensure_future(work), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({work_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            if not work_task.done():
                return False
            work_task.result()
            return True
        finally:
            for task in (work_task, stop_task):
                task.cancel()
            await asyncio.wait({work_task, stop_task})

    async def sleep(self, seconds: float) -> None:
        """Sleep, at most until the stop."""
        await wait_at_most(self.stopping, seconds)
