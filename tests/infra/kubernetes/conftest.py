"""Egest's Deployment, on a model of Kubernetes and on a real API server with its controllers."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.controllers import controlled_server
from tests.support.kubernetes.egest_service import MODEL_AND_REAL, EgestService, egest_service

COUNT: Final = 3
"""Instances of egest."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with controllers, for the tests of a module."""
    with controlled_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


@pytest.fixture(params=MODEL_AND_REAL)
async def egest(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EgestService]:
    """The service on each of both."""
    async with egest_service(request, monkeypatch, COUNT) as service:
        yield service
