"""Read events in a thread and group them into requests."""

import asyncio
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.event_files import FileEvent, UnreadableEvent

MAX_BYTES: Final = 1024 * 1024
"""Maximum size of a request."""
READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of the events read but not sent; a single larger one is read all the same."""
_EVENT_BYTES: Final = 200
"""Memory of an event beside its data, bytes."""
_RUN_ID_BYTES: Final = 8


@dataclass(slots=True)
class RequestBatch:
    """The events of one request, sent with the same Idempotency-Key until they are accepted."""

    key: str
    items: list[FileEvent] = field(default_factory=list)
    size_bytes: int = 0
    tries: int = 0
    """Requests that were sent with the key."""

    def body(self) -> bytes:
        """Return the events as JSON lines."""
        return b"\n".join(event.data for event in self.items)


def new_run_id() -> str:
    """A random name of a run, 16 characters."""
    return secrets.token_hex(_RUN_ID_BYTES)


class BatchReader:
    """Groups the events of a file into batches. A thread reads the file, so that a slow source does not block requests.

    Args:
        events: the events to read.
        run_id: name of this run, part of every key, without a period.
        max_events: maximum number of events in a batch.
        refuse: called with number and reason for each event that cannot be sent.
    """

    def __init__(
        self,
        events: Iterator[FileEvent | UnreadableEvent],
        run_id: str,
        *,
        max_events: int,
        refuse: Callable[[int, str], None],
    ) -> None:
        self._events = events
        self._run_id = run_id
        self._max_events = max_events
        self._refuse = refuse
        self._queue: asyncio.Queue[FileEvent | None] = asyncio.Queue()
        self._held_bytes = 0
        self._room = threading.Condition()
        self._batch_lock = asyncio.Lock()
        self._next: FileEvent | None = None
        self.failed: Exception | None = None
        """Why the file was not read to its end; the events before are returned all the same. HifiError, unless it is
        a defect of this program."""
        self._at_end = False

    def start(self) -> None:
        """Start reading. The thread ends with the source or with the process."""
        thread = threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True)
        thread.start()

    async def batch(self) -> RequestBatch | None:
        """Wait for an event and return it with all others that have been read; None at the end: see `failed`."""
        async with self._batch_lock:
            first_event = self._next or await self._take()
            self._next = None
            if first_event is None:
                return None
            batch = RequestBatch(
                f"{self._run_id}-{first_event.number}", [first_event], len(first_event.data) + 1
            )
            while len(batch.items) < self._max_events and not self._queue.empty():
                event = await self._take()
                if event is None:
                    break
                size = len(event.data) + 1
                if batch.size_bytes + size > MAX_BYTES:
                    self._next = event
                    break
                batch.items.append(event)
                batch.size_bytes += size
            return batch

    async def _take(self) -> FileEvent | None:
        if self._at_end:
            return None
        event = await self._queue.get()
        if event is None:
            self._at_end = True
            return None
        with self._room:
            self._held_bytes -= len(event.data) + _EVENT_BYTES
            self._room.notify()
        return event

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._read_events(loop)
        except OSError as error:
            self.failed = Misconfigured(f"the file cannot be read: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - the command reports it; without an end of the events it would wait
            self.failed = error
        _call(loop, self._queue.put_nowait, None)

    def _read_events(self, loop: asyncio.AbstractEventLoop) -> None:
        for event in self._events:
            if isinstance(event, UnreadableEvent):
                is_running = _call(loop, self._refuse, event.number, str(event))
            else:
                size = len(event.data) + _EVENT_BYTES
                with self._room:
                    while self._held_bytes and self._held_bytes + size > READ_AHEAD_BYTES:
                        self._room.wait()
                    self._held_bytes += size
                is_running = _call(loop, self._queue.put_nowait, event)
            if not is_running:
                return


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> bool:
    """Call a function in the thread of the event loop; False: the loop is closed, as the command has ended."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        return False
    return True
