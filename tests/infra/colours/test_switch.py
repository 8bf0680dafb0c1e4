"""Steps of a person on the colours: recorded in a real Kafka, and refused when they must wait."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.committed import until_readable

from hifi.clock import now_us
from hifi.control.action import Action, ActionKind, ActionState
from hifi.control.colours import NAMES, Colour, Colours, ColourSetup, ColourState
from hifi.control.steps import ActionLog, StepRefused
from hifi.control.verdict import Condition, Verdict
from hifi.errors import Misconfigured, Retryable
from hifi.event import Record
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.topics import ControlTopics, Topics
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_mesh import colour_topics
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.colours.switch import Switch
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningInstance, RunningMesh
from hifi_infra.ports import free_port

TO_GREEN = {"blue": 0, "green": 10_000}


@dataclass(slots=True)
class ColoursUnderTest:
    """Two colours whose meshes are one small server that is ready, or is not."""

    kafka: str
    stream: str
    folders: dict[str, Path]
    ready: bool = True

    def switch(self, *, forced: bool = False, kafka: str = "") -> Switch:
        return Switch(kafka or self.kafka, Topics(self.stream, ()), self.folders, "me", forced)

    async def judge(self, **conditions: Condition) -> None:
        producer = Producer(self.kafka, "test")
        await producer.start()
        for name, condition in conditions.items():
            verdict = Verdict("stream", condition, now_us(), now_us(), ("a reason",))
            record = Record(b"stream", verdict.encode(), [])
            await producer.send_and_wait(colour_topics(self.stream, name).health, 0, [record])
        await producer.stop()

    async def write(self, **states: ColourState) -> None:
        log = ColourLog(self.kafka, ControlTopics(f"{self.stream}-control").colours, "test")
        each = {
            name: Colour(10_000 * (state is ColourState.LIGHT), state, (), "")
            for name, state in ({"blue": ColourState.LIGHT, "green": ColourState.DARK} | states).items()
        }
        await log.write(Colours(each, "http://127.0.0.1:1", "", 1, "test"))

    async def states(self) -> dict[str, ColourState]:
        return {name: one.state for name, one in (await self.switch().colours()).colours.items()}

    async def actions(self) -> list[Action]:
        topic = ControlTopics(f"{self.stream}-control").actions
        await until_readable(self.kafka, topic)
        log = ActionLog(self.kafka, topic, "test")
        await log.start()
        await log.stop()
        return log.history.newest_first


@pytest.fixture
async def colours(kafka: str, tmp_path: Path) -> AsyncIterator[ColoursUnderTest]:
    found = ColoursUnderTest(kafka, f"s{uuid.uuid4().hex[:8]}", {name: tmp_path / name for name in NAMES})
    for topics in (
        ControlTopics(f"{found.stream}-control"),
        *(colour_topics(found.stream, n) for n in NAMES),
    ):
        await create_topics(kafka, topics, partitions=1, replication=1, create=True)
    await found.write()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            status = b"200 OK" if found.ready else b"503 Service Unavailable"
            body = b'{"state": "starting", "waiting": {"kafka": "Kafka is away"}}'
            writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    me = os.getpid()
    with contextlib.ExitStack() as stack:
        for name, folder in found.folders.items():
            stack.enter_context(running.lock(folder))
            instance = RunningInstance(
                service="ingest", number=1, pid=me, created=1, port=port, log=folder / "log"
            )
            mesh = RunningMesh(
                pid=me,
                created=running.created(me),
                stream=found.stream,
                kafka="",
                brokers=1,
                url=name,
                trigger="auto",
                instances=[instance],
            )
            running.write(folder, mesh)
        yield found
    server.close()


async def test_a_shift_is_recorded_as_a_step_and_changes_the_shares(colours: ColoursUnderTest) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    await colours.switch().shift(TO_GREEN, "because")
    found = await colours.switch().colours()
    assert (found.shares, found.by) == (TO_GREEN, "me")
    assert await colours.states() == {"blue": ColourState.DARK, "green": ColourState.LIGHT}
    (action,) = await colours.actions()
    assert (action.kind, action.state, action.reason) == (ActionKind.SHIFT, ActionState.DONE, "because")


async def test_a_shift_for_maintenance_waits_until_both_colours_are_stable(colours: ColoursUnderTest) -> None:
    for blue, green, why in (
        (Condition.STABLE, Condition.UNSTABLE, "green: .*unstable.*a reason"),
        (Condition.UNSTABLE, Condition.STABLE, "blue: .*unstable"),
        (Condition.UNKNOWN, Condition.STABLE, "blue: the health is unknown"),
    ):
        await colours.judge(blue=blue, green=green)
        with pytest.raises(StepRefused, match=why):
            await colours.switch().shift(TO_GREEN, "because")
    assert (await colours.switch().colours()).by == "test"
    assert await colours.actions() == []


async def test_a_shift_for_recovery_does_not_wait_for_a_verdict(colours: ColoursUnderTest) -> None:
    await colours.switch().shift(TO_GREEN, "blue is lost", recovery=True)
    assert (await colours.switch().colours()).shares == TO_GREEN
    assert [one.kind for one in await colours.actions()] == [ActionKind.RECOVER]


async def test_a_forced_shift_names_who_forced_it(colours: ColoursUnderTest) -> None:
    await colours.judge(blue=Condition.UNSTABLE, green=Condition.UNSTABLE)
    await colours.switch(forced=True).shift(TO_GREEN, "because")
    assert [one.forced_by for one in await colours.actions()] == ["me"]


async def test_a_colour_that_is_not_ready_gets_no_requests(colours: ColoursUnderTest) -> None:
    colours.ready = False
    with pytest.raises(Retryable, match="green is not ready: ingest-1: Kafka is away"):
        await colours.switch().shift(TO_GREEN, "because", recovery=True)
    assert (await colours.switch().colours()).by == "test"


async def test_a_colour_with_requests_does_not_sleep(colours: ColoursUnderTest) -> None:
    with pytest.raises(Misconfigured, match="hifi colour shift green"):
        await colours.switch().sleep("blue", "because", 1, print)
    assert (await colours.states())["blue"] is ColourState.LIGHT


async def test_a_colour_gets_another_setup_only_when_it_wakes_and_the_step_says_which(
    colours: ColoursUnderTest,
) -> None:
    change = SetupChange(settings={"HIFI_ENRICH_DRIVER_MEMORY": "2g"})
    with pytest.raises(Misconfigured, match="hifi colour sleep green"):
        await colours.switch().wake("green", "because", 60, change)
    with pytest.raises(Misconfigured, match="no jars of Kafka 1"):
        await colours.switch().wake("green", "because", 60, SetupChange(kafka_version="1"))
    assert await colours.actions() == []
    await colours.write(green=ColourState.ASLEEP)
    assert await colours.switch().wake("green", "because", 60, change) is None
    found = (await colours.switch().colours()).colours
    assert found["green"].setup == ColourSetup(settings={"HIFI_ENRICH_DRIVER_MEMORY": "2g"})
    assert (found["green"].state, found["blue"].setup) == (ColourState.DARK, ColourSetup())
    assert [one.step for one in await colours.actions()] == ["green wakes with HIFI_ENRICH_DRIVER_MEMORY=2g"]


async def test_what_waits_in_a_colour_whose_kafka_is_away_is_not_taken_for_nothing(
    colours: ColoursUnderTest,
) -> None:
    await colours.judge(blue=Condition.STABLE, green=Condition.STABLE)
    with pytest.raises(Retryable, match="hifi colour wake blue"):
        await colours.switch().drain("blue", "because", 60, print)
    assert await colours.states() == {"blue": ColourState.DRAINING, "green": ColourState.LIGHT}


async def test_without_the_control_planes_kafka_nothing_changes(colours: ColoursUnderTest) -> None:
    away = colours.switch(kafka=f"127.0.0.1:{free_port()}")
    with pytest.raises(Misconfigured, match="the front keeps its shares"):
        await away.shift(TO_GREEN, "because", recovery=True)
    assert (await colours.switch().colours()).by == "test"
