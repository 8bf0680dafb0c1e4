"""A mesh of stand-ins with a real deployer, and a real scaler if there are bounds; the test is observe."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hifi.control.action_right import ActionLog
from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import INSTALLED
from hifi.control.verdict import Condition, Verdict
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, command
from hifi_infra.ports import free_port

STAND_IN = Path(__file__).parents[1] / "programs" / "stand_in_service.py"
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
                    for scope in (
                        "stream",
                        "service/egest",
                        *(f"service/{name}" for name in self.mesh.plan.bounds),
                    )
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

    async def kill_actors(self, release: str) -> None:
        """Kill deploy and scale, and start those of another release."""
        for service in ("deploy", "scale"):
            await self.mesh.set_default_release(service, release)
            await self.mesh.instances[service].pop().kill()
            await self.mesh.fleet.start(service)

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
        """Wait until the deployment has ended and two instances run a release, and no action runs."""
        deployment = await self.status(lambda status: status.state.final and not status.canary)
        assert deployment.state is state, deployment
        async with asyncio.timeout(WITHIN_S):
            await self.log.catch_up()
            while self.running() != {"egest-1": release, "egest-2": release} or self.log.history.running:
                await asyncio.sleep(0.1)
                await self.log.catch_up()
        return deployment


@asynccontextmanager
async def deployed(
    kafka: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    actors: str = INSTALLED,
    bounds: Mapping[str, tuple[int, int]] | None = None,
) -> AsyncIterator[DeployedMesh]:
    """A mesh whose egest can be deployed.

    Args:
        kafka: bootstrap servers.
        tmp_path: folder of the mesh and of releases.
        monkeypatch: has the mesh start stand-ins.
        actors: release of deploy and scale.
        bounds: of the services that the real scale scales; None: it is a stand-in.
    """
    real_services = {"deploy", "scale"} if bounds else {"deploy"}
    monkeypatch.setattr(
        fleet,
        "command",
        lambda service: (
            command(service) if service in real_services else [sys.executable, str(STAND_IN), service]
        ),
    )
    plan = Plan(
        data=tmp_path / "data",
        kafka=kafka,
        stream=f"d{uuid.uuid4().hex[:8]}",
        port=free_port(),
        partitions=2,
        scale={"egest": 2, "enrich": 0},
        control=True,
        bounds=bounds or {},
        env={
            "HIFI_DEPLOY_STABLE_S": "2",
            "HIFI_DEPLOY_EVENTS": "20",
            "HIFI_DEPLOY_READY_S": "8",
            "HIFI_SCALE_DOWN_AFTER_S": "5",
        },
    )
    assert plan.control_topics is not None
    mesh = Mesh(plan)
    for service in real_services:
        await mesh.set_default_release(service, actors)
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
