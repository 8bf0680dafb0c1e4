"""Rates a mesh: raises an open-loop load step by step until the mesh no longer holds it."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import psutil

from hifi.errors import Retryable
from hifi_cli.demo.load_test import Scene
from hifi_cli.demo.verify import Books, sent
from hifi_cli.demo.workspace import Stage
from hifi_cli.rate.event_load import Load
from hifi_cli.rate.rate_search import Ladder
from hifi_cli.rate.step import Step, Used, measured, why_not

LOOK_S: Final = 1.0
HEADROOM_EVENTS: Final = 40_000
WARM_UP_S: Final = 30.0
"""Java compiles what it runs often, for about so long; a rating is of a mesh that runs for hours."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Sender and destination against each other, with no mesh between and nothing else running.

    Attributes:
        rate: events a second that the two carried, as fast as they could.
        core_shares: CPU-seconds a second that `sender` and `destination` used for it.
    """

    rate: float
    core_shares: Mapping[str, float]


@dataclass(slots=True)
class Rating:
    """A search for the rate that the mesh holds.

    Args:
        scene: what runs.
        ladder: which rates to try.
        load: what the events are like.
        seconds: of each step.
        slo_ms: p95 from the moment an event is due to its destination's answer.
        tell: hears each step, and why the rate was not held.
    """

    scene: Scene
    ladder: Ladder
    load: Load
    seconds: float
    slo_ms: float
    tell: Callable[[Step, str | None], None]
    steps: list[Step] = field(default_factory=list)
    headroom: Headroom | None = None
    start_seconds: float = 0.0
    _first: int = 0
    _arrivals: Books | None = None

    async def run(self) -> None:
        """Do it all; the figures are in `steps` and `headroom`.

        Raises:
            HifiError: the mesh did not start, or sender or destination failed.
        """
        self.headroom = await self._measure_headroom()
        await self.begin()
        while (rate := self.ladder.next()) is not None:
            step = await self.step(rate, self.seconds)
            why = why_not(step, self.slo_ms)
            self.steps.append(step)
            self.ladder.took(rate, held=why is None)
            self.tell(step, why)

    async def begin(self, warm_up_s: float = WARM_UP_S) -> Step:
        """Start everything and send at the first rate for a while; gives that step, which is in no figure.

        Raises:
            HifiError: the mesh did not start, or sender or destination failed.
        """
        began_s = time.monotonic()
        await self.scene.start(self.load.shape)
        self.start_seconds = time.monotonic() - began_s
        self._arrivals = Books(self.scene.stage.destination_books)
        return await self.step(self.ladder.first, warm_up_s)

    @property
    def rated(self) -> Step | None:
        """The step with the highest rate that held."""
        held = [step for step in self.steps if why_not(step, self.slo_ms) is None]
        return max(held, key=lambda step: step.rate, default=None)

    async def _measure_headroom(self) -> Headroom:
        self.scene.progress.phase = "measuring the sender and the destination against each other"
        stage = self.scene.stage
        await asyncio.to_thread(self._write, HEADROOM_EVENTS)
        alone = Stage(stage.data, stage.destination_port, stage.destination_port, write_key=stage.write_key)
        destination = await self.scene.start_destination()
        await stage.wait_for_destination()
        sender = self.scene.sender = alone.sender(float("inf"), self.load.batch)
        before_s = destination.cpu_seconds()
        await sender.start()
        if await sender.wait() != 0:
            raise Retryable(f"the sender failed; its log {sender.log} ends with:\n{sender.tail(5)}")
        books = sent(stage.sender_books).values()
        seconds = (max(one.answered_ns for one in books) - min(one.sent_ns for one in books)) / 1e9
        own = orjson.loads(sender.tail(1))
        used = {"sender": own["cpu_seconds"], "destination": destination.cpu_seconds() - before_s}
        await destination.kill()
        self.scene.destination = None
        return Headroom(len(books) / seconds, {name: cpu / seconds for name, cpu in used.items()})

    async def step(self, rate: float, seconds: float) -> Step:
        """Send at a rate for so many seconds and wait for the rest; `begin` comes first.

        Raises:
            HifiError: sender or destination failed.
        """
        scene = self.scene
        assert self._arrivals is not None
        assert scene.destination is not None
        scene.progress.phase, scene.progress.sent = f"preparing {rate:,.0f} ev/s", 0
        count = scene.progress.total = max(self.load.batch, round(rate * seconds))
        expected = await asyncio.to_thread(self._write, count)
        cpu = scene.mesh.cpu_seconds()
        outside_s, machine = scene.destination.cpu_seconds(), psutil.cpu_times()
        sender = await scene.send(rate, self.load.batch, LOOK_S)
        busy = _busy(machine, psutil.cpu_times())
        destination_s = scene.destination.cpu_seconds() - outside_s
        sending = _since(cpu, scene.mesh.cpu_seconds())
        load_average, rss = os.getloadavg()[0], scene.mesh.rss_bytes()
        waiting = await scene.waiting()
        own = orjson.loads(sender.tail(1))
        books = await asyncio.to_thread(sent, scene.stage.sender_books)
        verdict = await scene.wait_for_the_rest(self._arrivals, books, expected)
        used = Used(
            seconds=count / rate,
            cpu_seconds=_since(cpu, scene.mesh.cpu_seconds()),
            sending_cpu_seconds=sending,
            outside_cpu_seconds={"sender": own["cpu_seconds"], "destination": destination_s},
            rss_bytes=rss,
            waiting=waiting,
            machine_share=busy,
            load_average=load_average,
            late_share=own["late_share"],
        )
        return await asyncio.to_thread(measured, rate, books, expected, verdict, used)

    def _write(self, count: int) -> dict[str, Mapping[str, object]]:
        first, self._first = self._first, self._first + count
        return dict(self.load.write(self.scene.stage, count, first))


def _since(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: used - before.get(name, 0) for name, used in after.items()}


def _busy(before: Any, after: Any) -> float:
    """Share of the time in which the cores were not idle; 1: all of them were busy."""
    spent = [late - early for early, late in zip(before, after, strict=True)]
    names = before._fields
    idle = sum(seconds for name, seconds in zip(names, spent, strict=True) if name in ("idle", "iowait"))
    # Guests' time is in user's already.
    total = sum(seconds for name, seconds in zip(names, spent, strict=True) if not name.startswith("guest"))
    return 1 - idle / total if total else 0.0
