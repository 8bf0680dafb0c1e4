"""A stream with a control plane and real rollout services; the test writes the verdicts and figures of observe."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.committed import until_readable

from hifi.control.action import Action
from hifi.control.action_right import ActionLog
from hifi.control.declaration import Declaration
from hifi.control.declaration_log import DeclarationLog
from hifi.control.request import Request, RequestKind
from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi.control.rollout_status import RolloutState, RolloutStatus, decode
from hifi.control.verdict import Condition, Verdict
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry
from hifi.pipe.revision import WHOLE, PipeRevision
from hifi.pipe.rollout import put_at_once
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_infra.kafka.stream_setup import prepare
from hifi_infra.ports import free_port

WITHIN_S = 300
EVENTS_PER_LOOK = 200


def pipe(shape: str, name: str = "flights") -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "normalize": {"fields": {shape: "n"}},
            "destinations": [{"name": "crm", "url": "http://127.0.0.1:9/"}],
        }
    )


@dataclass
class ControlledStream:
    """A stream with a control plane, its rollout service, and a stand-in for observe.

    Attributes:
        dead: share of dead letters of new revisions.
        condition: in all verdicts.
        traffic: whether the current revisions have events.
        stream: its name; empty: a new one.
    """

    kafka: str
    folder: Path
    dead: float = 0.0
    condition: Condition = Condition.STABLE
    traffic: bool = True
    stream: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = Topics(self.stream or f"p{uuid.uuid4().hex[:8]}")
        self.control = ControlTopics(f"{self.topics.stream}-control")
        self.statuses: dict[str, list[RolloutStatus]] = {}
        self._figures: dict[str, dict[int, RevisionFigures]] = {}
        self._follower = TopicFollower(self.kafka, "test", {self.control.rollouts: self._take})
        self._declared = DeclarationLog(self.kafka, self.control.declared, "test")
        self.log = ActionLog(self.kafka, self.control.actions, "test")

    async def start(self) -> None:
        await prepare(self.kafka, self.topics, 2, self.control)
        self._producer = Producer(self.kafka, "observer")
        await self._producer.start()
        for client in (self._follower, self._declared, self.log):
            await client.start()

    async def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        for client in (self._follower, self._declared, self.log):
            await client.stop()
        await self._producer.stop(timeout_s=1)

    def run(self) -> subprocess.Popen[bytes]:
        """Start a rollout service."""
        variables = {
            "HIFI_KAFKA": self.kafka,
            "HIFI_STREAM": self.topics.stream,
            "HIFI_CONTROL": self.control.control,
            "HIFI_PORT": str(free_port()),
            "HIFI_ROLLOUT_PHASES": "10,50,100",
            "HIFI_ROLLOUT_PHASE_S": "1",
            "HIFI_ROLLOUT_PHASE_EVENTS": "20",
            "HIFI_ROLLOUT_NEW_PIPE_RATE": "0",
            **self.environment,
        }
        with (self.folder / f"rollout-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "hifi_rollout"], env=os.environ | variables, stderr=log, stdout=log
            )
        self.processes.append(process)
        return process

    async def observe(self) -> None:
        """Write verdicts until cancelled; the revisions of a rollout get events by their shares."""
        condition, since_us = self.condition, now_us()
        while True:
            published = await read_registry(self.kafka, self.topics)
            now = now_us()
            if self.condition is not condition:
                condition, since_us = self.condition, now
            verdicts = [Verdict("stream", condition, since_us, now)]
            for name in published.pipes:
                rollout = self._count(published, name)
                verdicts.append(Verdict(f"pipe/{name}", condition, since_us, now, (), {}, rollout))
            records = [Record(verdict.scope.encode(), verdict.encode(), []) for verdict in verdicts]
            await self._producer.send_and_wait(self.control.health, 0, records)
            await asyncio.sleep(0.2)

    def _count(self, published: RegistrySnapshot, name: str) -> RolloutFigures | None:
        current = published.pipes[name]
        if current.rollout is None and current.cap is None:
            self._figures.pop(name, None)
            return None
        revision_figures = self._figures.setdefault(name, {})
        share = current.rollout.share if current.rollout else 0
        new_count = EVENTS_PER_LOOK * share // WHOLE
        following = current.rollout.next.number if current.rollout else current.number + 1
        for revision, events, dead_letter_count in (
            (current.number, EVENTS_PER_LOOK - new_count if self.traffic else 0, 0),
            (following, new_count, round(new_count * self.dead)),
        ):
            before = revision_figures.get(revision, RevisionFigures())
            revision_figures[revision] = before + RevisionFigures(
                events, events - dead_letter_count, 0, dead_letter_count
            )
        return RolloutFigures(1, dict(revision_figures))

    async def declare(self, pipe: Pipe | None, name: str = "flights") -> None:
        await self._declared.catch_up()
        number = self._declared.declared.number(name)
        assert await self._declared.append([Declaration(name, pipe, "ann", now_us(), number)])

    async def pause(self, *, paused: bool) -> None:
        await self._declared.catch_up()
        newest = self._declared.declared.newest["flights"]
        assert await self._declared.append([newest.with_pause("ben", now_us(), paused=paused)])

    async def until_pipe(self, condition: Callable[[PipeRevision], bool]) -> None:
        """Wait until the pipe is in force as it should be."""
        end_s = time.monotonic() + WITHIN_S
        while not condition((await self.pipes()).pipes["flights"]):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.05)

    async def put_at_once(self, pipe: Pipe) -> None:
        published = await read_registry(self.kafka, self.topics)
        await publish(self.kafka, self.topics, put_at_once(published, pipe))

    async def ask(self, kind: RequestKind, status: RolloutStatus) -> None:
        request = Request(f"pipe/{status.pipe}", status.declaration, kind, "ann", now_us(), status.share)
        await self._producer.send_and_wait(self.control.requests, 0, [request.record()])

    async def status(self, condition: Callable[[RolloutStatus], Any], name: str = "flights") -> RolloutStatus:
        """Wait for a status."""
        end_s = time.monotonic() + WITHIN_S
        while True:
            await self._follower.catch_up()
            statuses = self.statuses.get(name, [])
            if statuses and condition(statuses[-1]):
                return statuses[-1]
            assert time.monotonic() < end_s, statuses[-5:]
            await asyncio.sleep(0.05)

    async def actions(self) -> list[Action]:
        """All actions so far, oldest first."""
        await until_readable(self.kafka, self.control.actions)
        await self.log.catch_up()
        return list(reversed(self.log.history.newest_first))

    async def pipes(self) -> RegistrySnapshot:
        return await read_registry(self.kafka, self.topics)

    def _take(self, _: bytes | None, value: bytes | None, __: int) -> None:
        status = decode(value)
        self.statuses.setdefault(status.pipe, []).append(status)


@asynccontextmanager
async def controlled(kafka: str, folder: Path, **settings: Any) -> AsyncIterator[ControlledStream]:
    stream = ControlledStream(kafka, folder, **settings)
    await stream.start()
    observing = asyncio.create_task(stream.observe())
    try:
        yield stream
    finally:
        observing.cancel()
        await stream.stop()


def ended(state: RolloutState, declaration: int) -> Callable[[RolloutStatus], bool]:
    return lambda status: status.state is state and status.declaration == declaration
