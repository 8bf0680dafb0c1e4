"""Renders the Helm chart."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[3]
CHART: Final = ROOT / "infra/helm/hifi"
KEDA: Final = "keda.sh/v1alpha1"
PROMETHEUS: Final = "monitoring.coreos.com/v1"
GATEWAY: Final = "gateway.networking.k8s.io/v1"
_MISSING: Final = 3

Resource = Mapping[str, Any]


class HelmRefused(Exception):
    """Helm refused the values; its message."""


def find_helm() -> list[str]:
    """The command `helm`; skips the test where it is missing and cannot be built."""
    completed = subprocess.run(
        [ROOT / "infra/helm/helm.sh", "--which"], capture_output=True, text=True, check=False
    )
    if completed.returncode == _MISSING:
        pytest.skip(completed.stderr.strip())
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.split()


@dataclass(frozen=True, slots=True)
class Rendered:
    """The output of `helm template` for a set of values."""

    resources: Sequence[Resource]

    def of(self, kind: str) -> dict[str, Resource]:
        """The resources of a kind by their name without that of the release."""
        return {
            resource["metadata"]["name"].removeprefix("try-hifi-"): resource
            for resource in self.resources
            if resource["kind"] == kind
        }

    def pods(self) -> Iterator[tuple[str, Resource]]:
        """Name, and specification with metadata, of each pod."""
        for resource in self.resources:
            if resource["kind"] in {"Deployment", "StatefulSet", "Job"}:
                yield (
                    resource["metadata"]["labels"]["app.kubernetes.io/component"],
                    resource["spec"]["template"],
                )
            elif resource["kind"] == "Pod":
                yield "test", resource

    def executor_pods(self) -> dict[str, Resource]:
        """Component to the pod of Spark's executors, to which Spark adds image and resources."""
        return {
            name: YAML(typ="safe").load(resource["data"]["executor.yaml"])
            for name, resource in self.of("ConfigMap").items()
            if "executor.yaml" in resource["data"]
        }

    def variables(self, name: str) -> dict[str, str]:
        """The variables of a component that have a value."""
        [pod] = (pod for component, pod in self.pods() if component == name)
        [container] = pod["spec"]["containers"]
        return {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}


def render(helm: Sequence[str], *arguments: str, apis: Sequence[str] = ()) -> Rendered:
    """Render the chart as the release `try`.

    Args:
        helm: the command.
        *arguments: further ones, such as `--set`.
        apis: of the cluster, beside those of Kubernetes.

    Raises:
        HelmRefused: a value is wrong.
    """
    api_options = [word for api in apis for word in ("--api-versions", api)]
    completed = subprocess.run(
        [*helm, "template", "try", CHART, "--namespace", "shop", *api_options, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        raise HelmRefused(completed.stderr)
    documents = YAML(typ="safe").load_all(completed.stdout)
    return Rendered([document for document in documents if document])
