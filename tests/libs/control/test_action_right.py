"""The right to an action, on a real Kafka: one holder at a time, tokens that rise, and actors that vanish."""

import asyncio
import gc
import uuid
from concurrent.futures import ThreadPoolExecutor

from hifi.control.action import Action, ActionKind, ActionState
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.permission import GRANTED, permission
from hifi.control.verdict import Condition
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Retryable


def action_of(actor: str, name: str, lasts_s: float = 60) -> Action:
    began_us = now_us()
    return Action(
        actor, ActionKind.ROLLOUT, "pipe/flights", name, "test", began_us, began_us + int(lasts_s * 1_000_000)
    )


def allowed(history):
    return permission(ActionKind.ROLLOUT, "pipe/flights", Condition.STABLE, history.running, now_us())


async def rights(kafka: str, topic: str, count: int) -> list[ActionRight]:
    identity = f"test-{uuid.uuid4().hex}"
    action_rights = [ActionRight(kafka, topic, identity, f"actor-{number}") for number in range(count)]
    await asyncio.gather(*(action_right.start() for action_right in action_rights))
    return action_rights


async def test_of_several_actors_at_the_same_time_one_takes_the_action(kafka, topic, caplog):
    actors = await rights(kafka, await topic(), 4)
    tokens = []
    try:
        for number in range(3):
            answers = await asyncio.gather(
                *(
                    actor.begin(action_of(f"actor-{actor_index}", f"action {number}"), allowed)
                    for actor_index, actor in enumerate(actors)
                ),
                return_exceptions=True,
            )
            assert all(isinstance(answer, Action | ActionRefused | Retryable) for answer in answers), answers
            won = [
                (actor_index, answer)
                for actor_index, answer in enumerate(answers)
                if isinstance(answer, Action)
            ]
            assert len(won) <= 1
            if not won:  # each was fenced by the next one before it could write
                begun_alone = await actors[0].begin(action_of("actor-0", f"action {number} again"), allowed)
                won = [(0, begun_alone)]
            actor_index, action = won[0]
            assert action.token is not None
            tokens.append(action.token)
            await actors[actor_index].end(action, ActionState.DONE, "done")
    finally:
        await asyncio.gather(*(actor.stop() for actor in actors))
    assert tokens == sorted(set(tokens))
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_an_action_that_runs_holds_up_the_next_one_until_it_ends(kafka, topic):
    first, second = await rights(kafka, await topic(), 2)
    try:
        action = await first.begin(action_of("rollout", "1 % to 10 %"), allowed)
        refusals = await asyncio.gather(
            second.begin(action_of("deploy", "egest-1"), allowed), return_exceptions=True
        )
        assert isinstance(refusals[0], ActionRefused)
        assert "rollout acts on pipe/flights: 1 % to 10 %" in str(refusals[0])
        await first.end(action, ActionState.DONE, "10 %")
        next_action = await second.begin(action_of("deploy", "egest-1"), allowed)
        assert action.token is not None
        assert next_action.token is not None
        assert next_action.token > action.token
        assert [logged_action.state for logged_action in second.log.history.newest_first] == [
            ActionState.STARTED,
            ActionState.DONE,
        ]
    finally:
        await asyncio.gather(first.stop(), second.stop())


async def test_an_action_whose_actor_vanished_is_ended_by_the_next_one(kafka, topic):
    vanished_actor, next_actor = await rights(kafka, await topic(), 2)
    try:
        await vanished_actor.begin(action_of("rollout", "1 % to 10 %", lasts_s=0), allowed)
        action = await next_actor.begin(action_of("rollout", "10 % to 0 %"), allowed)
        running, ended_action = next_actor.log.history.newest_first
        assert running == action
        assert (ended_action.state, ended_action.outcome) == (ActionState.FAILED, "it did not end in time")
    finally:
        await asyncio.gather(vanished_actor.stop(), next_actor.stop())


async def test_an_actor_that_was_overtaken_while_it_decided_writes_nothing(kafka, topic):
    slow_actor, fast_actor = await rights(kafka, await topic(), 2)

    def take_over() -> Action:
        """Another actor, in a thread of its own: it takes the right while the slow one is frozen in its decision."""

        async def take() -> Action:
            overtaker = ActionRight(kafka, slow_actor._topic, slow_actor._writer._transactional_id, "other")
            await overtaker.start()
            try:
                return await overtaker.begin(action_of("deploy", "overtakes"), allowed)
            finally:
                await overtaker.stop()

        return asyncio.run(take())

    def decide_slowly(history):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(take_over).result(timeout=60)
        return GRANTED

    try:
        outcomes = await asyncio.gather(
            slow_actor.begin(action_of("rollout", "is overtaken"), decide_slowly), return_exceptions=True
        )
        assert isinstance(outcomes[0], ActionRefused), outcomes
        await fast_actor.log.catch_up()
        assert [logged_action.step for logged_action in fast_actor.log.history.newest_first] == ["overtakes"]
    finally:
        await asyncio.gather(slow_actor.stop(), fast_actor.stop())
