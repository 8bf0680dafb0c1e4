"""The Deployment of a service as the API describes it, and the changes that give its pods another release. Pure.

A canary is the first pod of the Deployment's next template. It and all further ones of that template have to be ready
for longer than any deployment lasts before Kubernetes counts them as available, so Kubernetes ends no pod of the
template before by itself: it ends as many as `maxUnavailable` says, and starts one more than that of the new template.
So the numbers of both are fields of the Deployment, and stay so if the executor ends at any point.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hifi.control.releases.desired_release import INSTALLED
from hifi_infra.kubernetes.fenced_changes import token_of
from hifi_infra.mesh.image_release import image_of, release_of

COMPONENT: Final = "app.kubernetes.io/component"
"""Label with the service."""
CANARY: Final = "io.github.hifi/canary"
"""Annotation of a Deployment, while a release is judged: the name of the instance that is the canary."""
BEFORE: Final = "io.github.hifi/before"
"""Annotation of a Deployment, while a release is judged: the release before it."""
RELEASE: Final = "io.github.hifi/release"
"""Annotation of a pod: its release, as an actor named it."""
NEVER_AVAILABLE_S: Final = 2**31 - 2
"""`minReadySeconds` of a release that is judged."""
_NO_DEADLINE_S: Final = 2**31 - 1
"""`progressDeadlineSeconds`, which has to be larger; Kubernetes takes it for none."""
_DEADLINE_S: Final = 600
"""The same, of the chart."""

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceDeployment:
    """The Deployment of one service.

    Attributes:
        name: of the Deployment.
        service: whose instances are its pods.
        version: of the resource, which a change names.
        count: number of instances that it should have.
        release: of its template, as an actor names it: what new pods run.
        canary: name of the instance that is the canary; empty: no release is judged.
        before: release before the one that is judged; empty: none is judged.
        replaced: number of instances of the release before that the judged one has replaced.
        token: fencing token of the last change; -1: there was none.
        rolling: whether its pods are not all of its template yet.
        containers: of its template.
    """

    name: str
    service: str
    version: str
    count: int
    release: str
    canary: str
    before: str
    replaced: int
    token: int
    rolling: bool
    containers: tuple[Json, ...]

    def canary_change(self, canary: str, release: str, installed_tag: str) -> Json:
        """The change that adds an instance of a release, to be judged beside those of the release before.

        Raises:
            Misconfigured: the release is no tag.
        """
        return {
            "metadata": {"annotations": {CANARY: canary, BEFORE: self.release}},
            "spec": {
                "template": self._template(release, installed_tag),
                **_rolling(0, min_ready_s=NEVER_AVAILABLE_S, deadline_s=_NO_DEADLINE_S),
            },
        }

    def replacement_change(self) -> Json:
        """The change that ends one more instance of the release before, and starts one of the judged release."""
        replaced = self.replaced + 1
        return {"spec": _rolling(replaced, min_ready_s=NEVER_AVAILABLE_S, deadline_s=_NO_DEADLINE_S)}

    def whole_change(self, release: str, installed_tag: str) -> Json:
        """The change that gives all instances a release, one after the other; no release is judged any more.

        Raises:
            Misconfigured: the release is no tag.
        """
        return {
            "metadata": {"annotations": {CANARY: None, BEFORE: None}},
            "spec": {
                "template": self._template(release, installed_tag),
                **_rolling(0, min_ready_s=0, deadline_s=_DEADLINE_S),
            },
        }

    def _template(self, release: str, installed_tag: str) -> Json:
        """The template of a release: the same for each way to it, so that Kubernetes keeps pods that have it."""
        first_container, *other_containers = self.containers
        image = image_of(release, first_container["image"], installed_tag)
        return {
            "metadata": {"annotations": {RELEASE: None if release == INSTALLED else release}},
            "spec": {"containers": [{**first_container, "image": image}, *other_containers]},
        }


def read(deployment: Json, installed_tag: str) -> ServiceDeployment:
    """The Deployment of a service from the API's answer.

    Args:
        deployment: the answer.
        installed_tag: of the images of the release `installed`.
    """
    metadata, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status", {})
    annotations = metadata.get("annotations", {})
    template = spec["template"]
    named_release = template["metadata"].get("annotations", {}).get(RELEASE, "")
    is_judged = spec.get("minReadySeconds") == NEVER_AVAILABLE_S
    is_observed = status.get("observedGeneration", 0) >= metadata["generation"]
    is_updated = status.get("updatedReplicas", 0) == status.get("replicas", 0)
    containers = tuple(template["spec"]["containers"])
    return ServiceDeployment(
        name=metadata["name"],
        service=metadata["labels"][COMPONENT],
        version=metadata["resourceVersion"],
        count=spec["replicas"],
        release=release_of(containers[0]["image"], named_release, installed_tag),
        canary=annotations.get(CANARY, "") if is_judged else "",
        before=annotations.get(BEFORE, "") if is_judged else "",
        replaced=int(spec["strategy"]["rollingUpdate"]["maxUnavailable"]) if is_judged else 0,
        token=token_of(metadata),
        rolling=not is_observed or not is_updated or spec["replicas"] == 0,
        containers=containers,
    )


def _rolling(replaced: int, *, min_ready_s: int, deadline_s: int) -> Json:
    return {
        "minReadySeconds": min_ready_s,
        "progressDeadlineSeconds": deadline_s,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": replaced},
        },
    }
