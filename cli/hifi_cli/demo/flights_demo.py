"""One run of the demo: start the mesh, send, wait for all deliveries, and compare them."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi_cli.demo import topic_lags
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.load_test import MeshRun
from hifi_cli.demo.report import DemoRun, report
from hifi_cli.demo.verify import RequestLogReader, read_send_log

MEASURE_S: Final = 2.0


@dataclass(slots=True)
class Demo(MeshRun):
    """One run of the demo. `kill` always ends all of its processes."""

    rate: float
    seconds: float

    async def run(self) -> dict[str, Any]:
        """Run the demo and return its report.

        Raises:
            HifiError: the mesh did not start, or a process of the demo failed.
        """
        self.load_test.progress.total = max(1, round(self.rate * self.seconds))
        began_s = time.monotonic()
        rows, _ = await asyncio.gather(
            asyncio.to_thread(self.workspace.write_events, self.load_test.progress.total),
            self.load_test.start(),
        )
        start_seconds = time.monotonic() - began_s
        offsets_before = await topic_lags.end_offsets(self.mesh.bootstrap, self.mesh.topics)
        cpu_before = self.mesh.cpu_seconds()
        max_rss_bytes: dict[str, int] = {}
        measure_task = asyncio.create_task(self._measure(max_rss_bytes))
        began_s = time.monotonic()
        try:
            sender = await self.load_test.send(self.rate)
            sent_events = read_send_log(self.workspace.send_log)
            expected = await asyncio.to_thread(self._expect, rows)
            comparison = await self.load_test.wait_for_arrivals(
                RequestLogReader(self.workspace.request_log), sent_events, expected
            )
        finally:
            measure_task.cancel()
        seconds = time.monotonic() - began_s
        cpu = {name: cpu_s - cpu_before.get(name, 0) for name, cpu_s in self.mesh.cpu_seconds().items()}
        self.load_test.progress.phase = "reading the lags from the topics"
        lags = await topic_lags.read(self.mesh.bootstrap, self.mesh.topics, offsets_before)
        demo_run = DemoRun(
            sent=sent_events,
            expected=expected,
            comparison=comparison,
            topic_lags=lags,
            rate=self.rate,
            seconds=seconds,
            trigger=self.mesh.plan.trigger,
            start_seconds=start_seconds,
            cpu_seconds=cpu,
            rss_bytes=max_rss_bytes,
        )
        destination = self.load_test.destination
        outside_cpu_s = {
            "destination": destination.cpu_seconds() if destination else 0.0,
            "sender": sender.cpu_seconds(),
        }
        return report(demo_run) | {"outside_cpu_seconds": outside_cpu_s, "differences": comparison.examples}

    def _expect(self, rows: Mapping[str, Row]) -> dict[str, Deliveries]:
        expected = Expected(self.workspace.mask_key)
        return {name: expected.deliveries(name, row) for name, row in rows.items()}

    async def _measure(self, max_rss_bytes: dict[str, int]) -> None:
        """Record the maximum memory of each service."""
        while True:
            for name, rss_bytes in self.mesh.rss_bytes().items():
                max_rss_bytes[name] = max(rss_bytes, max_rss_bytes.get(name, 0))
            await asyncio.sleep(MEASURE_S)
