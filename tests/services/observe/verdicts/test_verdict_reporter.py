"""On a real Kafka: verdicts reach the control plane, and its actions silence the alarms that they explain."""

import asyncio
import secrets

import pytest
from tests.support.observe.stream_double import Stream, new_stream

from hifi.control.action import Action, ActionKind, ActionState
from hifi.control.action_right import ActionRight
from hifi.control.permission import GRANTED
from hifi.control.verdict import Condition, Verdicts
from hifi.kafka.admin import create_topics
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.runtime.clock import now_us

WITHIN_S = 300


@pytest.fixture
async def stream(kafka: str):
    async with new_stream(kafka) as stream:
        yield stream


@pytest.fixture
async def control(kafka: str) -> ControlTopics:
    topics = ControlTopics(f"c{secrets.token_hex(4)}")
    await create_topics(kafka, topics, partitions=1, replication=1)
    return topics


async def until(condition, within_s: float = WITHIN_S) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


async def test_verdicts_change_with_what_happens(stream: Stream, control: ControlTopics) -> None:
    verdicts = Verdicts()
    follower = TopicFollower(stream.kafka, "test", {control.health: verdicts.take})
    await follower.start()

    async def judged(condition: Condition) -> None:
        async with asyncio.timeout(WITHIN_S):
            while verdicts.condition(("stream", "pipe/flights"), now_us()) is not condition:
                await follower.catch_up()
                await asyncio.sleep(0.05)

    minute = now_us() // 60_000_000 - 3
    try:
        async with stream.observing(control=control.control, observe_stable_s=3600):
            await stream.events(0, minute, 20)
            await asyncio.gather(stream.commit(0), stream.commit(1))
            await judged(Condition.STABLE)
            await stream.events(0, minute + 1, 20, lose={"normalized": [3]})
            await asyncio.gather(stream.commit(0), stream.commit(1))
            await judged(Condition.UNSTABLE)
            verdict = verdicts.get("stream")
            assert verdict is not None
            assert "events were lost" in verdict.reasons
    finally:
        await follower.stop()
    verdict = verdicts.get("stream")
    assert verdict is not None
    assert now_us() - verdict.at_us < WITHIN_S * 1_000_000


async def test_an_action_silences_what_it_explains_while_it_runs(
    stream: Stream, control: ControlTopics
) -> None:
    right = ActionRight(stream.kafka, control.actions, control.actor, "deploy")
    await right.start()
    deployment = Action(
        "deploy",
        ActionKind.DEPLOY,
        "service/egest",
        "egest-1 to 0.2.0",
        "test",
        now_us(),
        now_us() + 60_000_000,
    )
    try:
        async with stream.observing(control=control.control) as (observer, _):
            silences = observer.judge.notifier.alarms.silences
            action = await right.begin(deployment, lambda _: GRANTED)
            await until(lambda: any(silence.subject == "egest" for silence in silences.values()))
            assert {silence.kind for silence in silences.values()} == {"no-progress", "lag"}
            await right.end(action, ActionState.DONE, "done")
            ends_us = action.expected_end_us
            await until(
                lambda: all(silence.until_us != ends_us + 60_000_000 for silence in silences.values())
            )
    finally:
        await right.stop()
