"""`python -m hifi_infra.containers`: the executor of a mesh that Docker Compose started, as a service beside it."""

import contextlib
import socket
from pathlib import Path
from typing import Final

import aiodocker
from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi.runtime import log
from hifi.runtime.clock import wait_at_most
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.http.server import listen, serve
from hifi.runtime.http.trusted_hosts import split_hosts
from hifi.runtime.service import Service, run
from hifi_infra.containers.container_mesh import ContainerMesh
from hifi_infra.containers.executor_state import StateFile
from hifi_infra.containers.service_container import PROJECT
from hifi_infra.mesh.executor import Executor
from hifi_infra.mesh.executor_secret import read_secret

_ENGINE: Final = "engine"
_READ_S: Final = 2.0
_STARTING_READ_S: Final = 0.5

logger = log.get(__name__)


class ContainerExecutorSettings(ServiceSettings):
    """Settings of the executor of containers: environment variables with the prefix `HIFI_EXECUTOR_`."""

    executor_port: int = Field(9400, ge=0, le=65535, description="Port of the executor's API.")
    executor_hosts: str = Field("", description="Names with a dot that it has, separated by commas.")
    executor_secret_file: Path = Field(
        Path("/run/secrets/executor_secret"), description="File with the secret that actors send."
    )
    executor_folder: Path = Field(
        Path("/var/lib/executor"),
        description="Folder for what it must know after a restart; it has to outlive the container.",
    )
    executor_installed: str = Field(
        "latest", description="Tag of the images with which the project was started: the release `installed`."
    )
    executor_engine: str = Field("unix:///var/run/docker.sock", description="Address of the Docker engine.")


async def execute(service: Service, settings: ContainerExecutorSettings) -> None:
    """Answer the actors until the service stops."""
    service.health.block(_ENGINE, "the Docker engine has not answered yet")
    secret, state_file = read_secret(settings.executor_secret_file), StateFile(settings.executor_folder)
    docker = aiodocker.Docker(url=settings.executor_engine)
    sock = listen(settings.host, settings.executor_port)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(docker.close)
        mesh = ContainerMesh(docker, await _own_project(docker), settings.executor_installed, state_file)
        await mesh.finish()
        await mesh.refresh()
        executor = Executor(
            mesh,
            secret=secret,
            highest_token=state_file.state.token,
            keep_token=state_file.keep_token,
            hosts=split_hosts(settings.executor_hosts),
        )
        await stack.enter_async_context(serve(executor.app(), sock, drain_s=settings.drain_s))
        service.health.state = "running"
        service.health.unblock(_ENGINE)
        while not service.stopping.is_set():
            await wait_at_most(service.stopping, _READ_S if mesh.ready else _STARTING_READ_S)
            try:
                await mesh.refresh()
                service.health.unblock(_ENGINE)
            except HifiError as error:
                service.health.block(_ENGINE, str(error))
                logger.warning("instances-unknown", reason=str(error))


async def _own_project(docker: aiodocker.Docker) -> str:
    """The Compose project of this container.

    Raises:
        Misconfigured: the engine does not answer, or this is no container of a project.
    """
    try:
        container = await docker.containers.container(socket.gethostname()).show()
        return str(container["Config"]["Labels"][PROJECT])
    except (aiodocker.DockerError, OSError) as error:
        raise Misconfigured(
            f"the Docker engine does not answer ({error}): mount its socket, and give this container the group of the "
            "socket with HIFI_DOCKER_GROUP"
        ) from None
    except KeyError:
        raise Misconfigured(
            "the executor runs in no Compose project, so it has no services to change"
        ) from None


if __name__ == "__main__":
    run("executor", ContainerExecutorSettings, execute)
