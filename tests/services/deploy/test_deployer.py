"""The real service on a real Kafka, with a real supervisor of stand-in services with good and bad releases.

The test writes the verdicts in place of observe.
"""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.committed import until_readable

from hifi.control.action import ActionKind, ActionState
from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import INSTALLED
from hifi.control.request import RequestKind
from hifi.control.steps import ActionLog
from hifi.control.verdict import Condition, Verdict
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_cli.mesh_state.audited_command import author
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, command
from hifi_infra.ports import free_port

STAND_IN = Path(__file__).parents[2] / "support" / "programs" / "stand_in_service.py"
WITHIN_S = 300


@dataclass
class DeployedMesh:
    """A mesh of stand-ins with two instances of egest.

    Attributes:
        mesh: the mesh.
        control: the control plane.
        log: the log of its actions.
        folder: the folder of releases.
        condition: the condition in all verdicts.
    """

    mesh: Mesh
    control: ControlPlane
    log: ActionLog
    folder: Path
    condition: Condition = Condition.STABLE

    def release(self, name: str, behaviour: str = "") -> str:
        """A release whose stand-ins have this behaviour."""
        release = self.folder / name
        (release / "libs").mkdir(parents=True)
        (release / "libs" / "stand_in_behaviour.py").write_text(f"BEHAVIOUR = {behaviour!r}\n")
        return str(release)

    async def observe(self, kafka: str) -> None:
        """Write verdicts until cancelled."""
        producer = Producer(kafka, "observer")
        await producer.start()
        try:
            while True:
                time_us = now_us()
                records = [
                    Record(scope.encode(), Verdict(scope, self.condition, time_us, time_us).encode(), [])
                    for scope in ("stream", "service/egest")
                ]
                await producer.send_and_wait(self.control.topics.health, 0, records)
                await asyncio.sleep(0.5)
        finally:
            await producer.stop(timeout_s=1)

    async def tell(self, condition: Condition) -> None:
        """Write another verdict from now on, and wait until it can be read."""
        self.condition = condition
        async with asyncio.timeout(WITHIN_S):
            while {verdict.condition for verdict in await self.control.verdicts()} != {condition}:
                await asyncio.sleep(0.1)

    def running(self) -> dict[str, str]:
        """Instance to its release."""
        return {instance.name: instance.spec.release for instance in self.mesh.instances["egest"]}

    async def status(self, holds: Callable[[Deployment], Any]) -> Deployment:
        """Wait for a state of the deployment."""
        deployment: Deployment | None = None
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    deployment = (await self.control.deployments())["egest"]
                    if holds(deployment):
                        return deployment
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{deployment}, {self.running()}") from None

    async def settled(self, release: str, state: DeploymentState) -> Deployment:
        """Wait until the deployment has ended and two instances run a release, and no step runs."""
        deployment = await self.status(lambda status: status.state.final and not status.canary)
        assert deployment.state is state, deployment
        async with asyncio.timeout(WITHIN_S):
            await self.log.catch_up()
            while self.running() != {"egest-1": release, "egest-2": release} or self.log.history.running:
                await asyncio.sleep(0.1)
                await self.log.catch_up()
        return deployment


@asynccontextmanager
async def deployed(kafka: str, tmp_path: Path, monkeypatch) -> AsyncIterator[DeployedMesh]:
    """A mesh whose egest can be deployed."""
    monkeypatch.setattr(
        fleet,
        "command",
        lambda service: command(service) if service == "deploy" else [sys.executable, str(STAND_IN), service],
    )
    plan = Plan(
        data=tmp_path / "data",
        kafka=kafka,
        stream=f"d{uuid.uuid4().hex[:8]}",
        port=free_port(),
        partitions=2,
        scale={"egest": 2, "enrich": 0},
        control=True,
        env={"HIFI_DEPLOY_STABLE_S": "2", "HIFI_DEPLOY_EVENTS": "20", "HIFI_DEPLOY_READY_S": "8"},
    )
    assert plan.control_topics is not None
    mesh = Mesh(plan)
    await mesh.start()
    log = ActionLog(kafka, plan.control_topics.actions, "test")
    await log.start()
    deployed_mesh = DeployedMesh(mesh, ControlPlane(kafka, plan.control_topics), log, tmp_path)
    observer_task = asyncio.create_task(deployed_mesh.observe(kafka))
    try:
        await mesh.wait_ready(60)
        yield deployed_mesh
    finally:
        observer_task.cancel()
        await asyncio.wait([observer_task])
        await log.stop()
        await mesh.stop()


async def test_a_release_goes_everywhere_and_what_is_worse_goes_back(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        await mesh.tell(Condition.UNSTABLE)
        good_release = mesh.release("good")
        await mesh.control.deploy("egest", good_release, 1)
        await mesh.status(lambda status: "unstable" in status.reason)
        assert set(mesh.running().values()) == {INSTALLED}
        mesh.condition = Condition.STABLE
        deployment = await mesh.status(lambda status: status.state is DeploymentState.CANARY)
        assert (deployment.canary, deployment.before) == ("egest-3", INSTALLED)
        await mesh.settled(good_release, DeploymentState.IN_FORCE)
        await mesh.control.deploy("egest", mesh.release("bad", "crashes"), 2)
        deployment = await mesh.settled(good_release, DeploymentState.ROLLED_BACK)
        assert "egest-3 ended 2 times by itself" in deployment.reason
        assert deployment.before == good_release
        await mesh.control.deploy("egest", str(tmp_path / "absent"), 1)
        deployment = await mesh.settled(good_release, DeploymentState.REFUSED)
        assert "is no folder" in deployment.reason
        kinds = {
            (action.kind, action.state)
            for action in mesh.log.history.newest_first
            if action.actor == "deploy"
        }
        assert (ActionKind.ROLL_BACK, ActionState.DONE) in kinds
        assert (ActionKind.DEPLOY, ActionState.DONE) in kinds


@pytest.mark.more
async def test_whatever_is_worse_goes_back_with_its_reason(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        for behaviour, reason in (
            ("never-ready", "egest-3 was not ready for 8 s"),
            ("dead-letters", "dead letters: "),
        ):
            await mesh.control.deploy("egest", mesh.release(behaviour, behaviour), 2)
            deployment = await mesh.settled(INSTALLED, DeploymentState.ROLLED_BACK)
            assert reason in deployment.reason


@pytest.mark.more
async def test_a_person_forces_pauses_and_aborts_a_deployment(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        await mesh.tell(Condition.UNSTABLE)
        await mesh.control.deploy("egest", mesh.release("next"), 1)
        await mesh.status(lambda status: "unstable" in status.reason)
        await mesh.control.ask_deployer("egest", RequestKind.FORCE)
        await mesh.status(lambda status: status.state is DeploymentState.CANARY)
        await mesh.control.ask_deployer("egest", RequestKind.PAUSE)
        await mesh.status(lambda status: status.reason.startswith("paused by"))
        assert sorted(mesh.running().values()).count(INSTALLED) == 2
        await mesh.control.ask_deployer("egest", RequestKind.FORCE)
        await mesh.status(lambda status: status.stage == 2)
        assert sorted(mesh.running().values()).count(INSTALLED) == 1
        await until_readable(kafka, mesh.control.topics.actions)
        await mesh.log.catch_up()
        forced_actions = [
            action
            for action in mesh.log.history.newest_first
            if action.actor == "deploy" and action.forced_by
        ]
        assert [action.forced_by for action in forced_actions] == [author()] * 2
        assert forced_actions[0].reason == f"forced by {author()}"
        await mesh.control.ask_deployer("egest", RequestKind.ABORT)
        deployment = await mesh.settled(INSTALLED, DeploymentState.ROLLED_BACK)
        assert deployment.reason.startswith("aborted by")


@pytest.mark.more
async def test_a_deployer_that_is_killed_in_each_of_its_steps_leaves_nothing_half_done(
    kafka, tmp_path, monkeypatch
) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        good_release = mesh.release("good")
        await mesh.control.deploy("egest", good_release, 1)
        steps = 0
        while not (await mesh.status(lambda _: True)).state.final:
            started_steps = sum(action.actor == "deploy" for action in mesh.log.history.newest_first)
            if started_steps > steps:  # each step is interrupted once, soon after it began
                steps = started_steps
                os.kill(mesh.mesh.instances["deploy"][0].process.pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
            await mesh.log.catch_up()
        await mesh.settled(good_release, DeploymentState.IN_FORCE)
        assert steps >= 3
