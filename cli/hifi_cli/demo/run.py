"""One run of the demo: start, send, wait for the rest, judge."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi_cli.demo import hops
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.load_test import Scene
from hifi_cli.demo.report import Run, report
from hifi_cli.demo.verify import Books, sent
from hifi_cli.demo.workspace import Stage
from hifi_infra.mesh.mesh import Mesh

MEASURE_S: Final = 2.0


@dataclass(slots=True)
class Demo:
    """A run with everything that belongs to it. Whatever happens, `kill` leaves nothing running."""

    scene: Scene
    rate: float
    seconds: float

    @property
    def stage(self) -> Stage:
        """What is around the mesh."""
        return self.scene.stage

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.scene.mesh

    async def run(self) -> dict[str, Any]:
        """Do it all; gives the report.

        Raises:
            HifiError: the mesh did not start, or a part of the demo failed.
        """
        self.scene.progress.total = max(1, round(self.rate * self.seconds))
        began_s = time.monotonic()
        rows, _ = await asyncio.gather(
            asyncio.to_thread(self.stage.write_events, self.scene.progress.total), self.scene.start()
        )
        start_seconds = time.monotonic() - began_s
        marks = await hops.marks(self.mesh.bootstrap, self.mesh.topics)
        cpu_before = self.mesh.cpu_seconds()
        memory: dict[str, int] = {}
        measuring = asyncio.create_task(self._measure(memory))
        began_s = time.monotonic()
        try:
            sender = await self.scene.send(self.rate)
            books = sent(self.stage.sender_books)
            expected = await asyncio.to_thread(self._expect, rows)
            verdict = await self.scene.wait_for_the_rest(Books(self.stage.destination_books), books, expected)
        finally:
            measuring.cancel()
        seconds = time.monotonic() - began_s
        cpu = {name: used - cpu_before.get(name, 0) for name, used in self.mesh.cpu_seconds().items()}
        self.scene.progress.phase = "reading the topics"
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
        destination = self.scene.destination
        outside = {
            "destination": destination.cpu_seconds() if destination else 0.0,
            "sender": sender.cpu_seconds(),
        }
        return report(run) | {"outside_cpu_seconds": outside, "differences": verdict.examples}

    async def kill(self) -> None:
        """End every process at once."""
        await self.scene.kill()

    async def stop(self) -> None:
        """End every process in order."""
        await self.scene.stop()

    def _expect(self, rows: Mapping[str, Row]) -> dict[str, Deliveries]:
        expected = Expected(self.stage.mask_key)
        return {name: expected.deliveries(name, row) for name, row in rows.items()}

    async def _measure(self, memory: dict[str, int]) -> None:
        """Keep the most memory that each service held."""
        while True:
            for name, held in self.mesh.rss_bytes().items():
                memory[name] = max(held, memory.get(name, 0))
            await asyncio.sleep(MEASURE_S)
