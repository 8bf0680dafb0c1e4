"""`python -m hifi_infra.kubernetes`: the executor of a mesh that Helm installed, as a pod beside it."""

import contextlib
import os
from pathlib import Path
from typing import Final

import aiohttp
from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi.runtime import log
from hifi.runtime.errors import Retryable
from hifi.runtime.http.server import listen, serve
from hifi.runtime.http.trusted_hosts import split_hosts
from hifi.runtime.service import Service, run
from hifi_infra.kubernetes.deployment_mesh import DeploymentMesh
from hifi_infra.kubernetes.kubernetes_api import ApiAccess, KubernetesApi
from hifi_infra.mesh.executor import Executor
from hifi_infra.mesh.executor_secret import read_secret

_API: Final = "kubernetes"
_READ_S: Final = 2.0

logger = log.get(__name__)


class KubernetesExecutorSettings(ServiceSettings):
    """Settings of the executor of pods: environment variables with the prefix `HIFI_EXECUTOR_`."""

    executor_port: int = Field(9400, ge=0, le=65535, description="Port of the executor's API.")
    executor_hosts: str = Field("", description="Names with a dot that it has, separated by commas.")
    executor_secret_file: Path = Field(
        Path("/run/secrets/executor_secret"), description="File with the secret that actors send."
    )
    executor_release: str = Field(description="Name of the Helm release.")
    executor_installed: str = Field(
        description="Tag of the images with which it was installed: the release `installed`."
    )


async def execute(service: Service, settings: KubernetesExecutorSettings) -> None:
    """Answer the actors until the service stops."""
    service.health.block(_API, "the Kubernetes API has not answered yet")
    secret = read_secret(settings.executor_secret_file)
    access = ApiAccess.of_pod(os.environ)
    sock = listen(settings.host, settings.executor_port)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        mesh = DeploymentMesh(
            KubernetesApi(session, access), settings.executor_release, settings.executor_installed
        )
        executor = Executor(
            mesh,
            secret=secret,
            highest_token=await mesh.highest_token(),
            keep_token=mesh.keep_token,
            hosts=split_hosts(settings.executor_hosts),
        )
        await stack.enter_async_context(serve(executor.app(), sock, drain_s=settings.drain_s))
        service.health.state = "running"
        while not service.stopping.is_set():
            try:
                await mesh.refresh()
                service.health.unblock(_API)
            except Retryable as error:
                service.health.block(_API, str(error))
                logger.warning("instances-unknown", reason=str(error))
            await service.sleep(_READ_S)


if __name__ == "__main__":
    run("executor", KubernetesExecutorSettings, execute)
