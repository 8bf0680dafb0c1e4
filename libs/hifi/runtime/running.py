"""Start the parts of a service in order, run, and stop them in reverse: how every service begins and ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Protocol

from hifi.runtime.lifetime import Lifetime


class Client(Protocol):
    """A part that what comes after it needs.

    If it has a task in the background, its attribute `task` is this task: the service ends with the task's error.
    """

    async def start(self) -> None:
        """Begin; may wait for as long as what it needs is away, while the service is not ready."""

    async def stop(self) -> object:
        """Finish and disconnect; also called when `start` was cancelled or has failed."""


class StoppedBeforeStart(Exception):
    """The stop came before all clients had started."""


@contextlib.asynccontextmanager
async def running(
    lifetime: Lifetime,
    *clients: Client,
    background_work: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> AsyncIterator[None]:
    """Start clients in order, run the block, and stop them in reverse.

    Args:
        lifetime: its stop cancels a start; it gets the error of a task that fails, and stops then.
        clients: in the order of their start.
        background_work: each runs in a task from when all clients have started until the end of the block.

    Raises:
        StoppedBeforeStart: the stop came first; what had started is stopped.
        Exception: as a task in the background has raised it, after everything is stopped.
    """
    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            stack.push_async_callback(client.stop)
            if not await lifetime.unless_stopped(client.start()) or lifetime.stopping.is_set():
                raise lifetime.error or StoppedBeforeStart
            task: asyncio.Task[Any] | None = getattr(client, "task", None)
            if task is not None:
                lifetime.watch(task)
        for work in background_work:
            task = asyncio.create_task(work())
            lifetime.watch(task)
            stack.push_async_callback(cancel, task)
        yield
    if lifetime.error is not None:
        raise lifetime.error


async def cancel(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait until it has ended, whatever it raises: an error of it was reported to the lifetime."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
