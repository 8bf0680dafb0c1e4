"""The Deployment of egest as the Helm chart renders it, in a namespace of its own."""

import json
from typing import Any, Final

from tests.support.kubernetes.api_server import ApiServer

NAME: Final = "try-hifi-egest"
LABELS: Final = {
    "app.kubernetes.io/name": "hifi",
    "app.kubernetes.io/instance": "try",
    "app.kubernetes.io/component": "egest",
}


def egest_body(replicas: int) -> dict[str, Any]:
    """The Deployment, of the image's tag 1."""
    pod = {"containers": [{"name": "egest", "image": "registry:5000/hifi-egest:1"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def create_egest(server: ApiServer, namespace: str, replicas: int) -> None:
    """Create the namespace and the Deployment."""
    assert server.kubectl("create", "namespace", namespace).returncode == 0
    completed = server.kubectl(
        "-n", namespace, "create", "-f", "-", input_text=json.dumps(egest_body(replicas))
    )
    assert completed.returncode == 0, completed.stdout


def egest_deployment(server: ApiServer, namespace: str) -> Any:
    """The Deployment as the API server has it."""
    completed = server.kubectl("-n", namespace, "get", "deployment", NAME, "-o", "json")
    assert completed.returncode == 0, completed.stdout
    return json.loads(completed.stdout)
