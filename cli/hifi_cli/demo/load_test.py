"""Run a mesh with a sender and a destination: start it, send a load, and wait until everything has arrived."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.pipe.model import Pipe
from hifi.runtime.errors import Retryable
from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.sender import CONNECTIONS
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent
from hifi_cli.demo.workspace import Workspace
from hifi_infra.kafka.backlog import read_backlog
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.process.process import Process

READY_S: Final = 300.0
QUIET_S: Final = 60.0
"""Deliveries still missing after this long without any arrival count as lost."""
LATE_S: Final = 1.0
"""How long to wait for duplicates after everything has arrived."""
POLL_S: Final = 0.25


@dataclass(slots=True)
class RunProgress:
    """Progress of a load test, for display."""

    phase: str = "writing flights and lookups"
    total: int = 0
    sent: int = 0
    arrived: int = 0
    missing: int = 0


@dataclass(slots=True)
class LoadProcesses:
    """A sender and a destination. `kill_outside` ends both."""

    workspace: Workspace
    progress: RunProgress = field(default_factory=RunProgress, kw_only=True)
    destination: Process | None = field(default=None, kw_only=True)
    sender: Process | None = field(default=None, kw_only=True)

    async def start_destination(self) -> Process:
        """Start the destination and return its process.

        Raises:
            HifiError: it did not start.
        """
        self.destination = self.workspace.destination()
        await self.destination.start()
        return self.destination

    async def send(
        self, rate: float, batch: int = 1, poll_s: float = POLL_S, connections: int = CONNECTIONS
    ) -> Process:
        """Send the events of the workspace; return the process of the sender, which has ended.

        Args:
            rate: events a second.
            batch: events in a request.
            poll_s: time between two looks at the progress, seconds.
            connections: of the sender, at most.

        Raises:
            Retryable: the sender or the destination failed.
        """
        self.progress.phase = "sending"
        self.sender = sender = self.workspace.sender(rate, batch, connections)
        await sender.start()
        while sender.running:
            await self.count()
            self.progress.sent = min(self.progress.total, _count_lines(self.workspace.send_log))
            await asyncio.sleep(poll_s)
        if sender.returncode != 0:
            raise Retryable(f"the sender failed; end of its log {sender.log}:\n{sender.tail(5)}")
        self.progress.sent = self.progress.total
        return sender

    async def wait_for_arrivals(
        self,
        arrivals: RequestLogReader,
        sent_events: Mapping[str, SentEvent],
        expected: Mapping[str, Deliveries],
    ) -> Comparison:
        """Compare arrivals with what is expected until every accepted event has arrived, or none arrives for 60 s.

        Raises:
            Retryable: the destination failed.
        """
        self.progress.phase = "waiting for the remaining deliveries"
        comparison = Comparison()
        missing_deliveries = {
            (path, name)
            for name, request in sent_events.items()
            if request.accepted
            for path in expected[name]
        }
        last_s = time.monotonic()
        while missing_deliveries and time.monotonic() - last_s < QUIET_S:
            await self.count()
            if await asyncio.to_thread(_compare, arrivals, expected, comparison):
                last_s = time.monotonic()
                missing_deliveries -= comparison.arrived.keys()
            self.progress.missing = len(missing_deliveries)
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(LATE_S)
        await self.count()
        await asyncio.to_thread(_compare, arrivals, expected, comparison)
        self.progress.missing = 0
        return comparison

    async def count(self) -> None:
        """Read the number of arrivals from the destination, which also makes it write its request log to disk.

        Raises:
            Retryable: the destination has ended.
        """
        try:
            self.progress.arrived = await self.workspace.counts()
        except OSError as error:  # it may be slow on a busy machine; only its end is a failure
            destination = self.destination
            if destination is None or not destination.running:
                raise Retryable("the destination has ended; see its log in the folder `logs`") from error

    async def kill_outside(self) -> None:
        """End sender and destination immediately."""
        processes = [
            process for process in (self.sender, self.destination) if process is not None and process.running
        ]
        await asyncio.gather(*(process.kill() for process in processes))


@dataclass(slots=True)
class LoadTest(LoadProcesses):
    """A mesh with its sender and destination. `kill` always ends all of their processes."""

    mesh: Mesh

    async def start(self, shape: Callable[[list[Pipe]], list[Pipe]] = list) -> None:
        """Start destination and mesh with the pipes of the workspace, modified by `shape`; return when all are ready.

        Raises:
            HifiError: a process did not start.
        """
        pipes = shape(await asyncio.to_thread(self.workspace.pipes))
        if self.destination is None:
            await self.start_destination()
        await self.mesh.start(pipes)
        await self.mesh.wait_ready(READY_S)
        await self.workspace.wait_for_destination()

    async def waiting(self) -> dict[str, int]:
        """Return the consumer backlog of each service, in records.

        Raises:
            Retryable: Kafka does not answer.
        """
        return (await read_backlog(self.mesh.bootstrap, self.mesh.topics)).waiting

    async def kill(self) -> None:
        """End all processes immediately."""
        await self.kill_outside()
        await self.mesh.kill()

    async def stop(self) -> None:
        """End all processes gracefully."""
        await self.mesh.stop()
        await self.kill_outside()


def _compare(arrivals: RequestLogReader, expected: Mapping[str, Deliveries], comparison: Comparison) -> int:
    count = 0
    for arrival in arrivals.read():
        comparison.add(arrival, expected.get(arrival.id))
        count += 1
    return count


def _count_lines(file: Any) -> int:
    try:
        return int(file.read_bytes().count(b"\n"))
    except FileNotFoundError:
        return 0


@dataclass(slots=True)
class MeshRun:
    """One run of a demo on a mesh. `kill` always ends all of its processes.

    Attributes:
        load_test: with the mesh.
    """

    load_test: LoadTest

    @property
    def workspace(self) -> Workspace:
        """The files and processes besides the mesh."""
        return self.load_test.workspace

    @property
    def mesh(self) -> Mesh:
        """The mesh under test."""
        return self.load_test.mesh

    async def kill(self) -> None:
        """End all processes immediately."""
        await self.load_test.kill()

    async def stop(self) -> None:
        """End all processes gracefully."""
        await self.load_test.stop()
