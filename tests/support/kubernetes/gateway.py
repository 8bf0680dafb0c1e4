"""The HTTPRoute before two colours, on a model of the API and on a real one; both act as a Gateway's controller."""

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.caretaker import working_beside
from tests.support.kubernetes.modelled_api import merged

from hifi.runtime.errors import Retryable
from hifi_infra.kubernetes.kubernetes_api import ApiAccess, Conflict, KubernetesApi, NoResource

ROUTE: Final = "try-hifi-ingest"
BACKENDS: Final = {"blue": "blue-hifi-ingest", "green": "green-hifi-ingest"}
_GROUP: Final = "gateway.networking.k8s.io/v1"
_KIND: Final = "httproutes"
_POLL_S: Final = 0.05


def route_body(blue_weight: int = 90, green_weight: int = 10) -> dict[str, Any]:
    """The HTTPRoute as the Helm chart renders it."""
    weights = {"blue": blue_weight, "green": green_weight}
    backends = [
        {"name": BACKENDS[colour], "port": 8080, "weight": weight} for colour, weight in weights.items()
    ]
    return {
        "apiVersion": _GROUP,
        "kind": "HTTPRoute",
        "metadata": {"name": ROUTE},
        "spec": {
            "parentRefs": [{"name": "gateway", "sectionName": "https"}],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": backends}],
        },
    }


def status_body(generation: int, *, accepts: bool) -> dict[str, Any]:
    """What a Gateway's controller says of a route that it has looked at."""
    condition = {
        "type": "Accepted",
        "status": "True" if accepts else "False",
        "reason": "Accepted" if accepts else "NotAllowedByListeners",
        "message": "the listener takes no routes of this namespace",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-24T23:58:00Z",
    }
    parent_ref = {"name": "gateway", "group": "gateway.networking.k8s.io", "kind": "Gateway"}
    return {
        "parents": [
            {"parentRef": parent_ref, "controllerName": "test.example/gateway", "conditions": [condition]}
        ]
    }


class ModelledGateway(KubernetesApi):
    """The API of a namespace with the route, or without; at each look the controller has its turn."""

    accepts = True
    """Whether the Gateway takes the route."""
    looks = True
    """Whether its controller runs."""

    def __init__(self) -> None:
        self._route = route_body()
        self._route["metadata"] |= {"generation": 1, "resourceVersion": "1"}

    async def get(self, group: str, kind: str, name: str) -> dict[str, Any]:
        """As `KubernetesApi.get`."""
        if (group, kind, name) != (_GROUP, _KIND, ROUTE):
            raise NoResource("the Kubernetes API answers 404", is_kind_known=group == _GROUP)
        metadata = self._route["metadata"]
        if self.looks:
            self._route["status"] = status_body(metadata["generation"], accepts=self.accepts)
        return copy.deepcopy(self._route)

    async def merge(self, group: str, kind: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """As `KubernetesApi.merge`."""
        assert (group, kind, name) == (_GROUP, _KIND, ROUTE)
        metadata = self._route["metadata"]
        named_version = change.get("metadata", {}).get("resourceVersion", metadata["resourceVersion"])
        if named_version != metadata["resourceVersion"]:
            raise Conflict("it has changed")
        changed = merged(self._route, change)
        changed["metadata"]["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        changed["metadata"]["generation"] += changed["spec"] != self._route["spec"]
        self._route = changed
        return copy.deepcopy(changed)


class RealGateway(KubernetesApi):
    """The real API of a namespace with the route; a task stands in for the controller of a Gateway.

    Args:
        session: for the requests.
        access: to the API, with the CRDs of the Gateway API and the namespace of the route.
    """

    accepts = True
    """Whether the Gateway takes the route."""
    looks = True
    """Whether its controller runs."""

    def __init__(self, session: aiohttp.ClientSession, access: ApiAccess) -> None:
        super().__init__(session, access)
        self.weights: Mapping[str, int] = {}
        """Service to weight, as the route had them at the last look."""

    async def look_after_route(self) -> None:
        """Say of the route what a Gateway's controller says, until cancelled."""
        while True:
            with contextlib.suppress(Retryable):  # it has changed, or is gone
                if self.looks:
                    await self._look()
            await asyncio.sleep(_POLL_S)

    async def _look(self) -> None:
        route = await self.get(_GROUP, _KIND, ROUTE)
        [rule] = route["spec"]["rules"]
        self.weights = {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}
        status = status_body(route["metadata"]["generation"], accepts=self.accepts)
        if route.get("status", {}).get("parents") != status["parents"]:
            change = {
                "metadata": {"resourceVersion": route["metadata"]["resourceVersion"]},
                "status": status,
            }
            await self.merge(_GROUP, _KIND, f"{ROUTE}/status", change)


@contextlib.asynccontextmanager
async def real_gateway(
    server: ApiServer, namespace: str, route: Mapping[str, Any]
) -> AsyncIterator[RealGateway]:
    """The API of a new namespace with a route, which is looked after."""
    assert server.kubectl("create", "namespace", namespace).returncode == 0
    metadata = {key: value for key, value in route["metadata"].items() if key != "namespace"}
    text = json.dumps({**route, "metadata": metadata})
    completed = server.kubectl("-n", namespace, "create", "-f", "-", input_text=text)
    assert completed.returncode == 0, completed.stdout
    access = ApiAccess(server.url, server.token_file, server.trust_file, namespace)
    async with aiohttp.ClientSession() as session:
        gateway = RealGateway(session, access)
        async with working_beside(gateway.look_after_route()):
            yield gateway
