"""One instance of a service as a child process that is started again whenever it ends, until it is stopped."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_infra.mesh.health_probe import NO_ANSWER, STOPPED, Readiness, readiness
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import InstanceSpec
from hifi_infra.ports import free_port, is_free
from hifi_infra.process.process import Process

BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0)
STABLE_S: Final = 60.0
"""A process that ran this long counts as recovered: its next restart begins with the shortest pause again."""
MISCONFIGURED: Final = 2
"""Exit status of a service whose settings or environment are wrong (see `hifi.runtime.service.run`)."""


class Instance:
    """A supervised process of a service.

    Args:
        spec: which instance it is, and its port.
        make_process: makes the process of a spec; called at each start, since the port may have to change.
        journal: gets deaths and restarts.
        on_death: called with the spec when no process of the instance runs any more, before the next one starts.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        make_process: Callable[[InstanceSpec], Process],
        journal: Journal,
        on_death: Callable[[InstanceSpec], Awaitable[None]],
    ) -> None:
        self.spec = spec
        self.process = make_process(spec)
        self.readiness: Readiness = NO_ANSWER
        self.restarts = 0
        self.ready_after_s: float | None = None
        """Seconds from the start of its process until it was first ready; None: it was not ready yet."""
        self.misconfiguration: str | None = None
        """The service's own message while it exits as misconfigured."""
        self._make_process = make_process
        self._journal = journal
        self._on_death = on_death
        self._supervision: asyncio.Task[None] | None = None
        self._earlier_cpu_s = 0.0
        self._started_s = 0.0
        self._stopping = False

    @property
    def name(self) -> str:
        """Name of the instance, such as `normalize-2`."""
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Whether it runs and was ready when last probed."""
        return self.process.running and self.readiness.ready

    @property
    def supervised(self) -> bool:
        """Whether it was started, so that it is started again whenever it ends."""
        return self._supervision is not None

    @property
    def log(self) -> Path:
        """The file with its output."""
        return self.process.log

    async def start(self) -> None:
        """Start it, and restart it from now on whenever it ends."""
        self._started_s = time.monotonic()
        await self.process.start()
        self._supervision = asyncio.create_task(self._supervise(), name=f"supervise {self.name}")

    async def probe(self) -> Readiness:
        """Ask for its readiness and keep the answer."""
        self.readiness = await readiness(self.spec.port) if self.process.running else NO_ANSWER
        if self.readiness.ready:
            self.misconfiguration = None
            if self.ready_after_s is None:
                self.ready_after_s = time.monotonic() - self._started_s
        return self.readiness

    async def stop(self, grace_s: float) -> int:
        """Drain and end it; kill it after `grace_s` seconds. Returns its exit code."""
        self._stopping = True
        if self.process.running:
            code = await self.process.stop(grace_s)
            if code != 0:
                text = f"{self.name} ended with {exit_text(code)} instead of 0"
                self._journal.add("drain-failed", text, bad=True)
        await self._end_supervision()
        return self.process.returncode or 0

    async def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._stopping = True
        if self.process.running:
            await self.process.kill()
        await self._end_supervision()

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far, descendants included, in seconds."""
        return self._earlier_cpu_s + self.process.cpu_seconds()

    def rss_bytes(self) -> int:
        """Resident memory of its process now, descendants included."""
        return self.process.rss_bytes()

    def raise_if_misconfigured(self) -> None:
        """Raise Misconfigured with the service's own message while it exits as misconfigured."""
        if self.misconfiguration is not None:
            raise Misconfigured(f"{self.name} does not start: {self.misconfiguration}\nIts log is {self.log}")

    async def _end_supervision(self) -> None:
        if self._supervision is not None:
            self._supervision.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervision
            self._supervision = None
        self.readiness = STOPPED

    async def _supervise(self) -> None:
        failures = 0
        while True:
            began_s = time.monotonic()
            code = await self.process.wait()
            self.readiness = NO_ANSWER
            if self._stopping:
                return
            if time.monotonic() - began_s > STABLE_S:
                failures = 0
            pause_s = backoff_s(failures, BACKOFF_S)
            self._report_death(code, pause_s)
            failures += 1
            if self.process.group_ended:
                await asyncio.gather(self._on_death(self.spec), asyncio.sleep(pause_s))
            else:  # a process that the kernel cannot end yet may still write
                await asyncio.sleep(pause_s)
            while not await self._restart():
                await asyncio.sleep(BACKOFF_S[-1])

    async def _restart(self) -> bool:
        self._earlier_cpu_s += self.process.cpu_seconds()
        if not is_free(self.spec.port):
            self.spec = replace(self.spec, port=free_port())
        self.process = self._make_process(self.spec)
        self._started_s, self.ready_after_s = time.monotonic(), None
        try:
            await self.process.start()
        except (HifiError, OSError) as error:
            self._journal.add("start-failed", f"{self.name} cannot be started: {error}", bad=True)
            return False
        self.restarts += 1
        return True

    def _report_death(self, code: int, pause_s: float) -> None:
        message = ""
        if code == MISCONFIGURED:
            self.misconfiguration = message = error_message(self.process)
        text = f"{self.name} ended with {exit_text(code)}; it is started again in {pause_s:g} s"
        self._journal.add(
            "instance-died",
            f"{text}: {message}" if message else text,
            bad=True,
            instance=self.name,
            code=code,
            log=str(self.log),
        )


def error_message(process: Process) -> str:
    """The message of a service that exited as misconfigured: the last line that starts with `hifi-`, to the end."""
    lines = [line for line in process.tail(30).splitlines() if line.strip() and not line.startswith("{")]
    starts = [index for index, line in enumerate(lines) if line.startswith("hifi-")]
    message = lines[starts[-1] :] if starts else lines[-1:]
    return "\n".join(message) or "it printed no message"


def exit_text(code: int) -> str:
    """An exit code as text: `status 1` or `SIGKILL`."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
