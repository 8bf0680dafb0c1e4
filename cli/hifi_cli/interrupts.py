"""Ctrl-C in stages: the first one ends what runs in order, the second one at once."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal ended the wait."""


class Interrupts:
    """The signals that came while `caught` was on."""

    def __init__(self) -> None:
        self.count = 0
        self._stages = [asyncio.Event(), asyncio.Event()]

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and SIGHUP while the block runs."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._take)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def unless(self, work: Coroutine[Any, Any, T], *, stage: int = 1) -> T:
        """Do the work; once `stage` signals have come, cancel it and wait for its own cleaning up.

        Raises:
            Interrupted: it was cancelled.
        """
        task = asyncio.ensure_future(work)
        signalled = asyncio.ensure_future(self._stages[stage - 1].wait())
        try:
            await asyncio.wait({task, signalled}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise Interrupted
        finally:
            signalled.cancel()
            if not task.done():
                task.cancel()

    async def wait(self) -> None:
        """Until the first signal."""
        await self._stages[0].wait()

    def _take(self) -> None:
        self.count += 1
        for stage in self._stages[: self.count]:
            stage.set()
