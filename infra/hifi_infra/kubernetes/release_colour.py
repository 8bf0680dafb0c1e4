"""The mesh of one colour as a Helm release: Helm starts and ends it, and Kubernetes starts again what has died."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.delivery.colours import ColourSetup
from hifi.runtime.clock import monotonic_s
from hifi_infra.kubernetes.kubernetes_api import KubernetesApi
from hifi_infra.kubernetes.service_deployment import COMPONENT
from hifi_infra.mesh.plan import FLOW

_APPS: Final = "apps/v1"
_KEPT_S: Final = 1.0
"""How long an answer of the API is used, seconds: who asks does so several times a second."""


class ReleaseColour:
    """One colour. As `hifi_infra.colours.colours_service.KeptColour`.

    Args:
        api: of Kubernetes.
        release: name of the Helm release.
        has_front: whether the route and the service `colours` are of this release.
    """

    def __init__(self, api: KubernetesApi, release: str, *, has_front: bool = False) -> None:
        self._api = api
        self._release = release
        self._labels = {"app.kubernetes.io/name": "hifi", "app.kubernetes.io/instance": release}
        self._listed: list[dict[str, Any]] = []
        self._listed_s = -_KEPT_S
        self.was_started = False
        self.no_sleep = "Helm starts and ends it: drain it, then " + (
            f"scale all Deployments of the release {release} but that of `colours` to 0. Do not uninstall it before "
            "`route` and `colours` are enabled in the other release instead: both colours get their requests by them"
            if has_front
            else f"`helm uninstall {release}`"
        )

    async def is_running(self) -> bool:
        """Implement `ColourRunner`: whether any instance of a service that events pass is ready.

        Whether one ever was is what the API still says of it: this process may have begun after that one ended.
        """
        deployments = await self._deployments()
        is_running = any(map(_ready, deployments))
        self.was_started |= is_running or any(map(_was_available, deployments))
        return is_running

    async def waits_for(self) -> list[str]:
        """Implement `SeenColour`: instances that are not ready.

        Raises:
            Retryable: the API does not answer.
        """
        deployments = await self._deployments()
        if not deployments:
            return [f"the Helm release {self._release} has no Deployment"]
        return [
            f"{deployment['metadata']['name']}: {_ready(deployment)} of {deployment['spec']['replicas']} instances "
            "are ready"
            for deployment in deployments
            if _ready(deployment) < deployment["spec"]["replicas"] or not deployment["spec"]["replicas"]
        ]

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        """Implement `ColourRunner`: Kubernetes does it."""

    async def stop(self) -> None:
        """Implement `ColourRunner`: never asked for, as `no_sleep` says."""

    async def adjust_priority(self, *, is_only: bool) -> None:
        """Implement `ColourRunner`: pods have their shares of CPU time instead."""

    async def _deployments(self) -> list[Mapping[str, Any]]:
        """Deployments of services that events pass."""
        if monotonic_s() - self._listed_s > _KEPT_S:
            self._listed = await self._api.list(_APPS, "deployments", self._labels)
            self._listed_s = monotonic_s()
        return [
            deployment for deployment in self._listed if deployment["metadata"]["labels"][COMPONENT] in FLOW
        ]


def _ready(deployment: Mapping[str, Any]) -> int:
    """Number of ready instances."""
    return int(deployment.get("status", {}).get("readyReplicas", 0))


def _was_available(deployment: Mapping[str, Any]) -> bool:
    """Whether its template was rolled out once: the condition keeps this reason when the instances end later.

    See https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#complete-deployment.
    """
    return any(
        (condition["type"], condition.get("reason")) == ("Progressing", "NewReplicaSetAvailable")
        for condition in deployment.get("status", {}).get("conditions", [])
    )
