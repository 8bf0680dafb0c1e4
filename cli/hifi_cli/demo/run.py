"""One run of the demo: start, send, wait for the rest, judge."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.errors import Retryable
from hifi_cli.demo import hops
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.report import Run, report
from hifi_cli.demo.stage import Stage
from hifi_cli.demo.verify import Books, Sent, Verdict, sent
from hifi_infra.mesh import Mesh
from hifi_infra.process import Process

READY_S: Final = 300.0
QUIET_S: Final = 60.0
"""Nothing new arrived for so long although something is missing: it is given up as lost."""
LATE_S: Final = 1.0
"""Time for duplicates to arrive after everything has."""
LOOK_S: Final = 0.25
MEASURE_S: Final = 2.0


@dataclass(slots=True)
class Progress:
    """How far a run is, for whoever shows it."""

    phase: str = "writing the flights and their lookups"
    total: int = 0
    sent: int = 0
    arrived: int = 0
    missing: int = 0


@dataclass(slots=True)
class Demo:
    """A run with everything that belongs to it. Whatever happens, `kill` leaves nothing running."""

    stage: Stage
    mesh: Mesh
    rate: float
    seconds: float
    progress: Progress = field(default_factory=Progress)
    outside: list[Process] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        """Do it all; gives the report.

        Raises:
            HifiError: the mesh did not start, or a part of the demo failed.
        """
        self.progress.total = max(1, round(self.rate * self.seconds))
        began_s = time.monotonic()
        rows, _ = await asyncio.gather(
            asyncio.to_thread(self.stage.write_events, self.progress.total), self._start()
        )
        start_seconds = time.monotonic() - began_s
        marks = await hops.marks(self.mesh.bootstrap, self.mesh.topics)
        cpu_before = self.mesh.cpu_seconds()
        memory: dict[str, int] = {}
        measuring = asyncio.create_task(self._measure(memory))
        began_s = time.monotonic()
        try:
            await self._send()
            books = sent(self.stage.sender_books)
            expected = await asyncio.to_thread(self._expect, rows)
            verdict = await self._wait_for_the_rest(books, expected)
        finally:
            measuring.cancel()
        seconds = time.monotonic() - began_s
        cpu = {name: used - cpu_before.get(name, 0) for name, used in self.mesh.cpu_seconds().items()}
        self.progress.phase = "reading the topics"
        found = await hops.read(self.mesh.bootstrap, self.mesh.topics, marks)
        run = Run(
            sent=books,
            expected=expected,
            verdict=verdict,
            hops=found,
            rate=self.rate,
            seconds=seconds,
            trigger=self.mesh.plan.trigger,
            start_seconds=start_seconds,
            cpu_seconds=cpu,
            rss_bytes=memory,
        )
        outside = {"destination": self.outside[0].cpu_seconds(), "sender": self.outside[1].cpu_seconds()}
        return report(run) | {"outside_cpu_seconds": outside, "differences": verdict.examples}

    async def kill(self) -> None:
        """End every process at once."""
        await asyncio.gather(*(process.kill() for process in self.outside if process.running))
        await self.mesh.kill()

    async def stop(self) -> None:
        """End every process in order."""
        await self.mesh.stop()
        await asyncio.gather(*(process.kill() for process in self.outside if process.running))

    async def _start(self) -> None:
        pipes = await asyncio.to_thread(self.stage.pipes)
        destination = self.stage.destination()
        self.outside.append(destination)
        await destination.start()
        await self.mesh.start(pipes)
        await self.mesh.wait_ready(READY_S)
        await self.stage.wait_for_destination()

    async def _send(self) -> None:
        self.progress.phase = "sending"
        sender = self.stage.sender(self.rate)
        self.outside.append(sender)
        await sender.start()
        while sender.running:
            await self._count()
            self.progress.sent = min(self.progress.total, _lines(self.stage.sender_books))
            await asyncio.sleep(LOOK_S)
        if sender.returncode != 0:
            raise Retryable(f"the demo's sender failed; its log {sender.log} ends with:\n{sender.tail(5)}")
        self.progress.sent = self.progress.total

    def _expect(self, rows: Mapping[str, Row]) -> dict[str, Deliveries]:
        expected = Expected(self.stage.mask_key)
        return {name: expected.deliveries(name, row) for name, row in rows.items()}

    async def _wait_for_the_rest(
        self, books: Mapping[str, Sent], expected: Mapping[str, Deliveries]
    ) -> Verdict:
        self.progress.phase = "waiting for the rest"
        verdict, arrivals = Verdict(), Books(self.stage.destination_books)
        missing = {(path, name) for name, one in books.items() if one.accepted for path in expected[name]}
        last_s = time.monotonic()
        while missing and time.monotonic() - last_s < QUIET_S:
            await self._count()
            if await asyncio.to_thread(_judge, arrivals, expected, verdict):
                last_s = time.monotonic()
                missing -= verdict.arrived.keys()
            self.progress.missing = len(missing)
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(LATE_S)
        await self._count()
        await asyncio.to_thread(_judge, arrivals, expected, verdict)
        return verdict

    async def _count(self) -> None:
        """Ask the destination how much has arrived, which also brings its books to the disk."""
        try:
            self.progress.arrived = await self.stage.counts()
        except OSError as error:  # on a machine that is very busy; only its death is a failure
            destination = self.outside[0]
            if not destination.running:
                raise Retryable(f"the demo's destination ended; its log is {destination.log}") from error

    async def _measure(self, memory: dict[str, int]) -> None:
        """Keep the most memory that each service held."""
        while True:
            for name, held in self.mesh.rss_bytes().items():
                memory[name] = max(held, memory.get(name, 0))
            await asyncio.sleep(MEASURE_S)


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
