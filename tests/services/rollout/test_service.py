"""The real service, as a process on a real Kafka. The test writes the verdicts and figures in place of observe."""

import asyncio
import signal
import time

import orjson
import pytest
from tests.support.rollout.controlled_stream import WITHIN_S, controlled, ended, pipe

from hifi.control.action import ActionState
from hifi.control.request import RequestKind
from hifi.control.rollout_status import RolloutState
from hifi.control.verdict import Condition
from hifi.pipe.model import Pipe
from hifi.pipe.revision import WHOLE, RateCap


async def test_declared_pipes_are_put_into_force_ramped_promoted_and_deleted(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.run()
        await stream.declare(pipe("a"))
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        await stream.declare(pipe("b"))
        final_status = await stream.status(ended(RolloutState.IN_FORCE, 1))
        assert (final_status.revision, final_status.author) == (2, "ann")
        assert [
            status.share for status in stream.statuses["flights"] if status.state is RolloutState.RAMPING
        ] != []
        registry = await stream.pipes()
        assert (registry.pipes["flights"].pipe, registry.pipes["flights"].number) == (pipe("b"), 2)
        summaries = [action.step for action in await stream.actions()]
        assert summaries == [
            "a new pipe: all events",
            "a revision after 1: 0 % to 10 %",
            "revision 2: 10 % to 50 %",
            "revision 2: 50 % to 100 %",
            "revision 2: promoted",
        ]
        assert {action.state for action in await stream.actions()} == {ActionState.DONE}
        await stream.declare(None)
        await stream.status(ended(RolloutState.IN_FORCE, 2))
        assert "flights" not in (await stream.pipes()).pipes


async def test_a_worse_revision_is_rolled_back_with_its_reason_and_not_begun_again(kafka, tmp_path):
    async with controlled(kafka, tmp_path, dead=0.3) as stream:
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        final_status = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert "dead letters: " in final_status.reason
        end_s = time.monotonic() + WITHIN_S
        while (await stream.pipes()).pipes["flights"].rollout is not None:
            assert time.monotonic() < end_s
            await asyncio.sleep(0.05)
        stream.dead = 0
        await stream.declare(pipe("b"))  # the same once more, since the cause is mended
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        kinds = [(action.kind.value, action.state.value) for action in await stream.actions()]
        assert kinds.count(("roll-back", "done")) == 1


async def test_a_rollout_waits_while_the_stream_is_unstable_and_a_person_can_force_pause_and_abort(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path, condition=Condition.UNSTABLE) as stream:
        stream.environment["HIFI_ROLLOUT_UNSTABLE_S"] = "600"
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        waiting_status = await stream.status(ended(RolloutState.WAITING, 0))
        assert waiting_status.reason == "the stream or the scope is unstable"
        await stream.ask(RequestKind.FORCE, waiting_status)
        ramping_status = await stream.status(lambda status: status.share == WHOLE // 10)
        await stream.ask(RequestKind.PAUSE, ramping_status)
        await stream.status(lambda status: status.state is RolloutState.PAUSED)
        await stream.ask(RequestKind.ABORT, ramping_status)
        final_status = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert final_status.reason == "aborted by ann"
        end_s = time.monotonic() + WITHIN_S
        while [action.forced_by for action in await stream.actions()] != ["ann", ""]:
            assert time.monotonic() < end_s, await stream.actions()
            await asyncio.sleep(0.05)


async def test_a_declaration_that_is_not_allowed_is_refused(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.run()
        body = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        body["normalize"] = {"function": "subprocess:call"}
        await stream.declare(Pipe.model_validate(body))
        refused_status = await stream.status(ended(RolloutState.REFUSED, 0))
        assert "not allowed" in refused_status.reason
        assert not (await stream.pipes()).pipes


async def test_a_rollout_service_that_is_killed_or_frozen_in_a_ramp_leaves_what_the_next_one_finishes(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path) as stream:
        await stream.put_at_once(pipe("a"))
        killed_process = stream.run()
        await stream.declare(pipe("b"))
        await stream.status(lambda status: status.share == WHOLE // 10)
        killed_process.kill()
        frozen_process = stream.run()
        await stream.status(lambda status: status.share >= WHOLE // 2)
        frozen_process.send_signal(signal.SIGSTOP)
        stream.run()
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        frozen_process.send_signal(signal.SIGCONT)
        end_s = time.monotonic() + WITHIN_S
        await stream.declare(pipe("c"))
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        while frozen_process.poll() is None:  # it writes, is refused, and ends
            assert time.monotonic() < end_s
            await asyncio.sleep(0.05)
        registry = await stream.pipes()
        assert (registry.pipes["flights"].pipe, registry.pipes["flights"].rollout) == (pipe("c"), None)
        log = (tmp_path / "rollout-1.log").read_bytes()
        assert b"another instance of this service has started" in log, orjson.dumps(log.decode()[-2000:])


async def test_a_pipe_is_paused_and_resumed_while_the_stream_is_unstable_and_keeps_how_far_it_is(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path, dead=0.3) as stream:
        await stream.put_at_once(pipe("a"))
        stream.run()
        await stream.declare(pipe("b"))
        final_status = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        stream.condition = Condition.UNSTABLE
        await stream.pause(paused=True)
        await stream.until_pipe(lambda revision: revision.paused)
        await stream.pause(paused=False)
        await stream.until_pipe(lambda revision: not revision.paused)
        summaries = [(action.kind.value, action.step, action.reason) for action in await stream.actions()]
        assert summaries[-2:] == [
            ("pause", "paused", "declared by ben"),
            ("pause", "active", "declared by ben"),
        ]
        flights = (await stream.pipes()).pipes["flights"]
        assert (flights.pipe, flights.rollout) == (pipe("a"), None), "what was rolled back is not begun again"
        assert stream.statuses["flights"][-1] == final_status


async def test_the_rate_of_a_new_pipe_rises_with_the_phases_and_waits_for_traffic(kafka, tmp_path):
    async with controlled(kafka, tmp_path, traffic=False) as stream:
        stream.environment["HIFI_ROLLOUT_NEW_PIPE_RATE"] = "1000"
        stream.run()
        await stream.declare(pipe("a"))
        waiting_status = await stream.status(lambda status: status.reason.startswith("too little traffic"))
        assert (waiting_status.state, waiting_status.share, waiting_status.revision) == (
            RolloutState.RAMPING,
            WHOLE // 10,
            1,
        )
        assert (await stream.pipes()).pipes["flights"].cap == RateCap(share=WHOLE // 10, events_per_s=100)
        stream.traffic = True
        final_status = await stream.status(ended(RolloutState.IN_FORCE, 0))
        assert "no reason against it in" in final_status.reason
        assert (await stream.pipes()).pipes["flights"].cap is None
        assert [action.step for action in await stream.actions()] == [
            "a new pipe: up to 100 events/s (10 %)",
            "the new pipe: up to 500 events/s (50 %)",
            "the new pipe: up to 1000 events/s (100 %)",
            "the new pipe: all events",
        ]


@pytest.mark.more
async def test_a_new_pipe_that_is_unstable_goes_back_to_the_first_rate_until_it_is_declared_again(
    kafka, tmp_path
):
    async with controlled(kafka, tmp_path) as stream:
        stream.environment |= {
            "HIFI_ROLLOUT_NEW_PIPE_RATE": "1000",
            "HIFI_ROLLOUT_PHASE_S": "3",
            "HIFI_ROLLOUT_UNSTABLE_S": "1",
        }
        stream.run()
        pipe_data = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        pipe_data["source"]["quota"] = {"events": "40/s"}
        limited_pipe = Pipe.model_validate(pipe_data)
        await stream.declare(limited_pipe)
        await stream.status(lambda status: status.share == WHOLE // 2)
        stream.condition = Condition.UNSTABLE
        final_status = await stream.status(ended(RolloutState.ROLLED_BACK, 0))
        assert final_status.reason.startswith("unstable for ")
        await stream.until_pipe(lambda revision: revision.cap == RateCap(share=WHOLE // 10, events_per_s=4))
        stream.condition = Condition.STABLE
        await stream.declare(limited_pipe)
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        new_pipe = (await stream.pipes()).pipes["flights"]
        assert (new_pipe.cap, new_pipe.number) == (None, 1)


async def test_a_pipe_waits_for_capacity_until_a_person_forces_it(kafka, tmp_path):
    async with controlled(kafka, tmp_path) as stream:
        stream.environment["HIFI_RATING"] = "100"
        stream.run()
        body = pipe("a").model_dump(mode="json", by_alias=True, exclude_unset=True)
        body["source"]["quota"] = {"events": "81/s"}
        await stream.declare(Pipe.model_validate(body))
        waiting_status = await stream.status(ended(RolloutState.WAITING, 0))
        assert waiting_status.reason.startswith("no capacity for 81 events/s of flights")
        assert not (await stream.pipes()).pipes
        await stream.ask(RequestKind.FORCE, waiting_status)
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        assert [action.forced_by for action in await stream.actions()] == ["ann"]
