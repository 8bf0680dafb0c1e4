"""One worker: starts its process, sends it data, and receives its answers."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.runtime.errors import HifiError, Misconfigured, Rejected
from hifi.runtime.process.user_code import public_variables
from hifi_normalize.functions.frames import CALL, HEADER, READY, REJECTED, RESULT, UNUSABLE, frame
from hifi_normalize.functions.loop_pauses import LoopPauses

_START_S: Final = 20.0
"""Longest time for starting Python and importing the function, seconds."""
_END_S: Final = 2.0
_MAX_ANSWER_BYTES: Final = MAX_RECORD_BYTES + 64 * 2**10
"""The worker refuses larger data itself: see `load_function`."""
_STARVED_SHARE: Final = 0.8
"""A deadline of which the worker got no CPU for this share is repeated."""
_MOST_WAITS: Final = 10
"""Deadlines for one answer at most."""


class WorkerFailed(HifiError):
    """The worker gave no answer: it was too slow, it ended, or its answer was invalid."""


class WorkerProcess:
    """A worker for one function. After `WorkerFailed` or `kill` the next `send` starts a new process.

    Args:
        path: `module:function`.
        memory_bytes: that it may allocate in addition to its memory at the start.
    """

    def __init__(self, path: str, memory_bytes: int) -> None:
        self._path = path
        self._memory_bytes = memory_bytes
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._starved_before_s = 0.0
        self._pauses = LoopPauses()
        self.sent_calls = 0
        """Number of calls sent to the process: the number of the next one."""
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A turn to start the worker, send calls and receive their answers; others wait meanwhile.

        If it ends with an error or is cancelled, the process ends: others would read the answers that are left.
        """
        async with self._lock:
            try:
                with self._pauses.measured():
                    yield
            except BaseException:
                self.kill()
                raise

    async def start(self) -> None:
        """Start the process unless it runs, and wait until it has imported the function.

        Raises:
            Misconfigured: the function cannot be used.
            WorkerFailed: it ended, or was not ready in time.
        """
        if self._process is not None:
            return
        await self.stop()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "hifi_normalize.functions.worker",
            self._path,
            str(self._memory_bytes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=public_variables(),
        )
        self.sent_calls = 0
        kind, _, content = await self._read(_START_S)
        if kind == UNUSABLE:
            self.kill()
            raise Misconfigured(content.decode("utf-8", "replace"))
        if kind != READY:
            raise self._failed("it did not start as a worker")

    def send(self, data: Iterable[bytes]) -> None:
        """Send the data of events to a started worker."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._starved_before_s = self.starved_s
        frames = [frame(CALL, event_data, self.sent_calls + index) for index, event_data in enumerate(data)]
        self.sent_calls += len(frames)
        self._process.stdin.write(b"".join(frames))

    async def receive(self, number: int, deadline_s: float) -> bytes | Rejected:
        """The answer for the next event that was sent.

        Args:
            number: of its call, see `sent_calls`.
            deadline_s: longest wait, seconds.

        Raises:
            WorkerFailed: there is none within the deadline, or there will be none.
        """
        kind, answered_number, content = await self._read(deadline_s)
        is_answer = answered_number == number % 2**32
        if kind == RESULT and is_answer:
            return content
        if kind != REJECTED or not is_answer:
            raise self._failed("it wrote to the pipe of its answers")
        reason, _, detail = content.decode("utf-8", "replace").partition("\0")
        return Rejected(reason, detail)

    def kill(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            self._killed.append(process)

    async def stop(self) -> None:
        """End the process, and wait until it and all earlier ones have ended."""
        self.kill()
        while self._killed:
            with contextlib.suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(
                    _END_S
                ):  # a process that the function started may keep the pipes open
                    await self._killed.pop().communicate()

    async def _read(self, deadline_s: float) -> tuple[bytes, int, bytes]:
        """Kind, number and content of the next message."""
        try:
            kind, number, length = HEADER.unpack(await self._read_exactly(HEADER.size, deadline_s))
            if length > _MAX_ANSWER_BYTES:
                raise self._failed(f"an answer is larger than {_MAX_ANSWER_BYTES:,} bytes")
            return kind, number, await self._read_exactly(length, deadline_s)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise self._failed("it ended the process, or was ended by its memory limit") from None

    async def _read_exactly(self, length: int, deadline_s: float) -> bytes:
        """Read bytes. Time in which the worker got no CPU, or normalize stood still, does not count to the deadline."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not length:
            return b""
        wait_s, paused_before_s = deadline_s, self.paused_s
        for _ in range(_MOST_WAITS):
            try:
                async with asyncio.timeout(wait_s):
                    return await self._process.stdout.readexactly(length)
            except TimeoutError:
                previous_starved_s, self._starved_before_s = self._starved_before_s, self.starved_s
                previous_paused_s, paused_before_s = paused_before_s, self.paused_s
                if self._starved_before_s - previous_starved_s >= deadline_s * _STARVED_SHARE:
                    wait_s = deadline_s
                elif paused_before_s > previous_paused_s:
                    wait_s = min(paused_before_s - previous_paused_s, deadline_s)
                else:
                    break
        raise self._failed(f"it took longer than {deadline_s:g} s")

    @property
    def starved_s(self) -> float:
        """Time for which the process could run but got no CPU, seconds; 0 where the kernel does not tell."""
        if self._process is None:
            return 0.0
        try:
            schedstat = Path(f"/proc/{self._process.pid}/schedstat").read_text("ascii")
            return int(schedstat.split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    @property
    def paused_s(self) -> float:
        """Time for which normalize itself stood still in turns of this worker, seconds."""
        return self._pauses.total_s

    def _failed(self, reason: str) -> WorkerFailed:
        self.kill()
        return WorkerFailed(reason)
