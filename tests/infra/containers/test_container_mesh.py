"""What an earlier executor left half done; the containers are a model of the engine's."""

import copy
from types import SimpleNamespace
from typing import Any, cast

import aiodocker
import pytest

from hifi_infra.containers.container_mesh import ContainerMesh
from hifi_infra.containers.executor_state import StateFile
from hifi_infra.containers.service_container import NEXT, RELEASE, SERVICE

STATE = {"StartedAt": "2026-11-24T23:58:01.250000123Z", "ExitCode": 0}
INSPECTED: dict[str, Any] = {
    "Image": "sha256:old",
    "RestartCount": 0,
    "Config": {
        "Hostname": "host",
        "Image": "hifi-egest:1.2",
        "Labels": {
            "com.docker.compose.project": "shop",
            SERVICE: "egest",
            "com.docker.compose.container-number": "1",
        },
        "StopTimeout": 55,
    },
    "HostConfig": {},
    "NetworkSettings": {"Networks": {}},
}


class ModelledContainer:
    """A container that the engine does not start again after it was told to stop."""

    def __init__(self, engine: dict[str, "ModelledContainer"], name: str, status: str, release: str) -> None:
        self._engine, self.name, self.status = engine, name, status
        self.stops: list[str] = []
        """Its status each time it was told to stop."""
        self.inspection = copy.deepcopy(INSPECTED) | {"Id": name}
        self.inspection["Config"]["Labels"] |= {RELEASE: release} if release else {}

    def __getitem__(self, key: str) -> Any:
        return self.inspection["Config"][key]

    async def show(self) -> dict[str, Any]:
        state = STATE | {"Status": self.status, "Running": self.status == "running"}
        return self.inspection | {"Name": f"/{self.name}", "State": state}

    async def start(self) -> None:
        self.status = "running"

    async def stop(self, **bounds_s: float) -> None:
        assert bounds_s["timeout"] > bounds_s["t"]
        self.stops.append(self.status)
        self.status = "exited"

    async def delete(self, *, force: bool, v: bool) -> None:
        assert v, "volumes without a name stay"
        del self._engine[self.name], force


@pytest.mark.parametrize("status", ["exited", "running"])
async def test_an_instance_whose_replacement_was_cut_short_runs_again(status: str) -> None:
    engine: dict[str, ModelledContainer] = {}
    for name, container_status, release in (
        ("shop-egest-1", status, ""),
        (f"shop-egest-1{NEXT}", "created", "1.3"),
    ):
        engine[name] = ModelledContainer(engine, name, container_status, release)

    async def list_containers(**_: object) -> list[ModelledContainer]:
        return list(engine.values())

    containers = SimpleNamespace(list=list_containers, container=lambda identity: engine[identity])
    docker = cast(aiodocker.Docker, SimpleNamespace(containers=containers))
    mesh = ContainerMesh(docker, "shop", "1.2", cast(StateFile, SimpleNamespace()))
    await mesh.finish()
    assert {name: container.status for name, container in engine.items()} == {"shop-egest-1": "running"}
    expected_stops = ["running"] if status == "running" else []
    assert engine["shop-egest-1"].stops == expected_stops, "one that still drains ends before it is started"
