"""The mesh, its destination and a sender at work together: started, given a load, and waited for."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.errors import Retryable
from hifi.pipe.model import Pipe
from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.verify import Books, Sent, Verdict
from hifi_cli.demo.workspace import Stage
from hifi_cli.mesh_state.backlog import backlog
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.process.process import Process

READY_S: Final = 300.0
QUIET_S: Final = 60.0
"""Nothing new arrived for so long although something is missing: it is given up as lost."""
LATE_S: Final = 1.0
"""Time for duplicates to arrive after everything has."""
LOOK_S: Final = 0.25


@dataclass(slots=True)
class Progress:
    """How far a run is, for whoever shows it."""

    phase: str = "writing the flights and their lookups"
    total: int = 0
    sent: int = 0
    arrived: int = 0
    missing: int = 0


@dataclass(slots=True)
class Scene:
    """Everything that runs. Whatever happens, `kill` leaves nothing running."""

    stage: Stage
    mesh: Mesh
    progress: Progress = field(default_factory=Progress)
    destination: Process | None = None
    sender: Process | None = None

    async def start_destination(self) -> Process:
        """Start the destination alone; gives its process.

        Raises:
            HifiError: it did not start.
        """
        self.destination = self.stage.destination()
        await self.destination.start()
        return self.destination

    async def start(self, shape: Callable[[list[Pipe]], list[Pipe]] = list) -> None:
        """Start destination and mesh with the stage's pipes, changed by `shape`; returns once all is ready.

        Raises:
            HifiError: something did not start.
        """
        pipes = shape(await asyncio.to_thread(self.stage.pipes))
        if self.destination is None:
            await self.start_destination()
        await self.mesh.start(pipes)
        await self.mesh.wait_ready(READY_S)
        await self.stage.wait_for_destination()

    async def send(self, rate: float, batch: int = 1, look_s: float = LOOK_S) -> Process:
        """Send what the stage has written; gives the sender's process, which has ended.

        Raises:
            Retryable: the sender or the destination failed.
        """
        self.progress.phase = "sending"
        self.sender = sender = self.stage.sender(rate, batch)
        await sender.start()
        while sender.running:
            await self.count()
            self.progress.sent = min(self.progress.total, _lines(self.stage.sender_books))
            await asyncio.sleep(look_s)
        if sender.returncode != 0:
            raise Retryable(f"the sender failed; its log {sender.log} ends with:\n{sender.tail(5)}")
        self.progress.sent = self.progress.total
        return sender

    async def wait_for_the_rest(
        self, arrivals: Books, books: Mapping[str, Sent], expected: Mapping[str, Deliveries]
    ) -> Verdict:
        """Judge every arrival until all that was accepted is there, or nothing comes any more.

        Raises:
            Retryable: the destination failed.
        """
        self.progress.phase = "waiting for the rest"
        verdict = Verdict()
        missing = {(path, name) for name, one in books.items() if one.accepted for path in expected[name]}
        last_s = time.monotonic()
        while missing and time.monotonic() - last_s < QUIET_S:
            await self.count()
            if await asyncio.to_thread(_judge, arrivals, expected, verdict):
                last_s = time.monotonic()
                missing -= verdict.arrived.keys()
            self.progress.missing = len(missing)
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(LATE_S)
        await self.count()
        await asyncio.to_thread(_judge, arrivals, expected, verdict)
        self.progress.missing = 0
        return verdict

    async def count(self) -> None:
        """Ask the destination how much has arrived, which also brings its books to the disk.

        Raises:
            Retryable: it has ended.
        """
        try:
            self.progress.arrived = await self.stage.counts()
        except OSError as error:  # on a machine that is very busy; only its death is a failure
            destination = self.destination
            if destination is None or not destination.running:
                raise Retryable("the destination ended; its log is in the folder `logs`") from error

    async def waiting(self) -> dict[str, int]:
        """Service to the records that it has still to read.

        Raises:
            Retryable: Kafka does not answer.
        """
        return await backlog(self.mesh.bootstrap, self.mesh.topics)

    async def kill(self) -> None:
        """End every process at once."""
        await self._kill_outside()
        await self.mesh.kill()

    async def stop(self) -> None:
        """End every process in order."""
        await self.mesh.stop()
        await self._kill_outside()

    async def _kill_outside(self) -> None:
        outside = [one for one in (self.sender, self.destination) if one is not None and one.running]
        await asyncio.gather(*(process.kill() for process in outside))


def _judge(arrivals: Books, expected: Mapping[str, Deliveries], verdict: Verdict) -> int:
    count = 0
    for arrival in arrivals.read():
        verdict.take(arrival, expected.get(arrival.id))
        count += 1
    return count


def _lines(file: Any) -> int:
    try:
        return int(file.read_bytes().count(b"\n"))
    except FileNotFoundError:
        return 0
