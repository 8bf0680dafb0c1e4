"""The mesh of a Helm release, changed through the Kubernetes API.

A change of a Deployment is made only to the version of it that was read (`resourceVersion`), and writes the fencing
token of its step into it. So an executor that was frozen changes nothing after another one has acted, even if that one
runs elsewhere.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.problem import Problem
from hifi_infra.kubernetes.kubernetes_api import Conflict, KubernetesApi
from hifi_infra.kubernetes.quantity import quantity
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.plan import FLOW, MAX_INSTANCES

STEP: Final = "io.github.hifi/step"
"""Annotation of a Deployment with the fencing token of its last change."""
HEALTH_PORT: Final = 9000
_APPS: Final = "apps/v1"
_METRICS: Final = "metrics.k8s.io/v1beta1"
_COMPONENT: Final = "app.kubernetes.io/component"
_NO_RELEASES: Final = (
    "on Kubernetes releases are changed with `helm upgrade`; only the number of instances is changed here"
)
_METRIC_LIFE_S: Final = 90
"""metrics-server reads every 15 to 60 s."""
_DRAINED_WITHIN_S: Final = 100
_POLL_S: Final = 0.5

logger = log.get(__name__)


class DeploymentMesh:
    """The Deployments of a Helm release. Call `refresh` every few seconds.

    Args:
        api: of Kubernetes.
        release: name of the Helm release.
    """

    def __init__(self, api: KubernetesApi, release: str) -> None:
        self._api = api
        self._labels = {"app.kubernetes.io/name": "hifi", "app.kubernetes.io/instance": release}
        self._release = release
        self._token = -1
        self._executed: Sequence[ExecutedInstance] = ()
        self._unknown = "the instances have not been read yet"
        self._used_cpu_s: dict[str, float] = {}
        """Pod to its CPU time, seconds: the sum of what the metrics said from one `refresh` to the next."""
        self._refreshed_s = time.monotonic()

    async def highest_token(self) -> int:
        """The highest token of all changes so far; -1: there was none.

        Raises:
            Retryable: the API does not answer.
        """
        self._token = max(map(_token, await self._api.list(_APPS, "deployments", self._labels)), default=-1)
        return self._token

    def keep_token(self, token: int) -> None:
        """Have changes from now on write this token."""
        self._token = token

    def executed(self) -> Sequence[ExecutedInstance]:
        """Every instance of the data plane at the last `refresh`.

        Raises:
            Problem: they, or the CPU of one, are unknown: then nobody should take it for idle.
        """
        if self._unknown:
            raise Problem(503, self._unknown)
        return self._executed

    async def refresh(self) -> None:
        """Read every instance.

        Raises:
            Retryable: the API does not answer, or has no metrics.
        """
        try:
            pods, metrics = await asyncio.gather(self._pods(), self._metrics())
        except Retryable as error:
            self._unknown = str(error)
            raise
        now_s = time.monotonic()
        elapsed_s, self._refreshed_s = now_s - self._refreshed_s, now_s
        rates = {
            name: _use(pod_metrics)
            for pod_metrics in metrics
            if (name := _name(pod_metrics)) and _is_new(pod_metrics)
        }
        unmeasured_names = sorted(_name(pod) for pod in pods if _is_ready(pod) and _name(pod) not in rates)
        self._used_cpu_s = {
            name: self._used_cpu_s.get(name, 0.0) + rates.get(name, (0.0, 0))[0] * elapsed_s
            for name in map(_name, pods)
        }
        self._executed = [self._read(pod, rates) for pod in pods]
        self._unknown = f"no CPU metric of {', '.join(unmeasured_names)}" if unmeasured_names else ""

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained.

        Raises:
            Misconfigured: unknown service, or a number that cannot be.
            Retryable: another executor has acted since, instances would end while a rollout replaces them, they do not
                drain in time, or the API does not answer.
        """
        if service not in FLOW or not 1 <= count <= MAX_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 1 to {MAX_INSTANCES} instances"
            )
        is_changed = False
        while not is_changed:
            deployment = await self._deployment(service)
            if _token(deployment) > self._token:
                raise Retryable(
                    f"the step {self._token} is over: step {_token(deployment)} has changed {service} since"
                )
            if count < deployment["spec"]["replicas"] and _is_rolling(deployment):
                raise Retryable(f"a rollout of {service} runs: its instances have different releases")
            try:
                await self._set_replicas(deployment, count)
                is_changed = True
            except Conflict:  # its status changes often: read it again
                continue
        logger.info("instances-changed", service=service, count=count, reason=reason)
        await self._wait_drained(service, count)

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Refused: Helm changes releases.

        Raises:
            Misconfigured: always.
        """
        raise Misconfigured(f"{name} to {release} ({reason}): {_NO_RELEASES}")

    async def remove(self, name: str, reason: str) -> None:
        """Refused, as `set_release`.

        Raises:
            Misconfigured: always.
        """
        raise Misconfigured(f"{name} ({reason}): {_NO_RELEASES}")

    def set_default_release(self, service: str, release: str) -> None:
        """Refused, as `set_release`.

        Raises:
            Misconfigured: always.
        """
        raise Misconfigured(f"{service} to {release}: {_NO_RELEASES}")

    async def _set_replicas(self, deployment: Mapping[str, Any], count: int) -> None:
        metadata = deployment["metadata"]
        change = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {STEP: str(self._token)},
            },
            "spec": {"replicas": count},
        }
        await self._api.merge(_APPS, "deployments", metadata["name"], change)

    async def _wait_drained(self, service: str, count: int) -> None:
        end_s = time.monotonic() + _DRAINED_WITHIN_S
        while len(await self._api.list("v1", "pods", self._labels | {_COMPONENT: service})) > count:
            if time.monotonic() > end_s:
                raise Retryable(
                    f"{service} has not drained to {count} instances within {_DRAINED_WITHIN_S} s"
                )
            await asyncio.sleep(_POLL_S)

    async def _deployment(self, service: str) -> Mapping[str, Any]:
        deployments = await self._api.list(_APPS, "deployments", self._labels | {_COMPONENT: service})
        if not deployments:
            raise Misconfigured(
                f"{service} has no Deployment in the release {self._release}: enable it there"
            )
        return deployments[0]

    async def _pods(self) -> list[dict[str, Any]]:
        pods = await self._api.list("v1", "pods", self._labels)
        return [pod for pod in pods if _service(pod) in FLOW and "deletionTimestamp" not in pod["metadata"]]

    async def _metrics(self) -> list[dict[str, Any]]:
        try:
            return await self._api.list(_METRICS, "pods", self._labels)
        except Retryable as error:
            raise Retryable(
                f"the CPU of instances is unknown, as metrics-server does not tell it: {error}"
            ) from error

    def _read(self, pod: Mapping[str, Any], rates: Mapping[str, tuple[float, int]]) -> ExecutedInstance:
        name, status = _name(pod), pod["status"]
        containers = status.get("containerStatuses", [])
        return ExecutedInstance(
            service=_service(pod),
            name=name,
            port=HEALTH_PORT,
            used_s=self._used_cpu_s[name],
            release=pod["spec"]["containers"][0]["image"].rpartition(":")[2],
            ready=_is_ready(pod),
            ready_after_s=_ready_after_s(pod),
            restarts=sum(container["restartCount"] for container in containers),
            rss_bytes=rates.get(name, (0.0, 0))[1],
            member=f"{name}-",
            host=status.get("podIP", ""),
        )


def _name(resource: Mapping[str, Any]) -> str:
    return str(resource["metadata"]["name"])


def _service(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"][_COMPONENT])


def _token(deployment: Mapping[str, Any]) -> int:
    return int(deployment["metadata"].get("annotations", {}).get(STEP, -1))


def _is_rolling(deployment: Mapping[str, Any]) -> bool:
    """Whether its pods are not all of one template yet."""
    status, count = deployment["status"], deployment["spec"]["replicas"]
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return not is_observed or status.get("updatedReplicas", 0) != status.get("replicas", 0) or count == 0


def _ready_at(pod: Mapping[str, Any]) -> datetime | None:
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return datetime.fromisoformat(condition["lastTransitionTime"])
    return None


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return _ready_at(pod) is not None


def _ready_after_s(pod: Mapping[str, Any]) -> float | None:
    """Seconds from the start of its process; None after a restart, of which the condition may not tell."""
    ready_time = _ready_at(pod)
    containers = pod["status"].get("containerStatuses", [])
    if ready_time is None or not containers or containers[0]["restartCount"]:
        return None
    started_at = containers[0]["state"].get("running", {}).get("startedAt")
    return None if started_at is None else (ready_time - datetime.fromisoformat(started_at)).total_seconds()


def _use(pod_metrics: Mapping[str, Any]) -> tuple[float, int]:
    """CPU in cores and memory in bytes of a pod."""
    usages = [container["usage"] for container in pod_metrics["containers"]]
    return sum(quantity(usage["cpu"]) for usage in usages), int(
        sum(quantity(usage["memory"]) for usage in usages)
    )


def _is_new(pod_metrics: Mapping[str, Any]) -> bool:
    """Whether metrics are not left from before metrics-server has stopped to read them."""
    return time.time() - datetime.fromisoformat(pod_metrics["timestamp"]).timestamp() < _METRIC_LIFE_S
