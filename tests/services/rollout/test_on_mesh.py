"""Rollouts on a real mesh under load: a good revision is promoted, one that makes dead letters is rolled back."""

import asyncio
import time
from collections import Counter

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination
from tests.support.steady_load import WRITE_KEY, SteadyLoad

from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(600), pytest.mark.more]
MISSING_OF_10 = 3
EVENTS_PER_S = 100
WITHIN_S = 240


def pipe(url: str, shape: str, *required: str) -> Pipe:
    """A pipe that may require a field, which 3 of 10 events do not have."""
    return Pipe.model_validate(
        {
            "pipe": "orders",
            "source": {"keys": [{"env": "RAMP_KEY"}]},
            "enrich": {"fields": {"n": "int", "vip": "int"}, "required": required},
            "destinations": [{"name": "crm", "url": url, "headers": {"x-shape": shape}}],
        }
    )


async def test_good_revisions_are_promoted_and_bad_ones_go_back_on_a_mesh_under_load(tmp_path) -> None:
    received_counts: Counter[int] = Counter()

    async def take(request: ReceivedRequest) -> bytes:
        received_counts[orjson.loads(request.body)["n"]] += 1
        return OK

    settings = {
        "RAMP_KEY": WRITE_KEY,
        "HIFI_ROLLOUT_PHASES": "10,50,100",
        "HIFI_ROLLOUT_PHASE_S": "5",
        "HIFI_ROLLOUT_PHASE_EVENTS": "50",
        "HIFI_OBSERVE_STABLE_S": "5",
    }
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=2,
        scale={"observe": 1},
        control=True,
        env=settings,
    )
    mesh = Mesh(plan)
    mesh.prepare()
    async with destination(take) as receiver, aiohttp.ClientSession() as session:
        await mesh.start([pipe(receiver.url, "old")])
        try:
            await mesh.wait_ready(180)
            assert plan.control_topics is not None
            control = ControlPlane(mesh.bootstrap, plan.control_topics)

            async def ended(shape: str, *required: str) -> RolloutStatus:
                await control.declare({"orders": pipe(receiver.url, shape, *required)}, {})
                end_s = time.monotonic() + WITHIN_S
                while True:
                    status = (await control.statuses())["orders"]
                    if status.state.final:
                        return status
                    assert time.monotonic() < end_s, status
                    await asyncio.sleep(0.5)

            load = SteadyLoad(
                session,
                plan.url,
                EVENTS_PER_S,
                lambda number: {"n": number} | ({} if number % 10 < MISSING_OF_10 else {"vip": 1}),
            )
            load_task = asyncio.create_task(load.run())
            good_status = await ended("new")
            assert (good_status.state, good_status.revision) == (RolloutState.IN_FORCE, 2), good_status
            bad_status = await ended("bad", "vip")
            assert (bad_status.state, bad_status.revision) == (RolloutState.ROLLED_BACK, 3), bad_status
            assert "dead letters: " in bad_status.reason
            load_task.cancel()
            await asyncio.gather(load_task, return_exceptions=True)
            registry = await read_registry(mesh.bootstrap, mesh.topics)
            assert registry.pipes["orders"].number == 2
            end_s = time.monotonic() + WITHIN_S
            while missing_numbers := load.accepted - received_counts.keys():
                if (
                    all(number % 10 < MISSING_OF_10 for number in missing_numbers)
                    and len(missing_numbers) < 500
                ):
                    break
                assert time.monotonic() < end_s, f"{len(missing_numbers)} did not arrive"
                await asyncio.sleep(0.2)
            assert missing_numbers, "no event became a dead letter"
            assert set(received_counts.values()) == {1}, "an event arrived twice"
            print(
                f"{len(load.accepted):,} accepted, {len(missing_numbers)} dead letters; {good_status}; {bad_status}"
            )
        finally:
            await mesh.stop()
