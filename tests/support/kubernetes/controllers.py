"""What makes pods of Deployments on an API server without nodes: the real controllers, and a stand-in for a kubelet."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from tests.support.kubernetes.api_server import ApiServer, api_server, end
from tests.support.kubernetes.caretaker import working_beside
from tests.support.kubernetes.egest_deployment import create_egest
from tests.support.kubernetes.modelled_api import BROKEN, metrics_body, status_body

from hifi.runtime.errors import Retryable
from hifi_infra.kubernetes.kubernetes_api import ApiAccess, KubernetesApi
from hifi_infra.ports import free_port

_POLL_S: Final = 0.1


@contextlib.contextmanager
def _controllers(server: ApiServer, folder: Path) -> Iterator[None]:
    """Run the controllers of Deployments and ReplicaSets."""
    command = [
        str(server.hyperkube),
        "kube-controller-manager",
        f"--kubeconfig={server.configuration}",
        "--controllers=deployment-controller,replicaset-controller",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder}/controller-manager",
    ]
    with (folder / "kube-controller-manager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        end(process)


@contextlib.contextmanager
def controlled_server(folder: Path) -> Iterator[ApiServer]:
    """An API server with the controllers of Deployments and ReplicaSets."""
    with api_server(folder) as server, _controllers(server, folder):
        yield server


class KubeletApi(KubernetesApi):
    """The real API of a namespace, without nodes: pods become ready, and have metrics, because this says so.

    Args:
        session: for the requests.
        server: the API server.
        namespace: of the pods.
    """

    window = "0s"
    """Time before now in which metrics were measured."""
    has_metrics = True
    """Whether metrics-server answers."""

    def __init__(self, session: aiohttp.ClientSession, server: ApiServer, namespace: str) -> None:
        super().__init__(session, ApiAccess(server.url, server.token_file, server.trust_file, namespace))
        self.lowest_ready = 1_000
        """Least number of ready pods at one time since `watch`."""
        self._server = server
        self._namespace = namespace
        self._is_watching = False

    def watch(self) -> None:
        """Note the least number of ready pods from now on."""
        self.lowest_ready, self._is_watching = 1_000, True

    async def delete_pod(self, name: str) -> None:
        """Delete a pod."""
        completed = self._server.kubectl("-n", self._namespace, "delete", "pod", name)
        assert completed.returncode == 0, completed.stdout

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """As `KubernetesApi.list`."""
        if not group.startswith("metrics"):
            return await super().list(group, kind, labels)
        if not self.has_metrics:
            raise Retryable("there is no metrics-server")
        pods = await super().list("v1", "pods", labels)
        return [metrics_body(pod["metadata"]["name"], self.window) for pod in pods]

    async def look_after_pods(self) -> None:
        """Have pods of images that are not broken run and be ready, until cancelled."""
        while True:
            pods = await self.list("v1", "pods", {})
            ready_pods = [pod for pod in pods if pod["status"].get("phase") == "Running"]
            if self._is_watching:
                self.lowest_ready = min(self.lowest_ready, len(ready_pods))
            for pod in pods:
                container = pod["spec"]["containers"][0]
                if pod not in ready_pods and not container["image"].endswith(f":{BROKEN}"):
                    status = {"status": status_body(container)}
                    with contextlib.suppress(Retryable):  # it may be gone
                        await self.merge("v1", "pods", f"{pod['metadata']['name']}/status", status)
            await asyncio.sleep(_POLL_S)


@contextlib.asynccontextmanager
async def real_egest(server: ApiServer, namespace: str, replicas: int) -> AsyncIterator[KubeletApi]:
    """The API of a namespace with egest's Deployment, whose pods are looked after."""
    create_egest(server, namespace, replicas)
    async with aiohttp.ClientSession() as session:
        api = KubeletApi(session, server, namespace)
        async with working_beside(api.look_after_pods()):
            yield api
