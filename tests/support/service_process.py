"""A service of a stream as a process that a test kills, freezes and stops."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.stream_process import free_port, readyz, start_program

WITHIN_S = 400


class ServiceProcess:
    """One process after another with the same log.

    Attributes:
        log: what they write.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self, arguments: Sequence[object], kafka: str, stream: str, **settings: object) -> None:
        """Start Python with these arguments and settings of a service."""
        self._port = free_port()
        program = [sys.executable, *map(str, arguments)]
        self._process = start_program(program, kafka, stream, self._port, self.log, **settings)

    def require_running(self) -> None:
        """Fail unless the process runs."""
        assert self._process is not None
        assert self._process.poll() is None, self.log_end()

    def log_end(self) -> str:
        """The last lines of the log."""
        return self.log.read_text()[-6000:]

    async def until_logged(self, event: str, times: int = 1) -> None:
        """Wait until the log has an event so often, while the process runs."""
        async with asyncio.timeout(WITHIN_S):
            while self.log.read_text().count(event) < times:
                self.require_running()
                await asyncio.sleep(0.1)

    async def killed(self) -> None:
        """Wait until the process has killed itself."""
        assert self._process is not None
        async with asyncio.timeout(WITHIN_S):
            while self._process.poll() is None:
                await asyncio.sleep(0.1)
        assert self._process.returncode == -signal.SIGKILL, self.log_end()

    def kill(self) -> None:
        """Kill the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def wake(self) -> None:
        """Let a frozen process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process in order, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.wake()
            self._process.terminate()
            assert self._process.wait(60) == 0, self.log_end()

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /readyz."""
        return readyz(self._port)
