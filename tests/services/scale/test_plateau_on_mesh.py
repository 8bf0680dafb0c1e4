"""Slow destinations on a real mesh: CPU stays low, full lanes are why egest grows, and it shrinks without a loss."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination
from tests.support.steady_load import WRITE_KEY, SteadyLoad

from hifi.control.action import Action, ActionKind, ActionState
from hifi.control.action_right import ActionLog
from hifi.pipe.model import Pipe
from hifi_infra.autoscaler.policy import Policy
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(900), pytest.mark.more]
EVENTS_PER_S = 40
ANSWER_S = 0.4
CONCURRENCY = 4
"""So one instance delivers 10 events a second, however little CPU it needs for that."""
MOST = 3
WITHIN_S = 300
SETTINGS = {
    "SLOW_KEY": WRITE_KEY,
    "HIFI_SCALE_DOWN_AFTER_S": "5",
    "HIFI_OBSERVE_STABLE_S": "5",
}
FIGURES = re.compile(r"CPU ([\d.]+) cores each, backlog (\d+) records, lanes (\d+)% full")


def orders(url: str) -> Pipe:
    """A pipe whose destination takes few requests at a time."""
    declaration = {
        "pipe": "orders",
        "source": {"keys": [{"env": "SLOW_KEY"}]},
        "destinations": [{"name": "slow", "url": url, "concurrency": CONCURRENCY}],
        "slo": {"p95": "120s"},
    }
    return Pipe.model_validate(declaration)


async def done_actions(log: ActionLog, kind: ActionKind) -> list[Action]:
    """The actions of a kind that are done, oldest first."""
    await log.catch_up()
    return [
        action
        for action in reversed(log.history.newest_first)
        if action.kind is kind and action.state is ActionState.DONE
    ]


async def test_egest_grows_by_its_lanes_while_cpu_stays_low_and_shrinks_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_TIERS", "2s,10s")  # of the topics and of every service
    received_counts: Counter[int] = Counter()

    async def slowly(request: ReceivedRequest) -> bytes:
        await asyncio.sleep(ANSWER_S)
        received_counts[orjson.loads(request.body)["n"]] += 1
        return OK

    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=4,
        scale={"observe": 1},
        control=True,
        bounds={"egest": (1, MOST)},
        env=SETTINGS,
    )
    assert plan.control_topics is not None
    mesh = Mesh(plan)
    mesh.prepare()
    async with destination(slowly) as receiver, aiohttp.ClientSession() as session:
        await mesh.start([orders(receiver.url)])
        try:
            await mesh.wait_ready(180)
            log = ActionLog(mesh.bootstrap, plan.control_topics.actions, "test")
            await log.start()
            load = SteadyLoad(session, mesh.plan.url, EVENTS_PER_S, lambda number: {"n": number})
            load_task = asyncio.create_task(load.run())
            async with asyncio.timeout(WITHIN_S):
                while not (scale_outs := await done_actions(log, ActionKind.SCALE_OUT)):
                    await asyncio.sleep(0.5)
            load_task.cancel()
            await asyncio.gather(load_task, return_exceptions=True)
            async with asyncio.timeout(WITHIN_S):
                while len(mesh.instances["egest"]) > 1 or load.accepted - received_counts.keys():
                    await asyncio.sleep(0.5)
                while not (scale_ins := await done_actions(log, ActionKind.SCALE_IN)):
                    await asyncio.sleep(0.5)
            await log.stop()
        finally:
            await mesh.stop()
    policy, figures = Policy(), FIGURES.search(scale_outs[0].reason)
    assert figures is not None, scale_outs[0].reason
    cpu, backlog, lanes = (float(figure) for figure in figures.groups())
    print(f"{scale_outs[0].step}: {scale_outs[0].reason}")
    print(f"then {len(scale_ins)} actions in, {len(load.accepted):,} delivered")
    assert cpu < policy.cpu_high, "CPU alone would have grown it"
    assert backlog < policy.backlog_high, "the backlog alone would have grown it"
    assert lanes >= 100 * policy.occupancy_high
    assert load.accepted <= received_counts.keys(), "an event was lost"
    assert set(received_counts.values()) == {1}, "an event arrived twice"
