"""The executor's mesh on a real API server, without pods: which changes are made, and which are fenced."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import aiohttp
import pytest
from tests.support.kubernetes.api_server import ApiServer, api_server
from tests.support.kubernetes.egest_deployment import create_egest, egest_deployment

from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.problem import Problem
from hifi_infra.kubernetes.deployment_mesh import DeploymentMesh
from hifi_infra.kubernetes.kubernetes_api import ApiAccess, KubernetesApi

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture
def namespace(server: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace with egest's Deployment of two instances."""
    name = f"n{abs(hash(request.node.name))}"
    create_egest(server, name, 2)
    return name


@pytest.fixture
async def api(server: ApiServer, namespace: str) -> AsyncIterator[KubernetesApi]:
    async with aiohttp.ClientSession() as session:
        yield KubernetesApi(session, ApiAccess(server.url, server.token_file, server.trust_file, namespace))


async def test_an_action_changes_the_number_of_instances_and_leaves_its_token(
    server: ApiServer, namespace: str, api: KubernetesApi
) -> None:
    mesh = DeploymentMesh(api, "try", "1")
    assert await mesh.highest_token() == -1
    mesh.keep_token(7)
    await mesh.scale("egest", 3, "a test")
    assert egest_deployment(server, namespace)["spec"]["replicas"] == 3
    assert await DeploymentMesh(api, "try", "1").highest_token() == 7


async def test_an_executor_that_was_frozen_changes_nothing_after_another_one(
    server: ApiServer, namespace: str, api: KubernetesApi
) -> None:
    frozen, second = DeploymentMesh(api, "try", "1"), DeploymentMesh(api, "try", "1")
    frozen.keep_token(3)
    second.keep_token(4)
    await second.scale("egest", 4, "a later action")
    with pytest.raises(Retryable, match="the action 3 is over: action 4 has changed egest since"):
        await frozen.scale("egest", 3, "an earlier action")
    assert egest_deployment(server, namespace)["spec"]["replicas"] == 4


class FrozenApi(KubernetesApi):
    """Lets another executor act between its first reading and writing."""

    other_action: Callable[[], Awaitable[None]] | None = None

    async def merge(self, group: str, kind: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        other_action, self.other_action = self.other_action, None
        if other_action is not None:
            await other_action()
        return await super().merge(group, kind, name, change)


async def test_an_executor_that_was_frozen_between_reading_and_writing_changes_nothing(
    server: ApiServer, namespace: str, api: KubernetesApi
) -> None:
    second = DeploymentMesh(api, "try", "1")
    second.keep_token(4)
    async with aiohttp.ClientSession() as session:
        access = ApiAccess(server.url, server.token_file, server.trust_file, namespace)
        frozen_api = FrozenApi(session, access)
        frozen_api.other_action = lambda: second.scale("egest", 4, "a later action")
        frozen = DeploymentMesh(frozen_api, "try", "1")
        frozen.keep_token(3)
        with pytest.raises(Retryable, match="the action 3 is over: action 4 has changed egest since"):
            await frozen.scale("egest", 3, "an earlier action")
    assert egest_deployment(server, namespace)["spec"]["replicas"] == 4


async def test_no_instance_ends_during_a_rollout(
    server: ApiServer, namespace: str, api: KubernetesApi
) -> None:
    mesh = DeploymentMesh(api, "try", "1")
    mesh.keep_token(1)
    with pytest.raises(Retryable, match="a rollout of egest runs"):
        await mesh.scale("egest", 1, "no controller has seen the Deployment yet")
    assert egest_deployment(server, namespace)["spec"]["replicas"] == 2


async def test_the_executor_says_that_metrics_are_missing(api: KubernetesApi) -> None:
    mesh = DeploymentMesh(api, "try", "1")
    with pytest.raises(Problem) as refusal:
        mesh.executed()
    assert refusal.value.status == 503
    with pytest.raises(Retryable, match="metrics-server does not tell it: the Kubernetes API answers 404"):
        await mesh.refresh()
    assert mesh.executed() == []


@pytest.mark.parametrize(("service", "count"), [("egest", 0), ("egest", 65), ("kafka", 2)])
async def test_a_number_that_cannot_be_is_refused(api: KubernetesApi, service: str, count: int) -> None:
    with pytest.raises(Misconfigured, match="name one of ingest, collect"):
        await DeploymentMesh(api, "try", "1").scale(service, count)


async def test_a_service_that_the_release_lacks_is_refused(api: KubernetesApi) -> None:
    mesh = DeploymentMesh(api, "try", "1")
    with pytest.raises(Misconfigured, match="lake has no Deployment in the release try"):
        await mesh.scale("lake", 1)
    with pytest.raises(Misconfigured, match="observe has no Deployment in the release try"):
        await mesh.set_release("observe-1", "1.3", "")


@pytest.mark.parametrize("name", ["enrich-1", "egest-one", "try-hifi-egest-6d9f7c-x2x4z"])
async def test_only_canaries_of_services_whose_instances_share_work_are_ended(
    api: KubernetesApi, name: str
) -> None:
    with pytest.raises(Misconfigured, match="name a canary of ingest, normalize, egest, retrier, observe"):
        await DeploymentMesh(api, "try", "1").remove(name, "")


async def test_a_canary_of_a_service_without_peers_is_refused(api: KubernetesApi) -> None:
    with pytest.raises(Misconfigured, match="name a canary of ingest, normalize, egest, retrier, observe"):
        await DeploymentMesh(api, "try", "1").set_release("enrich-1", "1.3", "")
