"""Work for a control plane: pipes are declared, releases deployed and instances scaled again and again."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

from hifi.control.releases.deployment import Deployment
from hifi.control.releases.desired_release import INSTALLED
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.runtime.errors import HifiError
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_cli.mesh_state.manage_api import ManageApi
from hifi_infra.mesh.mesh import Mesh

DEPLOYED: Final = "normalize"
SCALED: Final = "retrier"
_POLL_S: Final = 0.5
_SOURCE: Final = Path(__file__).parents[2] / "services" / DEPLOYED


class ControlWork:
    """Gives the control plane one thing to do after the other, and tells whether it has finished all of it.

    Args:
        mesh: that runs, with its control plane.
        pipe: that is declared again and again, each time with another header for its destinations.
        folder: for the release that takes turns with the installed one.
    """

    def __init__(self, mesh: Mesh, pipe: Pipe, folder: Path) -> None:
        assert mesh.plan.control_topics is not None
        assert mesh.plan.manage is not None
        self._mesh = mesh
        self._pipe = pipe
        self._release = str(folder)
        shutil.copytree(
            _SOURCE, folder / "services" / DEPLOYED, ignore=shutil.ignore_patterns("__pycache__", "build")
        )
        self._control = ControlPlane(mesh.bootstrap, mesh.plan.control_topics)
        self._manage = ManageApi(mesh.plan.manage, mesh.plan.token)
        self.declared = 0
        """Declarations that the management API took."""
        self.deployed = 0
        """Releases that were wanted of a service."""
        self.scaled = 0
        """Instances to remove."""

    async def declare(self) -> None:
        """Declare the pipe, and go on with the next declaration whenever one has ended, until cancelled."""
        while True:
            await self._declare(self.declared + 1)
            self.declared += 1
            while not (await self._status()).state.final:
                await asyncio.sleep(_POLL_S)

    async def deploy(self) -> None:
        """Deploy one of two equal releases, and the other one whenever a deployment has ended, until cancelled."""
        while True:
            release = INSTALLED if self.deployed % 2 else self._release
            await self._control.deploy(DEPLOYED, release, 1)
            self.deployed += 1
            while not (await self._deployment()).state.final:
                await asyncio.sleep(_POLL_S)

    async def scale(self) -> None:
        """Add an instance that is not needed whenever the control plane has removed the last one, until cancelled."""
        while True:
            await self._mesh.scale(SCALED, 2)
            self.scaled += 1
            while len(self._mesh.instances[SCALED]) > 1:
                await asyncio.sleep(_POLL_S)

    async def unfinished(self) -> list[str]:
        """Descriptions of work that is open or half done; empty once all is done."""
        status, deployment = await self._status(), await self._deployment()
        problems = [
            f"{name} is {progress.state.value}: {progress.reason}"
            for name, progress in (("the pipe", status), (DEPLOYED, deployment))
            if not progress.state.final
        ]
        revision = (await read_registry(self._mesh.bootstrap, self._mesh.topics)).pipes[self._pipe.pipe]
        promoted = status.state is RolloutState.IN_FORCE
        if status.state.final and (revision.rollout or (revision.number == status.revision) != promoted):
            problems.append(f"the pipe is {status.state.value}, and in the registry {revision}")
        if len(self._mesh.instances[SCALED]) != 1:
            problems.append(f"{SCALED} has {len(self._mesh.instances[SCALED])} instances, expected 1")
        expected = {f"{DEPLOYED}-{number}": deployment.settled for number in (1, 2)}
        running = {instance.name: instance.spec.release for instance in self._mesh.instances[DEPLOYED]}
        if running != expected:
            problems.append(f"the instances run {running}, expected {expected}")
        return problems

    async def _declare(self, number: int) -> None:
        changed_pipe = self._pipe.model_copy(
            update={
                "destinations": [
                    destination.model_copy(update={"headers": {"x-declaration": str(number)}})
                    for destination in self._pipe.destinations
                ]
            }
        )
        while True:
            try:
                pipe_before = await asyncio.to_thread(self._manage.pipe, self._pipe.pipe)
                if pipe_before.pipe != changed_pipe:  # it was taken although the answer was lost
                    await asyncio.to_thread(self._manage.change, self._pipe.pipe, changed_pipe, pipe_before)
                return
            except HifiError:
                await asyncio.sleep(_POLL_S)

    async def _status(self) -> RolloutStatus:
        return (await self._control.statuses())[self._pipe.pipe]

    async def _deployment(self) -> Deployment:
        return (await self._control.deployments())[DEPLOYED]
