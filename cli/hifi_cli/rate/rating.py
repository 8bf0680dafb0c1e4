"""Rate a mesh: raise an open-loop load step by step until the mesh cannot sustain it."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import psutil

from hifi.runtime.errors import Retryable
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.verify import RequestLogReader, read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_cli.rate.event_load import EventLoad
from hifi_cli.rate.rate_search import RateSearch
from hifi_cli.rate.step import RateStep, ResourceUse, failure_reason, measure_step

POLL_S: Final = 1.0
HEADROOM_EVENTS: Final = 40_000
WARM_UP_S: Final = 30.0
"""Load before the first measured step: the JIT compiler of Java needs about this long to reach steady state."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Maximum rate of sender and destination connected directly, without a mesh.

    Attributes:
        rate: events a second that the two sustained at full speed.
        core_shares: CPU-seconds a second that `sender` and `destination` used for it.
    """

    rate: float
    core_shares: Mapping[str, float]


@dataclass(slots=True)
class Rating:
    """Finds the highest rate that a mesh sustains.

    Args:
        load_test: the mesh with sender and destination.
        search: chooses the rates to try.
        load: the shape of the events.
        seconds: duration of each step.
        slo_ms: maximum p95 from the due time of an event to its destination's answer.
        on_step: called with each step, and why the rate was not sustained (None if it was).
    """

    load_test: LoadTest
    search: RateSearch
    load: EventLoad
    seconds: float
    slo_ms: float
    on_step: Callable[[RateStep, str | None], None]
    warm_up: RateStep | None = None
    """The load before the first step; its losses count, its rate does not."""
    steps: list[RateStep] = field(default_factory=list)
    headroom: Headroom | None = None
    start_seconds: float = 0.0
    _first: int = 0
    _arrivals: RequestLogReader | None = None

    async def run(self) -> None:
        """Run the whole rating; results are in `warm_up`, `steps` and `headroom`.

        Raises:
            HifiError: the mesh did not start, or sender or destination failed.
        """
        self.headroom = await self._measure_headroom()
        await self.begin()
        while (rate := self.search.next()) is not None:
            step = await self.step(rate, self.seconds)
            reason = failure_reason(step, self.slo_ms)
            self.steps.append(step)
            self.search.record(rate, sustained=reason is None)
            self.on_step(step, reason)

    async def begin(self, warm_up_s: float = WARM_UP_S) -> RateStep:
        """Start the mesh and send at the first rate to warm up; return that step, which is also kept as `warm_up`.

        Raises:
            HifiError: the mesh did not start, or sender or destination failed.
        """
        began_s = time.monotonic()
        await self.load_test.start(self.load.shape)
        self.start_seconds = time.monotonic() - began_s
        self._arrivals = RequestLogReader(self.load_test.workspace.request_log)
        self.warm_up = await self.step(self.search.first, warm_up_s)
        return self.warm_up

    @property
    def rated(self) -> RateStep | None:
        """The step with the highest sustained rate."""
        sustained_steps = [step for step in self.steps if failure_reason(step, self.slo_ms) is None]
        return max(sustained_steps, key=lambda step: step.rate, default=None)

    async def _measure_headroom(self) -> Headroom:
        self.load_test.progress.phase = "measuring sender and destination without a mesh"
        workspace = self.load_test.workspace
        await asyncio.to_thread(self._write, HEADROOM_EVENTS)
        headroom_workspace = Workspace(
            workspace.data,
            workspace.destination_port,
            workspace.destination_port,
            write_key=workspace.write_key,
        )
        destination = await self.load_test.start_destination()
        await workspace.wait_for_destination()
        sender = self.load_test.sender = headroom_workspace.sender(float("inf"), self.load.batch)
        before_s = destination.cpu_seconds()
        await sender.start()
        if await sender.wait() != 0:
            raise Retryable(f"the sender failed; end of its log {sender.log}:\n{sender.tail(5)}")
        requests = read_send_log(workspace.send_log).values()
        seconds = (
            max(request.answered_ns for request in requests) - min(request.sent_ns for request in requests)
        ) / 1e9
        sender_report = orjson.loads(sender.tail(1))
        cpu_s = {"sender": sender_report["cpu_seconds"], "destination": destination.cpu_seconds() - before_s}
        await destination.kill()
        self.load_test.destination = None
        return Headroom(len(requests) / seconds, {name: cpu / seconds for name, cpu in cpu_s.items()})

    async def step(self, rate: float, seconds: float) -> RateStep:
        """Send at a rate for some seconds and wait for all deliveries. Call `begin` first.

        Raises:
            HifiError: sender or destination failed.
        """
        load_test = self.load_test
        assert self._arrivals is not None
        assert load_test.destination is not None
        load_test.progress.phase, load_test.progress.sent = f"preparing {rate:,.0f} ev/s", 0
        count = load_test.progress.total = max(self.load.batch, round(rate * seconds))
        expected = await asyncio.to_thread(self._write, count)
        cpu = load_test.mesh.cpu_seconds()
        outside_s, machine = load_test.destination.cpu_seconds(), psutil.cpu_times()
        sender = await load_test.send(rate, self.load.batch, POLL_S)
        busy_share = _busy(machine, psutil.cpu_times())
        destination_s = load_test.destination.cpu_seconds() - outside_s
        sending_cpu_s = _increase(cpu, load_test.mesh.cpu_seconds())
        load_average, rss = os.getloadavg()[0], load_test.mesh.rss_bytes()
        waiting_records = await load_test.waiting()
        sender_report = orjson.loads(sender.tail(1))
        sent_events = await asyncio.to_thread(read_send_log, load_test.workspace.send_log)
        comparison = await load_test.wait_for_arrivals(self._arrivals, sent_events, expected)
        usage = ResourceUse(
            seconds=count / rate,
            cpu_seconds=_increase(cpu, load_test.mesh.cpu_seconds()),
            sending_cpu_seconds=sending_cpu_s,
            outside_cpu_seconds={"sender": sender_report["cpu_seconds"], "destination": destination_s},
            rss_bytes=rss,
            waiting=waiting_records,
            machine_share=busy_share,
            load_average=load_average,
            late_share=sender_report["late_share"],
        )
        return await asyncio.to_thread(measure_step, rate, sent_events, expected, comparison, usage)

    def _write(self, count: int) -> dict[str, Mapping[str, object]]:
        first_number, self._first = self._first, self._first + count
        return dict(self.load.write(self.load_test.workspace, count, first_number))


def _increase(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds - before.get(name, 0) for name, seconds in after.items()}


def _busy(before: Any, after: Any) -> float:
    """Return the share of CPU time that was not idle; 1 means that all cores were busy."""
    spent_s = [end_s - start_s for start_s, end_s in zip(before, after, strict=True)]
    kind_names = before._fields
    idle_s = sum(
        seconds for name, seconds in zip(kind_names, spent_s, strict=True) if name in ("idle", "iowait")
    )
    # The time of guests is already part of `user`.
    total = sum(
        seconds for name, seconds in zip(kind_names, spent_s, strict=True) if not name.startswith("guest")
    )
    return 1 - idle_s / total if total else 0.0
