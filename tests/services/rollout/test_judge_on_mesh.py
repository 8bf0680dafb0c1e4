"""Five real runs of the judge: 2 % more dead letters go back soon, an equal revision is promoted."""

import asyncio
import contextlib
from collections import Counter

import aiohttp
import pytest
from tests.support.egest.fake_destination import destination
from tests.support.steady_load import WRITE_KEY, SteadyLoad
from tests.support.stream_process import PARTITIONS, read_all

from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.pipe.model import Pipe
from hifi.record.fields import fields
from hifi.runtime.errors import Misconfigured
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(1500), pytest.mark.more]
RUNS = 5
EVENTS_PER_S = 200
MOST_EVENTS = 2_000
WITHIN_S = 400


def orders(url: str, shape: str, *required: str) -> Pipe:
    """A pipe that may require a field, which 2 of 100 events do not have."""
    return Pipe.model_validate(
        {
            "pipe": "orders",
            "source": {"keys": [{"env": "JUDGED_KEY"}]},
            "enrich": {"fields": {"n": "int", "vip": "int"}, "required": required},
            "destinations": [{"name": "crm", "url": url, "headers": {"x-shape": shape}}],
            "slo": {"p95": "30s"},
        }
    )


async def test_2_percent_more_dead_letters_go_back_within_2000_events_and_equal_revisions_do_not(
    tmp_path,
) -> None:
    settings = {
        "JUDGED_KEY": WRITE_KEY,
        "HIFI_ROLLOUT_PHASES": "50,100",
        "HIFI_ROLLOUT_PHASE_S": "5",
        "HIFI_ROLLOUT_PHASE_EVENTS": str(MOST_EVENTS),
        "HIFI_OBSERVE_STABLE_S": "5",
    }
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=PARTITIONS,
        scale={"observe": 1},
        control=True,
        env=settings,
    )
    assert plan.control_topics is not None
    mesh = Mesh(plan)
    mesh.prepare()
    async with destination() as receiver, aiohttp.ClientSession() as session:
        await mesh.start([orders(receiver.url, "old")])
        try:
            await mesh.wait_ready(180)
            control = ControlPlane(mesh.bootstrap, plan.control_topics)

            async def ended(pipe: Pipe) -> RolloutStatus:
                await control.declare({"orders": pipe}, {})
                status = None
                async with asyncio.timeout(WITHIN_S):
                    while status is None or not status.state.final:
                        await asyncio.sleep(1)
                        # On a busy machine Kafka may answer later than a command waits for it.
                        with contextlib.suppress(Misconfigured):
                            status = (await control.statuses())["orders"]
                return status

            load = SteadyLoad(
                session, plan.url, EVENTS_PER_S, lambda n: {"n": n} | ({"vip": 1} if n % 100 > 1 else {})
            )
            load_task = asyncio.create_task(load.run())
            worse_statuses = [
                await ended(orders(receiver.url, f"worse-{number}", "vip")) for number in range(RUNS)
            ]
            equal_statuses = [await ended(orders(receiver.url, f"equal-{number}")) for number in range(RUNS)]
            load_task.cancel()
            await asyncio.gather(load_task, return_exceptions=True)
            raw = await read_all(mesh.bootstrap, mesh.topics.raw)
        finally:
            await mesh.stop()
    events = Counter(int(fields(record.headers)["hifi_revision"]) for record in raw)
    print(
        *(f"{status.state.value}: {status.reason}" for status in (*equal_statuses, *worse_statuses)), sep="\n"
    )
    print("events of the worse revisions:", [events[status.revision or 0] for status in worse_statuses])
    assert {status.state for status in equal_statuses} == {RolloutState.IN_FORCE}
    assert {status.state for status in worse_statuses} == {RolloutState.ROLLED_BACK}
    assert all("dead letters: " in status.reason for status in worse_statuses)
    assert all(events[status.revision or 0] <= MOST_EVENTS for status in worse_statuses)
