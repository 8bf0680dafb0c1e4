"""A model of the API with egest's Deployment, and of the controllers that act on it: each look is one of their turns.

They decide as those of Kubernetes do (pkg/controller/deployment/rolling.go); the same tests run on the real ones.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.support.kubernetes.egest_deployment import LABELS, NAME, egest_body

from hifi.runtime.errors import Retryable
from hifi_infra.kubernetes.kubernetes_api import Conflict, KubernetesApi

BROKEN: Final = "broken"
"""Tag of an image whose pods never become ready."""


@dataclass(slots=True)
class ModelledSet:
    """A ReplicaSet: pods of one template.

    Attributes:
        template: of its pods.
        min_ready_s: time for which a pod must be ready to be available.
        replicas: number of pods that it should have.
        pods: name to whether it is ready, oldest first.
    """

    template: Any
    min_ready_s: int
    replicas: int = 0
    pods: dict[str, bool] = field(default_factory=dict)

    @property
    def available(self) -> int:
        """Number of available pods. Time stands still: whoever has to be ready for a while is never available."""
        return 0 if self.min_ready_s else sum(self.pods.values())


class ModelledApi(KubernetesApi):
    """The API of a namespace with egest's Deployment.

    Args:
        replicas: of the Deployment.
    """

    window = "0s"
    """Time before now in which metrics were measured."""
    has_metrics = True
    """Whether metrics-server answers."""

    def __init__(self, replicas: int) -> None:
        self.lowest_ready = 1_000
        """Least number of ready pods at one time since `watch`."""
        self._is_watching = False
        self._deployment: dict[str, Any] = egest_body(replicas)
        self._deployment["metadata"] |= {"generation": 1, "resourceVersion": "1"}
        self._deployment["status"] = {}
        self._sets: list[ModelledSet] = []
        self._pod_count = 0

    def watch(self) -> None:
        """Note the least number of ready pods from now on."""
        self.lowest_ready, self._is_watching = 1_000, True

    async def delete_pod(self, name: str) -> None:
        """Delete a pod."""
        for pod_set in self._sets:
            pod_set.pods.pop(name, None)

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """As `KubernetesApi.list`."""
        self._take_turn()
        if not labels.items() <= LABELS.items():
            return []
        if kind == "deployments":
            return [copy.deepcopy(self._deployment)]
        if group.startswith("metrics") and not self.has_metrics:
            raise Retryable("there is no metrics-server")
        describe = self._metrics if group.startswith("metrics") else _pod
        return [
            describe(name, pod_set.template, is_ready)
            for pod_set in self._sets
            for name, is_ready in pod_set.pods.items()
        ]

    async def merge(self, group: str, kind: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """As `KubernetesApi.merge`."""
        assert (group, kind, name) == ("apps/v1", "deployments", NAME)
        metadata = self._deployment["metadata"]
        if change["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict("it has changed")
        changed = merged(self._deployment, change)
        # As the API, it keeps no zeros and empty maps where they mean the same as nothing.
        if not changed["spec"].get("minReadySeconds"):
            changed["spec"].pop("minReadySeconds", None)
        if not changed["spec"]["template"]["metadata"].get("annotations"):
            changed["spec"]["template"]["metadata"].pop("annotations", None)
        changed["metadata"]["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        changed["metadata"]["generation"] += changed["spec"] != self._deployment["spec"]
        self._deployment = changed
        return copy.deepcopy(changed)

    def _take_turn(self) -> None:
        """A turn of the kubelet, of the controllers of Deployments, and of those of ReplicaSets."""
        for pod_set in self._sets:
            tag = pod_set.template["spec"]["containers"][0]["image"].rpartition(":")[2]
            pod_set.pods = dict.fromkeys(pod_set.pods, tag != BROKEN)
        spec = self._deployment["spec"]
        new_set = next((pod_set for pod_set in self._sets if pod_set.template == spec["template"]), None)
        if new_set is None:
            new_set = ModelledSet(copy.deepcopy(spec["template"]), 0)
            self._sets.append(new_set)
        new_set.min_ready_s = spec.get("minReadySeconds", 0)
        self._roll(new_set)
        for pod_set in self._sets:
            self._make_pods(pod_set)
        if self._is_watching:
            ready_count = sum(is_ready for pod_set in self._sets for is_ready in pod_set.pods.values())
            self.lowest_ready = min(self.lowest_ready, ready_count)
        metadata = self._deployment["metadata"]
        status = {
            "observedGeneration": metadata["generation"],
            "replicas": sum(len(pod_set.pods) for pod_set in self._sets),
            "updatedReplicas": len(new_set.pods),
            "readyReplicas": sum(is_ready for pod_set in self._sets for is_ready in pod_set.pods.values()),
            "availableReplicas": sum(pod_set.available for pod_set in self._sets),
        }
        if status != self._deployment["status"]:
            metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
            self._deployment["status"] = status

    def _roll(self, new_set: ModelledSet) -> None:
        """Change the numbers of both templates, as `rolloutRolling` does."""
        spec = self._deployment["spec"]
        count, bounds = spec["replicas"], spec["strategy"]["rollingUpdate"]
        old_sets = [pod_set for pod_set in self._sets if pod_set is not new_set]
        total = sum(pod_set.replicas for pod_set in self._sets)
        is_alone = total == new_set.replicas
        if is_alone or new_set.replicas > count:
            new_set.replicas = count
            return
        if new_set.replicas < count and total < count + bounds["maxSurge"]:
            new_set.replicas += min(count + bounds["maxSurge"] - total, count - new_set.replicas)
            return
        least = count - bounds["maxUnavailable"]
        surplus = total - least - (new_set.replicas - new_set.available)
        for pod_set in old_sets:  # unhealthy ones first
            removed = min(max(0, surplus), pod_set.replicas - pod_set.available)
            pod_set.replicas -= removed
            surplus -= removed
        if surplus > 0:
            removable = sum(min(pod_set.available, pod_set.replicas) for pod_set in self._sets) - least
            for pod_set in old_sets:
                removed = min(max(0, removable), pod_set.replicas)
                pod_set.replicas -= removed
                removable -= removed

    def _make_pods(self, pod_set: ModelledSet) -> None:
        while len(pod_set.pods) < pod_set.replicas:
            self._pod_count += 1
            pod_set.pods[f"{NAME}-5d9f7c6b8-{self._pod_count:05d}"] = False
        while len(pod_set.pods) > pod_set.replicas:
            name = min(pod_set.pods, key=lambda name: (pod_set.pods[name], -int(name.rpartition("-")[2])))
            del pod_set.pods[name]

    def _metrics(self, name: str, template: Any, is_ready: bool) -> dict[str, Any]:
        del template, is_ready
        return metrics_body(name, self.window)


def metrics_body(pod: str, window: str) -> dict[str, Any]:
    """What metrics-server tells of a pod that uses half a core and 50 MiB."""
    return {
        "metadata": {"name": pod},
        "timestamp": _now(),
        "window": window,
        "containers": [{"usage": {"cpu": "500m", "memory": "50Mi"}}],
    }


def status_body(container: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a pod that has just become ready."""
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _now()}],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _now()}},
            }
        ],
    }


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _pod(name: str, template: Any, is_ready: bool) -> dict[str, Any]:
    spec = template["spec"]
    return {
        "metadata": {**template["metadata"], "name": name, "creationTimestamp": "2026-11-24T23:58:00Z"},
        "spec": spec,
        "status": status_body(spec["containers"][0]) if is_ready else {"phase": "Pending"},
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
