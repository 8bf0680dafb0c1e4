"""The containers of a colour, as a model of the engine lists them."""

from types import SimpleNamespace
from typing import Any, cast

import aiodocker
import pytest

from hifi.delivery.colours import ColourSetup
from hifi_infra.containers.project_runner import ProjectRunner
from hifi_infra.containers.service_container import SERVICE


class ListedContainer(dict[str, Any]):
    """A container as the engine lists it; it notes that it was started."""

    def __init__(self, service: str, state: str) -> None:
        name = f"/hifi-green-{service}-1"
        super().__init__(State=state, Names=[name], Labels={SERVICE: service}, Status="Up 1 s")

    async def start(self) -> None:
        """Start, as the engine does."""
        self["State"] = "running"


def runner_of(**states: str) -> tuple[ProjectRunner, dict[str, ListedContainer]]:
    """The runner of a project, and its containers by service.

    Args:
        states: service to the state of its container.
    """
    containers = {service: ListedContainer(service, state) for service, state in states.items()}

    async def list_containers(**_: object) -> list[ListedContainer]:
        return list(containers.values())

    docker = SimpleNamespace(containers=SimpleNamespace(list=list_containers))
    return ProjectRunner(cast(aiodocker.Docker, docker), "hifi-green"), containers


async def test_containers_that_were_stopped_are_started_again_without_setup() -> None:
    runner, containers = runner_of(setup="exited", kafka="exited", ingest="exited")
    assert await runner.waits_for() == ["hifi-green-kafka-1: exited", "hifi-green-ingest-1: exited"]
    await runner.start(ColourSetup(), in_background=False)
    assert {service: container["State"] for service, container in containers.items()} == {
        "setup": "exited",
        "kafka": "running",
        "ingest": "running",
    }
    assert await runner.waits_for() == []


@pytest.mark.parametrize("kafka", ["created", "running"])
async def test_containers_that_were_made_anew_are_left_to_compose_which_runs_setup_first(kafka: str) -> None:
    runner, containers = runner_of(setup="created", kafka=kafka, ingest="created")
    await runner.start(ColourSetup(), in_background=False)
    assert containers["ingest"]["State"] == "created"
    conditions = await runner.waits_for()
    if kafka == "running":
        assert conditions == ["hifi-green-ingest-1: created"]
    else:
        assert "`infra/docker/colours.sh compose COLOUR up --detach --wait`" in conditions[0]
