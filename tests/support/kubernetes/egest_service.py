"""Egest on Kubernetes, on a model of its API or on a real one, for tests that give it other releases."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import pytest
from tests.support.kubernetes.controllers import KubeletApi, real_egest
from tests.support.kubernetes.egest_deployment import LABELS
from tests.support.kubernetes.modelled_api import BROKEN, ModelledApi

from hifi.runtime.errors import Retryable
from hifi_infra.kubernetes import deployment_mesh
from hifi_infra.kubernetes.deployment_mesh import DeploymentMesh
from hifi_infra.mesh.executed_instance import ExecutedInstance

MODEL_AND_REAL: Final = ("model", pytest.param("real", marks=pytest.mark.more))
"""Parameters of a fixture with `egest_service`."""
_WITHIN_S: Final = 300
_POLL_S: Final = 0.05


class EgestService:
    """Instances of egest of the release `installed`, the tag 1.

    Args:
        api: with its Deployment.
        count: of its instances.
    """

    def __init__(self, api: ModelledApi | KubeletApi, count: int) -> None:
        self.api = api
        self.count = count

    def executor(self, token: int) -> DeploymentMesh:
        """An executor that has just started, in an action."""
        mesh = DeploymentMesh(self.api, "try", "1")
        mesh.keep_token(token)
        return mesh

    async def instances(self) -> list[ExecutedInstance]:
        """What an executor that has just started tells."""
        mesh = self.executor(-1)
        with contextlib.suppress(Retryable):  # of metrics that are missing
            await mesh.refresh()
        return sorted(mesh.executed(), key=lambda instance: instance.name)

    async def names(self, release: str) -> list[str]:
        """Instances of a release, once no instance starts or ends."""
        await self.until(self._is_calm, "all instances are ready, and no controller changes them")
        return [instance.name for instance in await self.instances() if instance.release == release]

    async def deployment(self) -> Mapping[str, Any]:
        """The Deployment."""
        [deployment] = await self.api.list("apps/v1", "deployments", LABELS)
        return deployment

    async def image(self) -> str:
        """The image of its template."""
        return str((await self.deployment())["spec"]["template"]["spec"]["containers"][0]["image"])

    async def tags(self) -> dict[str, str]:
        """Pod to the tag of its image."""
        return {
            pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            for pod in await self.api.list("v1", "pods", LABELS)
        }

    async def until_ready(self) -> None:
        """Wait until all pods are ready that ever will be."""
        await self.until(self._are_pods_ready, "all pods but those of broken images are ready")

    async def until_done(self) -> None:
        """Wait until Kubernetes has done all that the Deployment says, and no release is judged."""
        await self.until(self._is_done, "all instances are of the Deployment's template, and available")

    async def until(self, condition: Callable[[], Awaitable[bool]], description: str) -> None:
        """Poll until a condition holds."""
        try:
            async with asyncio.timeout(_WITHIN_S):
                while not await condition():
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AssertionError(
                f"not within {_WITHIN_S} s: {description}: {await self.deployment()}"
            ) from None

    async def _are_pods_ready(self) -> bool:
        return all(
            pod["status"].get("phase") == "Running"
            or pod["spec"]["containers"][0]["image"].endswith(f":{BROKEN}")
            for pod in await self.api.list("v1", "pods", LABELS)
        )

    async def _is_done(self) -> bool:
        deployment = await self.deployment()
        status, spec = deployment["status"], deployment["spec"]
        counts = {status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
        is_observed = status.get("observedGeneration") == deployment["metadata"]["generation"]
        return is_observed and counts == {self.count} and "minReadySeconds" not in spec

    async def _is_calm(self) -> bool:
        """Whether two looks, between which controllers have had their turn, see the same ready instances."""
        deployment = await self.deployment()
        instances = await self.instances()
        is_observed = deployment["status"].get("observedGeneration") == deployment["metadata"]["generation"]
        return (
            is_observed
            and len(instances) >= self.count
            and all(instance.ready for instance in instances)
            and [instance.member for instance in instances]
            == [instance.member for instance in await self.instances()]
            and deployment["status"] == (await self.deployment())["status"]
        )


@contextlib.asynccontextmanager
async def egest_service(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, count: int
) -> AsyncIterator[EgestService]:
    """Egest with ready instances, on what the parameter of a fixture names: `model`, or `real` with its `server`."""
    async with contextlib.AsyncExitStack() as stack:
        api: ModelledApi | KubeletApi
        if request.param == "model":
            monkeypatch.setattr(deployment_mesh, "_POLL_S", 0)
            api = ModelledApi(count)
        else:
            namespace = f"n{abs(hash(request.node.name))}"
            api = await stack.enter_async_context(
                real_egest(request.getfixturevalue("server"), namespace, count)
            )
        service = EgestService(api, count)
        await service.until_done()
        service.api.watch()
        yield service
