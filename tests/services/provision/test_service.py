"""The real service, as a process on a real Kafka. The test writes the verdicts and figures in place of observe."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from hifi.clock import now_us
from hifi.control.action import Action, ActionState
from hifi.control.declaration import Declaration
from hifi.control.declaration_log import DeclarationLog
from hifi.control.request import Request, RequestKind
from hifi.control.revision_figures import RevisionFigures, RolloutFigures
from hifi.control.rollout_status import RolloutState, RolloutStatus, decode
from hifi.control.steps import ActionLog
from hifi.control.topic_follower import TopicFollower
from hifi.control.verdict import Condition, Verdict
from hifi.event import Record
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot, publish, read_registry
from hifi.pipe.revision import WHOLE, PipeVersion, RateCap
from hifi.pipe.rollout import put_at_once
from hifi.topics import ControlTopics, Topics
from hifi_infra.kafka.stream_setup import prepare
from hifi_infra.ports import free_port

WITHIN_S = 60
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
    """A stream with a control plane, its provisioner, and a stand-in for observe.

    Attributes:
        dead: share of dead letters of new revisions.
        condition: in all verdicts.
        traffic: whether the current revisions have events.
    """

    kafka: str
    folder: Path
    dead: float = 0.0
    condition: Condition = Condition.STABLE
    traffic: bool = True
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = Topics(f"p{uuid.uuid4().hex[:8]}")
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
        """Start a provisioner."""
        named = {
            "HIFI_KAFKA": self.kafka,
            "HIFI_STREAM": self.topics.stream,
            "HIFI_CONTROL": self.control.control,
            "HIFI_PORT": str(free_port()),
            "HIFI_PROVISION_PHASES": "10,50,100",
            "HIFI_PROVISION_PHASE_S": "1",
            "HIFI_PROVISION_PHASE_EVENTS": "20",
            "HIFI_PROVISION_NEW_PIPE_RATE": "0",
            **self.environment,
        }
        with (self.folder / f"provision-{len(self.processes)}.log").open("wb") as log:
            made = subprocess.Popen(
                [sys.executable, "-m", "hifi_provision"], env=os.environ | named, stderr=log, stdout=log
            )
        self.processes.append(made)
        return made

    async def observe(self) -> None:
        """Write verdicts until cancelled; the revisions of a rollout get events by their shares."""
        known, since = self.condition, now_us()
        while True:
            published = await read_registry(self.kafka, self.topics)
            now = now_us()
            if self.condition is not known:
                known, since = self.condition, now
            verdicts = [Verdict("stream", known, since, now)]
            for name in published.pipes:
                rollout = self._count(published, name)
                verdicts.append(Verdict(f"pipe/{name}", known, since, now, (), {}, rollout))
            records = [Record(one.scope.encode(), one.encode(), []) for one in verdicts]
            await self._producer.send_and_wait(self.control.health, 0, records)
            await asyncio.sleep(0.2)

    def _count(self, published: RegistrySnapshot, name: str) -> RolloutFigures | None:
        known = published.pipes[name]
        if known.rollout is None and known.cap is None:
            self._figures.pop(name, None)
            return None
        counted = self._figures.setdefault(name, {})
        share = known.rollout.share if known.rollout else 0
        new = EVENTS_PER_LOOK * share // WHOLE
        following = known.rollout.next.revision if known.rollout else known.revision + 1
        for revision, events, dead in (
            (known.revision, EVENTS_PER_LOOK - new if self.traffic else 0, 0),
            (following, new, round(new * self.dead)),
        ):
            before = counted.get(revision, RevisionFigures())
            counted[revision] = before + RevisionFigures(events, events - dead, 0, dead)
        return RolloutFigures(1, dict(counted))

    async def declare(self, wanted: Pipe | None, name: str = "flights") -> None:
        await self._declared.catch_up()
        number = self._declared.declared.number(name)
        assert await self._declared.append([Declaration(name, wanted, "ann", now_us(), number)])

    async def pause(self, *, paused: bool) -> None:
        await self._declared.catch_up()
        newest = self._declared.declared.newest["flights"]
        assert await self._declared.append([newest.with_pause("ben", now_us(), paused=paused)])

    async def until_pipe(self, holds: Callable[[PipeVersion], bool]) -> None:
        """Wait until the pipe is in force as it should be."""
        end = time.monotonic() + WITHIN_S
        while not holds((await self.pipes()).pipes["flights"]):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)

    async def put_at_once(self, wanted: Pipe) -> None:
        published = await read_registry(self.kafka, self.topics)
        await publish(self.kafka, self.topics, put_at_once(published, wanted))

    async def ask(self, kind: RequestKind, status: RolloutStatus) -> None:
        request = Request(f"pipe/{status.pipe}", status.declaration, kind, "ann", now_us(), status.share)
        await self._producer.send_and_wait(self.control.requests, 0, [request.record()])

    async def status(self, holds: Callable[[RolloutStatus], Any], name: str = "flights") -> RolloutStatus:
        """Wait for a status."""
        end = time.monotonic() + WITHIN_S
        while True:
            await self._follower.catch_up()
            found = self.statuses.get(name, [])
            if found and holds(found[-1]):
                return found[-1]
            assert time.monotonic() < end, found[-5:]
            await asyncio.sleep(0.05)

    async def actions(self) -> list[Action]:
        """All steps so far, oldest first."""
        await self.log.catch_up()
        return list(reversed(self.log.history.newest_first))

    async def pipes(self) -> RegistrySnapshot:
        return await read_registry(self.kafka, self.topics)

    def _take(self, _: bytes | None, value: bytes | None, __: int) -> None:
        found = decode(value)
        self.statuses.setdefault(found.pipe, []).append(found)


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
    return lambda one: one.state is state and one.declaration == declaration


async def test_declared_pipes_are_put_into_force_ramped_promoted_and_deleted(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.run()
        await stream.declare(pipe("a"))
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        await stream.declare(pipe("b"))
        done = await stream.status(ended(RolloutState.IN_FORCE, 1))
        assert (done.revision, done.author) == (2, "ann")
        assert [one.share for one in stream.statuses["flights"] if one.state is RolloutState.RAMPING] != []
        published = await stream.pipes()
        assert (published.pipes["flights"].pipe, published.pipes["flights"].revision) == (pipe("b"), 2)
        steps = [one.step for one in await stream.actions()]
        assert steps == [
            "a new pipe: all events",
            "a revision after 1: 0 % to 10 %",
            "revision 2: 10 % to 50 %",
            "revision 2: 50 % to 100 %",
            "revision 2: promoted",
        ]
        assert {one.state for one in await stream.actions()} == {ActionState.DONE}
        await stream.declare(None)
        await stream.status(ended(RolloutState.IN_FORCE, 2))
        assert "flights" not in (await stream.pipes()).pipes


async def test_a_worse_revision_is_rolled_back_with_its_reason_and_not_begun_again(kafka, tmp_path):
    async with controlled(kafka, tmp_path, dead=0.3) as stream:
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        back = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert "dead letters: " in back.reason
        end = time.monotonic() + WITHIN_S
        while (await stream.pipes()).pipes["flights"].rollout is not None:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        stream.dead = 0
        await stream.declare(pipe("b"))  # the same once more, since the cause is mended
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        kinds = [(one.kind.value, one.state.value) for one in await stream.actions()]
        assert kinds.count(("roll-back", "done")) == 1


async def test_a_rollout_waits_while_the_stream_is_unstable_and_a_person_can_force_pause_and_abort(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path, condition=Condition.UNSTABLE) as stream:
        stream.environment["HIFI_PROVISION_UNSTABLE_S"] = "600"
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        waiting = await stream.status(ended(RolloutState.WAITING, 0))
        assert waiting.reason == "the stream or the scope is unstable"
        await stream.ask(RequestKind.FORCE, waiting)
        begun = await stream.status(lambda one: one.share == WHOLE // 10)
        await stream.ask(RequestKind.PAUSE, begun)
        await stream.status(lambda one: one.state is RolloutState.PAUSED)
        await stream.ask(RequestKind.ABORT, begun)
        back = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert back.reason == "aborted by ann"
        end = time.monotonic() + WITHIN_S
        while [one.forced_by for one in await stream.actions()] != ["ann", ""]:
            assert time.monotonic() < end, await stream.actions()
            await asyncio.sleep(0.05)


async def test_a_declaration_that_is_not_allowed_is_refused(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.run()
        body = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        body["normalize"] = {"function": "subprocess:call"}
        await stream.declare(Pipe.model_validate(body))
        refused = await stream.status(ended(RolloutState.REFUSED, 0))
        assert "not allowed" in refused.reason
        assert not (await stream.pipes()).pipes


async def test_a_provisioner_that_is_killed_or_frozen_in_a_ramp_leaves_what_the_next_one_finishes(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path) as stream:
        await stream.put_at_once(pipe("a"))
        killed = stream.run()
        await stream.declare(pipe("b"))
        await stream.status(lambda one: one.share == WHOLE // 10)
        killed.kill()
        frozen = stream.run()
        await stream.status(lambda one: one.share >= WHOLE // 2)
        frozen.send_signal(signal.SIGSTOP)
        stream.run()
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        frozen.send_signal(signal.SIGCONT)
        end = time.monotonic() + WITHIN_S
        await stream.declare(pipe("c"))
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        while frozen.poll() is None:  # it writes, is refused, and ends
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        published = await stream.pipes()
        assert (published.pipes["flights"].pipe, published.pipes["flights"].rollout) == (pipe("c"), None)
        log = (tmp_path / "provision-1.log").read_bytes()
        assert b"another instance of this service has started" in log, orjson.dumps(log.decode()[-2000:])


async def test_a_pipe_is_paused_and_resumed_while_the_stream_is_unstable_and_keeps_how_far_it_is(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path, dead=0.3) as stream:
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        back = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        stream.condition = Condition.UNSTABLE
        await stream.pause(paused=True)
        await stream.until_pipe(lambda one: one.paused)
        await stream.pause(paused=False)
        await stream.until_pipe(lambda one: not one.paused)
        steps = [(one.kind.value, one.step, one.reason) for one in await stream.actions()]
        assert steps[-2:] == [
            ("pause", "paused", "declared by ben"),
            ("pause", "active", "declared by ben"),
        ]
        known = (await stream.pipes()).pipes["flights"]
        assert (known.pipe, known.rollout) == (pipe("a"), None), "what was rolled back is not begun again"
        assert stream.statuses["flights"][-1] == back


async def test_the_rate_of_a_new_pipe_rises_with_the_phases_and_waits_for_traffic(kafka, tmp_path):
    async with controlled(kafka, tmp_path, traffic=False) as stream:
        stream.environment["HIFI_PROVISION_NEW_PIPE_RATE"] = "1000"
        stream.run()
        await stream.declare(pipe("a"))
        waits = await stream.status(lambda one: one.reason.startswith("too little traffic"))
        assert (waits.state, waits.share, waits.revision) == (RolloutState.RAMPING, WHOLE // 10, 1)
        assert (await stream.pipes()).pipes["flights"].cap == RateCap(share=WHOLE // 10, events_per_s=100)
        stream.traffic = True
        done = await stream.status(ended(RolloutState.IN_FORCE, 0))
        assert "no reason against it in" in done.reason
        assert (await stream.pipes()).pipes["flights"].cap is None
        assert [one.step for one in await stream.actions()] == [
            "a new pipe: up to 100 events/s (10 %)",
            "the new pipe: up to 500 events/s (50 %)",
            "the new pipe: up to 1000 events/s (100 %)",
            "the new pipe: all events",
        ]


async def test_a_new_pipe_that_is_unstable_goes_back_to_the_first_rate_until_it_is_declared_again(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path) as stream:
        stream.environment |= {
            "HIFI_PROVISION_NEW_PIPE_RATE": "1000",
            "HIFI_PROVISION_PHASE_S": "3",
            "HIFI_PROVISION_UNSTABLE_S": "1",
        }
        stream.run()
        limited = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        limited["source"]["quota"] = {"events": "40/s"}
        wanted = Pipe.model_validate(limited)
        await stream.declare(wanted)
        await stream.status(lambda one: one.share == WHOLE // 2)
        stream.condition = Condition.UNSTABLE
        back = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert back.reason.startswith("unstable for ")
        await stream.until_pipe(lambda one: one.cap == RateCap(share=WHOLE // 10, events_per_s=4))
        stream.condition = Condition.STABLE
        await stream.declare(wanted)
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        published = (await stream.pipes()).pipes["flights"]
        assert (published.cap, published.revision) == (None, 1)


async def test_a_pipe_waits_for_capacity_until_a_person_forces_it(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.environment["HIFI_OBSERVE_RATING"] = "100"
        stream.run()
        body = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        body["source"]["quota"] = {"events": "81/s"}
        await stream.declare(Pipe.model_validate(body))
        waiting = await stream.status(ended(RolloutState.WAITING, 0))
        assert waiting.reason.startswith("no capacity for 81 events/s of flights")
        assert not (await stream.pipes()).pipes
        await stream.ask(RequestKind.FORCE, waiting)
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        assert [one.forced_by for one in await stream.actions()] == ["ann"]
