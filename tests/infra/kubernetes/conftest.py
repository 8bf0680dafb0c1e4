"""Egest's Deployment, on a model of Kubernetes and on a real API server with its controllers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.controllers import controlled_server, real_egest
from tests.support.kubernetes.egest_service import EgestService
from tests.support.kubernetes.modelled_api import ModelledApi

from hifi_infra.kubernetes import deployment_mesh

COUNT: Final = 3
"""Instances of egest."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with controllers, for the tests of a module."""
    with controlled_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture(params=["model", pytest.param("real", marks=pytest.mark.more)])
async def egest(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EgestService]:
    """The service on each of both."""
    async with AsyncExitStack() as stack:
        if request.param == "model":
            monkeypatch.setattr(deployment_mesh, "_POLL_S", 0)
            service = EgestService(ModelledApi(COUNT), COUNT)
        else:
            server, namespace = request.getfixturevalue("server"), f"n{abs(hash(request.node.name))}"
            service = EgestService(
                await stack.enter_async_context(real_egest(server, namespace, COUNT)), COUNT
            )
        await service.until_done()
        service.api.watch()
        yield service
