"""Handle Ctrl-C in two steps: the first signal shuts down gracefully, the second ends everything immediately."""

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal cancelled the coroutine."""


class Interrupts:
    """Counts the signals received while `handle_signals` is active."""

    def __init__(self) -> None:
        self.count = 0
        self._received = [asyncio.Event(), asyncio.Event()]

    @contextlib.contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle SIGINT, SIGTERM and SIGHUP inside the block instead of letting them end the process."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def run(self, coroutine: Coroutine[Any, Any, T], *, until_signal: int = 1) -> T:
        """Run a coroutine; on the signal with number `until_signal` (1 or 2), cancel it and wait for its clean-up.

        Raises:
            Interrupted: the coroutine was cancelled.
        """
        task = asyncio.ensure_future(coroutine)
        signal_task = asyncio.ensure_future(self._received[until_signal - 1].wait())
        try:
            await asyncio.wait({task, signal_task}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            raise Interrupted
        finally:
            signal_task.cancel()
            if not task.done():
                task.cancel()

    async def wait_for_signal(self) -> None:
        """Return on the first signal."""
        await self._received[0].wait()

    def _on_signal(self) -> None:
        self.count += 1
        for event in self._received[: self.count]:
            event.set()
