"""One instance of a service, started again whenever it dies, until it is stopped."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hifi.errors import HifiError, Misconfigured
from hifi_infra.mesh.health_probe import NO_ANSWER, STOPPED, Readiness, readiness
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import Place
from hifi_infra.ports import free_port, is_free
from hifi_infra.process.process import Process

BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0)
STEADY_S: Final = 60.0
"""Who lived so long has recovered: the next death begins with the shortest pause again."""
MISCONFIGURED: Final = 2
"""Exit status of a service whose settings or surroundings are wrong (see `hifi.service.run`)."""


class Instance:
    """A supervised process of a service.

    Args:
        place: which one it is, and its port.
        make: gives the process for a place; asked again at each start, since the port may have to change.
        journal: hears of deaths and restarts.
    """

    def __init__(self, place: Place, make: Callable[[Place], Process], journal: Journal) -> None:
        self.place = place
        self.process = make(place)
        self.readiness: Readiness = NO_ANSWER
        self.restarts = 0
        self.refused: str | None = None
        """Why the service would not run at all, while that is so."""
        self._make = make
        self._journal = journal
        self._keeper: asyncio.Task[None] | None = None
        self._earlier_cpu_s = 0.0
        self._stopping = False

    @property
    def name(self) -> str:
        """As in `normalize-2`."""
        return self.place.name

    @property
    def ready(self) -> bool:
        """It runs and said so when last asked."""
        return self.process.running and self.readiness.ready

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.process.log

    async def start(self) -> None:
        """Start it, and keep it running from now on."""
        await self.process.start()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def look(self) -> Readiness:
        """Ask how it is."""
        self.readiness = await readiness(self.place.port) if self.process.running else NO_ANSWER
        if self.readiness.ready:
            self.refused = None
        return self.readiness

    async def stop(self, grace_s: float) -> int:
        """Drain it and end it, by force after `grace_s` seconds. Returns its exit code."""
        self._stopping = True
        if self.process.running:
            code = await self.process.stop(grace_s)
            if code != 0:
                text = f"{self.name} ended with {told(code)} instead of 0"
                self._journal.note("drain-failed", text, bad=True)
        await self._let_go()
        return self.process.returncode or 0

    async def kill(self) -> None:
        """End it at once."""
        self._stopping = True
        if self.process.running:
            await self.process.kill()
        await self._let_go()

    def cpu_seconds(self) -> float:
        """Used by all its processes so far, with their descendants."""
        return self._earlier_cpu_s + self.process.cpu_seconds()

    def rss_bytes(self) -> int:
        """Resident memory now, with its descendants."""
        return self.process.rss_bytes()

    async def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        self.readiness = STOPPED

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            code = await self.process.wait()
            self.readiness = NO_ANSWER
            if self._stopping:
                return
            if time.monotonic() - began > STEADY_S:
                failures = 0
            pause_s = BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]
            self._tell(code, pause_s)
            failures += 1
            await asyncio.sleep(pause_s)
            while not await self._again():
                await asyncio.sleep(BACKOFF_S[-1])

    async def _again(self) -> bool:
        self._earlier_cpu_s += self.process.cpu_seconds()
        if not is_free(self.place.port):
            self.place = Place(self.place.service, self.place.number, free_port())
        self.process = self._make(self.place)
        try:
            await self.process.start()
        except (HifiError, OSError) as error:
            self._journal.note("start-failed", f"{self.name} cannot be started: {error}", bad=True)
            return False
        self.restarts += 1
        return True

    def _tell(self, code: int, pause_s: float) -> None:
        why = ""
        if code == MISCONFIGURED:
            self.refused = why = last_words(self.process)
        text = f"{self.name} ended with {told(code)}; it is started again in {pause_s:g} s"
        self._journal.note(
            "instance-died",
            f"{text}: {why}" if why else text,
            bad=True,
            instance=self.name,
            code=code,
            log=str(self.log),
        )

    def check(self) -> None:
        """Raises Misconfigured with the service's own words when it would not run at all."""
        if self.refused is not None:
            raise Misconfigured(f"{self.name} does not start: {self.refused}\nIts log is {self.log}")


def last_words(process: Process) -> str:
    """What a service that exits as misconfigured said: its last line and those that continue it."""
    lines = [line for line in process.tail(30).splitlines() if line.strip() and not line.startswith("{")]
    starts = [index for index, line in enumerate(lines) if line.startswith("hifi-")]
    words = lines[starts[-1] :] if starts else lines[-1:]
    return "\n".join(words) or "it said nothing"


def told(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
