"""The control plane, manage and view of two neighbouring releases: each goes on with what the other began.

The test is observe, and services whose releases are deployed are stand-ins.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.releases.neighbours import write_release_after, write_release_before
from tests.support.deploy.deployed_mesh import DeployedMesh, deployed
from tests.support.manage.managed_stream import Managed, body
from tests.support.rollout.controlled_stream import controlled, ended, pipe
from tests.support.view.view_stream import KEY, VIEW, ViewProcess, ViewStream, viewing_process

from hifi.control.action import ActionKind, ActionState
from hifi.control.principals.principal import Role
from hifi.control.releases.deployment import DeploymentState
from hifi.control.releases.desired_release import INSTALLED
from hifi.control.rollout_status import RolloutState
from hifi.pipe.revision import WHOLE
from hifi_infra.mesh.release import release_environment

pytestmark = [pytest.mark.more, pytest.mark.timeout(600)]
WITHIN_S = 300


class Neighbours(NamedTuple):
    """Two releases, as folders or `installed`."""

    older: str
    newer: str


@pytest.fixture(params=[write_release_before, write_release_after])
def neighbours(request: pytest.FixtureRequest, tmp_path: Path) -> Neighbours:
    """The installed release and one of its neighbours."""
    write: Callable[[Path], None] = request.param
    folder = tmp_path / "neighbour"
    write(folder)
    return (
        Neighbours(str(folder), INSTALLED)
        if write is write_release_before
        else Neighbours(INSTALLED, str(folder))
    )


async def test_a_rollout_that_one_release_began_is_finished_by_the_other(
    kafka: str, tmp_path: Path, neighbours: Neighbours
) -> None:
    async with controlled(kafka, tmp_path) as stream:
        await stream.put_at_once(pipe("a"))
        stream.environment = release_environment(neighbours.older, {})
        older = stream.run()
        await stream.declare(pipe("b"))
        await stream.status(lambda status: status.share == WHOLE // 10)
        stream.environment = release_environment(neighbours.newer, {})
        newer = stream.run()  # side by side: the older one is refused, and ends
        await stream.status(ended(RolloutState.IN_FORCE, 0))
        await stream.declare(pipe("c"))
        await asyncio.to_thread(older.wait, WITHIN_S)
        await stream.status(lambda status: status.declaration == 1 and status.share == WHOLE // 10)
        newer.kill()
        stream.environment = release_environment(neighbours.older, {})
        stream.run()
        await stream.status(ended(RolloutState.IN_FORCE, 1))
        flights = (await stream.pipes()).pipes["flights"]
        assert (flights.pipe, flights.rollout) == (pipe("c"), None)
        promoted = [action.step for action in await stream.actions() if action.state is ActionState.DONE]
        assert promoted.count("revision 2: promoted") == promoted.count("revision 3: promoted") == 1


async def test_a_deployment_that_one_release_began_is_finished_by_the_other_and_both_scale(
    kafka: str, tmp_path: Path, neighbours: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = neighbours
    async with deployed(kafka, tmp_path, monkeypatch, actors=older, bounds={"retrier": (1, 2)}) as mesh:
        for release, actors in ((mesh.release("good"), newer), (INSTALLED, older)):
            await mesh.mesh.scale("retrier", 2)
            await mesh.control.deploy("egest", release, 1)
            await mesh.status(lambda status: status.state is DeploymentState.CANARY)
            await mesh.kill_actors(actors)
            await mesh.settled(release, DeploymentState.IN_FORCE)
            await scaled_in(mesh)
        done_kinds = [
            action.kind for action in mesh.log.history.newest_first if action.state is ActionState.DONE
        ]
        assert done_kinds.count(ActionKind.SCALE_IN) == 2


async def scaled_in(mesh: DeployedMesh) -> None:
    """Wait until scale has removed the instance that is not needed, and no action runs."""
    async with asyncio.timeout(WITHIN_S):
        while len(mesh.mesh.instances["retrier"]) > 1 or mesh.log.history.running:
            await asyncio.sleep(0.1)
            await mesh.log.catch_up()


async def test_manage_of_two_releases_takes_changes_of_the_same_pipes_and_principals(
    kafka: str, tmp_path: Path, neighbours: Neighbours
) -> None:
    managed = Managed(kafka, tmp_path, neighbours)
    try:
        await managed.start()
        await managed.create("ben", Role.ADMIN)
        for instance in range(2):
            await managed.until(instance, "GET", "/pipes", 200, by="ben")
        condition = {"if-none-match": "*"}
        for number in range(6):
            writer, authors = number % 2, ("ann", "ben")
            answers = await asyncio.gather(
                *(
                    managed.call(
                        instance,
                        "PUT",
                        "/pipes/flights",
                        body(f"d{number}-{instance}"),
                        condition,
                        authors[instance],
                    )
                    for instance in (writer, 1 - writer)
                )
            )
            [winner] = [answer for answer in answers if answer.status in (200, 201)]
            [loser] = [answer for answer in answers if answer.status == 412]
            assert loser.content["author"] == winner.content["declared"]["author"]
            condition = winner.etag
            for instance in range(2):
                async with asyncio.timeout(WITHIN_S):
                    while (
                        pipe_view := await managed.call(instance, "GET", "/pipes/flights")
                    ).etag != condition:
                        await asyncio.sleep(0.05)
                assert pipe_view.content["declared"]["body"] == winner.content["declared"]["body"]
        for instance in range(2):
            versions = await managed.call(instance, "GET", "/pipes/flights/versions")
            assert len(versions.content["versions"]) == 6
        assert (await managed.call(1, "DELETE", "/pipes/flights", headers=condition)).status == 200
        async with asyncio.timeout(WITHIN_S):
            while (await managed.call(0, "GET", "/pipes")).content["pipes"]:
                await asyncio.sleep(0.05)
    finally:
        await managed.stop()


async def test_a_view_goes_on_with_the_folder_of_the_other_release(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.1.0rc1 has no views."""
    monkeypatch.setenv("TEST_VIEW_KEY", KEY)
    neighbour = tmp_path / "neighbour"
    write_release_after(neighbour)
    stream = ViewStream(kafka)
    await stream.create()
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes" / "view.yaml").write_text(VIEW)
    expected = []
    for number, release in enumerate((INSTALLED, str(neighbour), INSTALLED)):
        process = ViewProcess(stream, tmp_path, tmp_path / f"view-{number}.log", release)
        process.start()
        try:
            await stream.events({"flight": f"f{number}", "carrier": "AA", "delay": number})
            expected.append((f"f{number}", number))
            async with viewing_process(process) as view:
                rows = await view.rows()
            assert sorted((row["flight"], row["delay"]) for row in rows) == expected
            assert process.stop() == 0
        finally:
            process.kill()
    await stream.producer.stop()
