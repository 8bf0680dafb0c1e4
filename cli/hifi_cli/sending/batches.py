"""Groups items into requests as they are read."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hifi.errors import HifiError, Misconfigured
from hifi_cli.sending.event_files import FileEvent, UnreadableEvent

MOST_BYTES: Final = 1024 * 1024
AHEAD: Final = 20_000
"""Items read ahead of what is sent."""


@dataclass(slots=True)
class RequestBatch:
    """Items of one request, repeated under the same key as often as it takes."""

    key: str
    items: list[FileEvent] = field(default_factory=list)
    size_bytes: int = 0
    tries: int = 0

    def body(self) -> bytes:
        """As JSON lines."""
        return b"\n".join(item.data for item in self.items)


class BatchReader:
    """Reads in a thread of its own, so that a slow source holds up nothing, and gives batches of what is there.

    Args:
        found: what is read.
        run: name of this run, part of every key.
        most: items in one batch.
        refuse: hears of items that cannot be sent: number and reason.
    """

    def __init__(
        self,
        found: Iterator[FileEvent | UnreadableEvent],
        run: str,
        *,
        most: int,
        refuse: Callable[[int, str], None],
    ) -> None:
        self._found = found
        self._run = run
        self._most = most
        self._refuse = refuse
        self._queue: asyncio.Queue[FileEvent | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self._turn = asyncio.Lock()
        self._next: FileEvent | None = None
        self._failed: Exception | None = None
        self._ended = False

    def start(self) -> None:
        """Begin to read. The thread ends with the source, or with the process."""
        thread = threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True)
        thread.start()

    async def batch(self) -> RequestBatch | None:
        """What is there, once there is something; None at the end.

        Raises:
            HifiError: the source is not what it is said to be.
        """
        async with self._turn:
            first = self._next or await self._take()
            self._next = None
            if first is None:
                return None
            batch = RequestBatch(f"{self._run}-{first.number}", [first], len(first.data) + 1)
            while len(batch.items) < self._most and not self._queue.empty():
                item = await self._take()
                if item is None:
                    break
                size = len(item.data) + 1
                if batch.size_bytes + size > MOST_BYTES:
                    self._next = item
                    break
                batch.items.append(item)
                batch.size_bytes += size
            return batch

    async def _take(self) -> FileEvent | None:
        if self._ended:
            return None
        item = await self._queue.get()
        if item is None:
            self._ended = True
            if self._failed is not None:
                raise self._failed
            return None
        self._room.release()
        return item

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for item in self._found:
                if isinstance(item, UnreadableEvent):
                    loop.call_soon_threadsafe(self._refuse, item.number, str(item))
                    continue
                self._room.acquire()
                loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except HifiError as error:
            self._failed = error
        except OSError as error:
            self._failed = Misconfigured(f"the file cannot be read: {error.strerror}")
        except RuntimeError:  # the loop is closed: nobody waits any more
            return
        try:
            loop.call_soon_threadsafe(self._queue.put_nowait, None)
        except RuntimeError:
            return
