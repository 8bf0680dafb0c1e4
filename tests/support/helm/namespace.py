"""The namespace of releases on a node: its profile, the Secret of values/try.yaml, a volume with the demo's pipe."""

import json
from typing import Any, Final

from ruamel.yaml import YAML
from tests.support.helm.chart import CHART
from tests.support.helm.flights import MASK_KEY, WRITE_KEY, write_pipes
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.places import NODE

NAMESPACE: Final = "shop"
TRY: Final = CHART / "values/try.yaml"
_SECRET: Final = {
    "write_key": "write-key-of-the-test",
    "flights_key": WRITE_KEY,
    "mask_key": MASK_KEY,
    "manage_token": f"hifi_{'0' * 64}",
    "executor_secret": "0" * 32,
}


def create_namespace(node: Node) -> None:
    """Create it with the restricted profile, and the Secret as docs/kubernetes.md says."""
    node.ask("create", "namespace", NAMESPACE)
    node.ask("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    literals = [f"--from-literal={key}={value}" for key, value in _SECRET.items()]
    node.ask("-n", NAMESPACE, "create", "secret", "generic", "hifi-try", *literals)


def create_volume(node: Node, name: str, folder: str, size: str, mode: str) -> None:
    """Create a volume that is a folder of the node, and the claim of the same name.

    Args:
        node: with the namespace.
        name: of both.
        folder: below that of the node.
        size: such as `1Gi`.
        mode: in which pods may use it.
    """
    shared: dict[str, Any] = {"accessModes": [mode], "storageClassName": ""}
    storage = {"storage": size}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {**shared, "capacity": storage, "hostPath": {"path": f"{NODE}/{folder}"}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**shared, "volumeName": name, "resources": {"requests": storage}},
    }
    for resource in (volume, claim):
        node.ask("-n", NAMESPACE, "apply", "-f", "-", input_text=json.dumps(resource))


def create_pipes(node: Node, destination: str) -> dict[str, Any]:
    """Put the pipe of the demo on a volume of the node; the values of a release that has it.

    Args:
        node: with the namespace.
        destination: its URL.
    """
    write_pipes(node.folder / "pipes", destination)
    create_volume(node, "flights", "pipes", "100Mi", "ReadOnlyMany")
    values: dict[str, Any] = YAML(typ="safe").load(TRY.read_text()) | {"pipes": {"claim": "flights"}}
    values["settings"]["HIFI_PIPES_SECRET_GRANTS"] += "".join(
        f",flights=/run/secrets/{name}" for name in ("flights_key", "mask_key")
    )
    return values
