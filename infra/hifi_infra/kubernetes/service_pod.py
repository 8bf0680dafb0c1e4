"""A pod of a service as the API describes it, and what metrics-server says of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from hifi_infra.kubernetes.quantity import duration_s, quantity
from hifi_infra.kubernetes.service_deployment import COMPONENT, RELEASE
from hifi_infra.mesh.image_release import release_of

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServicePod:
    """One pod.

    Attributes:
        name: of the pod.
        service: whose instance it is.
        release: of its image, as an actor named it.
        created_at: text that sorts by the time when it was made.
        ending: whether it drains.
        ready_since_s: when it became ready, seconds since 1970 UTC; None: it is not.
        ready_after_s: seconds from the start of its process until it was ready; None: unknown, as after a restart.
        restarts: how often its container ended by itself.
        address: IP address; empty: it has none yet.
    """

    name: str
    service: str
    release: str
    created_at: str
    ending: bool
    ready_since_s: float | None
    ready_after_s: float | None
    restarts: int
    address: str


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The use of a pod, as metrics-server measured it last.

    Attributes:
        name: of the pod.
        cores: CPU, mean of the window.
        rss_bytes: memory.
        since_s: start of the window, seconds since 1970 UTC.
        until_s: its end.
    """

    name: str
    cores: float
    rss_bytes: int
    since_s: float
    until_s: float


def read(pod: Json, installed_tag: str) -> ServicePod:
    """A pod from the API's answer.

    Args:
        pod: the answer.
        installed_tag: of the images of the release `installed`.
    """
    metadata, status = pod["metadata"], pod["status"]
    containers = status.get("containerStatuses", [])
    ready_since_s = next(
        (
            _seconds(condition["lastTransitionTime"])
            for condition in status.get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        ),
        None,
    )
    restarts = sum(container["restartCount"] for container in containers)
    started_at = containers[0]["state"].get("running", {}).get("startedAt") if containers else None
    ready_after_s = None
    # After a restart the condition may still be of the process before.
    if ready_since_s is not None and started_at is not None and not restarts:
        ready_after_s = ready_since_s - _seconds(started_at)
    named_release = metadata.get("annotations", {}).get(RELEASE, "")
    return ServicePod(
        name=metadata["name"],
        service=metadata["labels"][COMPONENT],
        release=release_of(pod["spec"]["containers"][0]["image"], named_release, installed_tag),
        created_at=metadata["creationTimestamp"],
        ending="deletionTimestamp" in metadata,
        ready_since_s=ready_since_s,
        ready_after_s=ready_after_s,
        restarts=restarts,
        address=status.get("podIP", ""),
    )


def read_usage(pod_metrics: Json) -> PodUsage:
    """The use of a pod from the answer of the metrics API."""
    usages = [container["usage"] for container in pod_metrics["containers"]]
    until_s = _seconds(pod_metrics["timestamp"])
    return PodUsage(
        name=pod_metrics["metadata"]["name"],
        cores=sum(quantity(usage["cpu"]) for usage in usages),
        rss_bytes=int(sum(quantity(usage["memory"]) for usage in usages)),
        since_s=until_s - duration_s(pod_metrics["window"]),
        until_s=until_s,
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
