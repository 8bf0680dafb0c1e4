"""One run of the demo: start, send, wait for the rest, judge."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi_cli.demo import topic_lags
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.report import DemoRun, report
from hifi_cli.demo.verify import RequestLogReader, read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_infra.mesh import Mesh

MEASURE_S: Final = 2.0


@dataclass(slots=True)
class Demo:
    """A run with everything that belongs to it. Whatever happens, `kill` leaves nothing running."""

    load_test: LoadTest
    rate: float
    seconds: float

    @property
    def workspace(self) -> Workspace:
        """What is around the mesh."""
        return self.load_test.workspace

    @property
    def mesh(self) -> Mesh:
        """The mesh."""
        return self.load_test.mesh

    async def run(self) -> dict[str, Any]:
        """Do it all; gives the report.

        Raises:
            HifiError: the mesh did not start, or a part of the demo failed.
        """
        self.load_test.progress.total = max(1, round(self.rate * self.seconds))
        began_s = time.monotonic()
        rows, _ = await asyncio.gather(
            asyncio.to_thread(self.workspace.write_events, self.load_test.progress.total),
            self.load_test.start(),
        )
        start_seconds = time.monotonic() - began_s
        marks = await topic_lags.marks(self.mesh.bootstrap, self.mesh.topics)
        cpu_before = self.mesh.cpu_seconds()
        memory: dict[str, int] = {}
        measuring = asyncio.create_task(self._measure(memory))
        began_s = time.monotonic()
        try:
            sender = await self.load_test.send(self.rate)
            books = read_send_log(self.workspace.send_log)
            expected = await asyncio.to_thread(self._expect, rows)
            comparison = await self.load_test.wait_for_the_rest(
                RequestLogReader(self.workspace.request_log), books, expected
            )
        finally:
            measuring.cancel()
        seconds = time.monotonic() - began_s
        cpu = {name: used - cpu_before.get(name, 0) for name, used in self.mesh.cpu_seconds().items()}
        self.load_test.progress.phase = "reading the topics"
        found = await topic_lags.read(self.mesh.bootstrap, self.mesh.topics, marks)
        run = DemoRun(
            sent=books,
            expected=expected,
            comparison=comparison,
            hops=found,
            rate=self.rate,
            seconds=seconds,
            trigger=self.mesh.plan.trigger,
            start_seconds=start_seconds,
            cpu_seconds=cpu,
            rss_bytes=memory,
        )
        destination = self.load_test.destination
        outside = {
            "destination": destination.cpu_seconds() if destination else 0.0,
            "sender": sender.cpu_seconds(),
        }
        return report(run) | {"outside_cpu_seconds": outside, "differences": comparison.examples}

    async def kill(self) -> None:
        """End every process at once."""
        await self.load_test.kill()

    async def stop(self) -> None:
        """End every process in order."""
        await self.load_test.stop()

    def _expect(self, rows: Mapping[str, Row]) -> dict[str, Deliveries]:
        expected = Expected(self.workspace.mask_key)
        return {name: expected.deliveries(name, row) for name, row in rows.items()}

    async def _measure(self, memory: dict[str, int]) -> None:
        """Keep the most memory that each service held."""
        while True:
            for name, held in self.mesh.rss_bytes().items():
                memory[name] = max(held, memory.get(name, 0))
            await asyncio.sleep(MEASURE_S)
