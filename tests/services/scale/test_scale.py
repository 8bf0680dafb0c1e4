"""The real service on a real Kafka, with a real supervisor of stand-in services: when it changes their number.

The test itself writes the verdicts, in place of observe.
"""

import asyncio
import sys
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hifi.control.action import ActionHistory, ActionKind, ActionState
from hifi.control.action_right import ActionLog
from hifi.control.verdict import Condition, Verdict
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, command
from hifi_infra.ports import free_port

STUB = Path(__file__).parents[2] / "support" / "programs" / "stub_service.py"
WITHIN_S = 300


class Observer:
    """Writes the same verdict on every scope again and again."""

    def __init__(self, mesh: Mesh, kafka: str) -> None:
        self.condition: Condition | None = None
        assert mesh.plan.control_topics is not None
        self._topic = mesh.plan.control_topics.health
        self._producer = Producer(kafka, "observer")

    async def run(self) -> None:
        await self._producer.start()
        try:
            while True:
                if self.condition is not None:
                    time_us = now_us()
                    records = [
                        Record(scope.encode(), Verdict(scope, self.condition, time_us, time_us).encode(), [])
                        for scope in ("stream", "service/egest")
                    ]
                    await self._producer.send_and_wait(self._topic, 0, records)
                await asyncio.sleep(0.5)
        finally:
            await self._producer.stop(timeout_s=1)


@asynccontextmanager
async def scaled(kafka, tmp_path, monkeypatch, egest: int, bounds: tuple[int, int]):
    """A mesh of stand-ins whose egest is scaled, its verdicts and its actions."""
    monkeypatch.setattr(
        fleet,
        "command",
        lambda service: command(service) if service == "scale" else [sys.executable, str(STUB), service],
    )
    plan = Plan(
        data=tmp_path / "data",
        kafka=kafka,
        stream=f"s{uuid.uuid4().hex[:8]}",
        port=free_port(),
        partitions=2,
        scale={"egest": egest, "enrich": 0},
        control=True,
        bounds={"egest": bounds},
        env={"HIFI_SCALE_DOWN_AFTER_S": "5"},
    )
    mesh = Mesh(plan)
    await mesh.start()
    assert plan.control_topics is not None
    log = ActionLog(kafka, plan.control_topics.actions, "test")
    await log.start()
    observer = Observer(mesh, kafka)
    observing = asyncio.create_task(observer.run())
    try:
        await mesh.wait_ready(60)
        yield mesh, observer, log
    finally:
        observing.cancel()
        await asyncio.wait([observing])
        await log.stop()
        await mesh.stop()


async def until(condition, log: ActionLog | None = None) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.1)
            if log is not None:
                await log.catch_up()


def ended(history: ActionHistory) -> list[tuple[str, ActionState, str]]:
    return [(action.kind, action.state, action.step) for action in history.newest_first]


async def test_scale_in_waits_for_a_stable_stream_and_is_recorded(kafka, tmp_path, monkeypatch) -> None:
    async with scaled(kafka, tmp_path, monkeypatch, egest=2, bounds=(1, 3)) as (mesh, observer, log):
        scale_log = mesh.instances["scale"][0].log
        await until(lambda: "observe gives no verdict" in scale_log.read_text())
        observer.condition = Condition.UNSTABLE
        await until(lambda: "the stream or the scope is unstable" in scale_log.read_text())
        assert len(mesh.instances["egest"]) == 2
        observer.condition = Condition.STABLE
        await until(lambda: len(mesh.instances["egest"]) == 1)
        await until(lambda: log.history.newest_first and not log.history.running, log)
        assert ended(log.history) == [(ActionKind.SCALE_IN, ActionState.DONE, "egest: 2 to 1 instances")]


@pytest.mark.more
async def test_scale_out_needs_no_verdict(kafka, tmp_path, monkeypatch) -> None:
    async with scaled(kafka, tmp_path, monkeypatch, egest=1, bounds=(2, 3)) as (mesh, _, log):
        await until(lambda: len(mesh.instances["egest"]) == 2)
        await until(lambda: log.history.newest_first and not log.history.running, log)
        assert ended(log.history) == [(ActionKind.SCALE_OUT, ActionState.DONE, "egest: 1 to 2 instances")]
