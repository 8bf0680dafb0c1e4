"""The mesh of a Helm release, changed through the Kubernetes API.

Every change is one fenced change of one Deployment (`fenced_changes`). Kubernetes itself starts and ends pods.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from hifi.control.releases.desired_release import DEPLOYABLE
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.problem import Problem
from hifi_infra.kubernetes import service_deployment, service_pod
from hifi_infra.kubernetes.fenced_changes import FencedChanges, token_of
from hifi_infra.kubernetes.kubernetes_api import KubernetesApi
from hifi_infra.kubernetes.service_deployment import COMPONENT, ServiceDeployment
from hifi_infra.kubernetes.service_pod import Json, PodUsage, ServicePod
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.plan import FLOW, MAX_INSTANCES

HEALTH_PORT: Final = 9000
_APPS: Final = "apps/v1"
_METRICS: Final = "metrics.k8s.io/v1beta1"
_CANARY: Final = re.compile(r"(?P<service>[a-z]+)-\d+")
"""Name of a canary, as deploy chooses it; pods have longer names."""
_ENDED: Final = ("Failed", "Succeeded")
"""Phases of pods that were evicted, and stay for people to look at."""
_METRIC_LIFE_S: Final = 90
"""metrics-server reads every 15 to 60 s."""
_CHANGED_WITHIN_S: Final = 100
_POLL_S: Final = 0.5

logger = log.get(__name__)

_Read = TypeVar("_Read")
Change: TypeAlias = Callable[[ServiceDeployment], Mapping[str, Any] | None]
"""Makes the body of a change of a Deployment; None: nothing is left to do."""
PodsCondition: TypeAlias = Callable[[Sequence[ServicePod]], bool]


class DeploymentMesh:
    """The Deployments of a Helm release. Call `refresh` every few seconds.

    Args:
        api: of Kubernetes.
        release: name of the Helm release.
        installed_tag: of the images of the release `installed`.
    """

    def __init__(self, api: KubernetesApi, release: str, installed_tag: str) -> None:
        self._api = api
        self._changes = FencedChanges(api, _APPS, "deployments")
        self._labels = {"app.kubernetes.io/name": "hifi", "app.kubernetes.io/instance": release}
        self._release = release
        self._installed_tag = installed_tag
        self._token = -1
        self._refreshing = asyncio.Lock()
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
        deployments = await self._api.list(_APPS, "deployments", self._selector(""))
        self._token = max((token_of(deployment["metadata"]) for deployment in deployments), default=-1)
        return self._token

    def keep_token(self, token: int) -> None:
        """Have changes from now on write this token."""
        self._token = token

    def executed(self) -> Sequence[ExecutedInstance]:
        """Every instance of the data plane at the last `refresh`.

        Raises:
            Problem: they are unknown.
        """
        if self._unknown:
            raise Problem(503, self._unknown)
        return self._executed

    async def refresh(self) -> None:
        """Read every instance.

        Raises:
            Retryable: the API does not answer, or has no metrics.
        """
        async with self._refreshing:
            try:
                deployments, pods = await asyncio.gather(self._deployments(), self._pods())
            except Retryable as error:
                self._unknown = str(error)
                raise
            usages, no_metrics = await self._usages()
            pods = [pod for pod in pods if pod.service in FLOW and not pod.ending]
            now_s = time.monotonic()
            elapsed_s, self._refreshed_s = now_s - self._refreshed_s, now_s
            self._used_cpu_s = {
                pod.name: self._used_cpu_s.get(pod.name, 0.0) + _cores(pod, usages.get(pod.name)) * elapsed_s
                for pod in pods
            }
            instance_names = _names(deployments, pods)
            self._executed = [
                self._instance(pod, instance_names[pod.name], usages.get(pod.name)) for pod in pods
            ]
            self._unknown = ""
            if no_metrics:
                raise Retryable(no_metrics)

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances; returns once surplus ones have drained.

        Raises:
            Misconfigured: unknown service, or a number that cannot be.
            Retryable: another executor has acted since, a deployment or a rollout runs, instances do not drain in
                time, or the API does not answer.
        """
        if service not in FLOW or not 1 <= count <= MAX_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 1 to {MAX_INSTANCES} instances"
            )

        def change(deployment: ServiceDeployment) -> Mapping[str, Any]:
            """The patch of the number of instances."""
            if deployment.canary:
                raise Retryable(f"a deployment of {service} runs: its instances have different releases")
            if count < deployment.count and deployment.rolling:
                raise Retryable(f"a rollout of {service} runs: its instances have different releases")
            return {"spec": {"replicas": count}}

        await self._change(service, change)
        logger.info("instances-changed", service=service, count=count, reason=reason)
        await self._until(service, lambda pods: len(pods) <= count, f"drained to {count} instances")

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Start a canary with a release under a name such as `egest-1`, or have a pod replaced by one of a release.

        While a canary of the release runs, another pod is replaced beside it, and nothing more. Else all pods of the
        service get the release, one after the other: that is a way back.

        Raises:
            Misconfigured: no such service, the release is no tag, or a canary of another release runs.
            Retryable: another executor has acted since, a rollout runs, pods do not start or drain in time, or the API
                does not answer.
        """
        if _CANARY.fullmatch(name):
            await self._start_canary(_service(name), name, release)
        else:
            await self._replace(name, release)
        logger.info("release-changed", instance=name, release=release, reason=reason)

    async def remove(self, name: str, reason: str) -> None:
        """End the canary of this name. Nothing is done if there is none.

        If its release has replaced every instance of the one before, the canary is one of these from now on. Else all
        go back to the release before; returns once those of its release have drained.

        Raises:
            Misconfigured: it is no name of a canary.
            Retryable: as `set_release`.
        """
        service, ended_release = _service(name), ""

        def change(deployment: ServiceDeployment) -> Mapping[str, Any] | None:
            """The patch that gives all instances one release; None: no such deployment runs."""
            nonlocal ended_release
            if deployment.canary != name:
                return None
            is_in_force = deployment.replaced >= deployment.count
            ended_release = "" if is_in_force else deployment.release
            release = deployment.release if is_in_force else deployment.before
            return deployment.whole_change(release, self._installed_tag)

        await self._change(service, change)
        logger.info("instance-removed", instance=name, reason=reason)
        if ended_release:
            await self._until(
                service,
                lambda pods: all(pod.release != ended_release for pod in pods),
                f"gone back from {ended_release}",
            )

    async def set_default_release(self, service: str, release: str) -> None:
        """Have instances of a service that start from now on run a release; others get it, one after the other.

        Raises:
            Misconfigured: no such service, or the release is no tag.
            Retryable: as `set_release`.
        """

        def change(deployment: ServiceDeployment) -> Mapping[str, Any] | None:
            """The patch to the release; None: all instances have it."""
            if deployment.release == release and not deployment.canary:
                return None
            return deployment.whole_change(release, self._installed_tag)

        await self._change(service, change)

    async def _start_canary(self, service: str, name: str, release: str) -> None:
        def change(deployment: ServiceDeployment) -> Mapping[str, Any] | None:
            if deployment.release == release:
                return None
            if deployment.canary == name and deployment.before == release:
                return deployment.whole_change(release, self._installed_tag)
            if deployment.canary:
                raise Misconfigured(
                    f"{deployment.canary} of {deployment.release} is a canary of {service} already"
                )
            if deployment.rolling:
                raise Retryable(f"a rollout of {service} runs: its instances have different releases")
            return deployment.canary_change(name, release, self._installed_tag)

        await self._change(service, change)
        await self._until(
            service,
            lambda pods: any(pod.release == release and not pod.ending for pod in pods),
            f"started {name} with {release}",
        )

    async def _replace(self, name: str, release: str) -> None:
        pods = await self._pods()
        replaced_pod = next((pod for pod in pods if pod.name == name), None)
        if replaced_pod is None or replaced_pod.release == release:
            return
        service = replaced_pod.service
        peers = [pod for pod in pods if (pod.service, pod.release) == (service, replaced_pod.release)]
        staying_count = sum(not pod.ending for pod in peers)
        old_count: int | None = None

        def change(deployment: ServiceDeployment) -> Mapping[str, Any] | None:
            nonlocal old_count
            if deployment.release != release:
                return deployment.whole_change(release, self._installed_tag)
            if not deployment.canary:
                return None
            if staying_count > deployment.count - deployment.replaced:
                raise Retryable(f"Kubernetes has not ended yet what was replaced of {service} before")
            old_count = deployment.count - deployment.replaced - 1
            return deployment.replacement_change()

        await self._change(service, change)
        await self._until(
            service,
            lambda pods: (
                all(pod.name != name for pod in pods)
                if old_count is None
                else sum(pod.release != release for pod in pods) <= old_count
            ),
            f"replaced {name} by an instance of {release}",
        )

    async def _change(self, service: str, change: Change) -> None:
        """Make a change to the Deployment of a service, unless another action has changed it since."""
        await self._changes.make(service, self._token, lambda: self._deployment(service), change)

    async def _until(self, service: str, is_done: PodsCondition, outcome: str) -> None:
        """Wait until the pods of a service, ending ones included, are as a change leaves them; they are read then."""
        end_s = time.monotonic() + _CHANGED_WITHIN_S
        while not is_done(await self._pods(service)):
            if time.monotonic() > end_s:
                raise Retryable(f"{service} has not {outcome} within {_CHANGED_WITHIN_S} s")
            await asyncio.sleep(_POLL_S)
        with contextlib.suppress(Retryable):  # then `executed` says so
            await self.refresh()

    async def _deployment(self, service: str) -> ServiceDeployment:
        deployments = await self._deployments(service)
        if not deployments:
            raise Misconfigured(
                f"{service} has no Deployment in the release {self._release}: enable it there"
            )
        return deployments[0]

    async def _deployments(self, service: str = "") -> list[ServiceDeployment]:
        deployments = await self._api.list(_APPS, "deployments", self._selector(service))
        return read_each(deployments, partial(service_deployment.read, installed_tag=self._installed_tag))

    async def _pods(self, service: str = "") -> list[ServicePod]:
        """Pods that run, are about to, or end."""
        pods = await self._api.list("v1", "pods", self._selector(service))
        unended_pods = [pod for pod in pods if pod["status"].get("phase") not in _ENDED]
        return read_each(unended_pods, partial(service_pod.read, installed_tag=self._installed_tag))

    def _selector(self, service: str) -> Mapping[str, str]:
        return self._labels | ({COMPONENT: service} if service else {})

    async def _usages(self) -> tuple[dict[str, PodUsage], str]:
        """Pod to its use, unless metrics-server has stopped to read it; and why none is known."""
        try:
            answers = await self._api.list(_METRICS, "pods", self._labels)
        except Retryable as error:
            return {}, f"the CPU of instances is unknown, as metrics-server does not tell it: {error}"
        usages = read_each(answers, service_pod.read_usage)
        return {usage.name: usage for usage in usages if time.time() - usage.until_s < _METRIC_LIFE_S}, ""

    def _instance(self, pod: ServicePod, name: str, usage: PodUsage | None) -> ExecutedInstance:
        return ExecutedInstance(
            service=pod.service,
            name=name,
            port=HEALTH_PORT,
            used_s=self._used_cpu_s[pod.name],
            release=pod.release,
            ready=pod.ready_since_s is not None,
            ready_after_s=pod.ready_after_s,
            restarts=pod.restarts,
            rss_bytes=usage.rss_bytes if usage is not None else 0,
            member=f"{pod.name}-",
            host=pod.address,
            measured=usage is not None or pod.ready_since_s is None,
        )


def read_each(resources: Iterable[Json], read: Callable[[Json], _Read]) -> list[_Read]:
    """Read resources; one that somebody else made, or changed by hand, so that it cannot be read is left out."""
    read_resources = []
    for resource in resources:
        try:
            read_resources.append(read(resource))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            metadata = str(resource.get("metadata"))[:200]
            logger.warning("resource-unreadable", metadata=metadata, error=repr(error))
    return read_resources


def _service(canary: str) -> str:
    """The service of `egest-1`."""
    match = _CANARY.fullmatch(canary)
    if match is None or match["service"] not in DEPLOYABLE:
        raise Misconfigured(f"{canary}: name a canary of {', '.join(DEPLOYABLE)}, such as egest-1")
    return match["service"]


def _names(deployments: Sequence[ServiceDeployment], pods: Sequence[ServicePod]) -> Mapping[str, str]:
    """Pod to the name of its instance: that of the canary for the first pod of a release that is judged."""
    instance_names = {pod.name: pod.name for pod in pods}
    for deployment in deployments:
        judged_pods = [
            pod
            for pod in pods
            if deployment.canary and (pod.service, pod.release) == (deployment.service, deployment.release)
        ]
        if judged_pods:
            first_pod = min(judged_pods, key=lambda pod: (pod.created_at, pod.name))
            instance_names[first_pod.name] = deployment.canary
    return instance_names


def _cores(pod: ServicePod, usage: PodUsage | None) -> float:
    """CPU that a pod uses. What it needed to become ready does not count: peers did that before."""
    is_of_start = usage is None or pod.ready_since_s is None or usage.since_s < pod.ready_since_s
    return 0.0 if is_of_start or usage is None else usage.cores
