"""The real service on a real Kafka, with a real supervisor of stand-in services with good and bad releases.

The test writes the verdicts in place of observe.
"""

import asyncio
import os
import shutil
import signal

import pytest
from tests.support.committed import until_readable
from tests.support.deploy.deployed_mesh import deployed

from hifi.control.action import ActionKind, ActionState
from hifi.control.releases.deployment import DeploymentState
from hifi.control.releases.desired_release import INSTALLED
from hifi.control.request import RequestKind
from hifi.control.verdict import Condition
from hifi_cli.mesh_state.audited_command import author


async def test_a_release_goes_everywhere_and_what_is_worse_goes_back(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        await mesh.tell(Condition.UNSTABLE)
        good_release = mesh.release("good")
        await mesh.control.deploy("egest", good_release, 1)
        await mesh.status(lambda status: "unstable" in status.reason)
        assert set(mesh.running().values()) == {INSTALLED}
        mesh.condition = Condition.STABLE
        deployment = await mesh.status(lambda status: status.state is DeploymentState.CANARY)
        assert (deployment.canary, deployment.before) == ("egest-3", INSTALLED)
        await mesh.settled(good_release, DeploymentState.IN_FORCE)
        await mesh.control.deploy("egest", mesh.release("bad", "crashes"), 2)
        deployment = await mesh.settled(good_release, DeploymentState.ROLLED_BACK)
        assert "egest-3 ended 2 times by itself" in deployment.reason
        assert deployment.before == good_release
        await mesh.control.deploy("egest", str(tmp_path / "absent"), 1)
        deployment = await mesh.settled(good_release, DeploymentState.REFUSED)
        assert "is no folder" in deployment.reason
        kinds = {
            (action.kind, action.state)
            for action in mesh.log.history.newest_first
            if action.actor == "deploy"
        }
        assert (ActionKind.ROLL_BACK, ActionState.DONE) in kinds
        assert (ActionKind.DEPLOY, ActionState.DONE) in kinds


@pytest.mark.more
async def test_a_release_that_is_gone_does_not_hold_up_the_next_one(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        release = mesh.release("gone")
        await mesh.control.deploy("egest", release, 2)
        await mesh.settled(release, DeploymentState.IN_FORCE)
        shutil.rmtree(release)
        for name in ("egest-1", "egest-2"):  # as when the whole mesh is started again
            await mesh.mesh.set_release(name, INSTALLED, "the release is gone")
        deployment = await mesh.status(lambda status: "is no folder" in status.reason)
        assert deployment.state is DeploymentState.IN_FORCE
        await mesh.control.deploy("egest", INSTALLED, 1)
        await mesh.status(lambda status: status.release == INSTALLED)
        await mesh.settled(INSTALLED, DeploymentState.IN_FORCE)


@pytest.mark.more
async def test_whatever_is_worse_goes_back_with_its_reason(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        for behaviour, reason in (
            ("never-ready", "egest-3 was not ready for 8 s"),
            ("dead-letters", "dead letters: "),
        ):
            await mesh.control.deploy("egest", mesh.release(behaviour, behaviour), 2)
            deployment = await mesh.settled(INSTALLED, DeploymentState.ROLLED_BACK)
            assert reason in deployment.reason


@pytest.mark.more
async def test_a_person_forces_pauses_and_aborts_a_deployment(kafka, tmp_path, monkeypatch) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        await mesh.tell(Condition.UNSTABLE)
        await mesh.control.deploy("egest", mesh.release("next"), 1)
        await mesh.status(lambda status: "unstable" in status.reason)
        await mesh.control.ask_deployer("egest", RequestKind.FORCE)
        await mesh.status(lambda status: status.state is DeploymentState.CANARY)
        await mesh.control.ask_deployer("egest", RequestKind.PAUSE)
        await mesh.status(lambda status: status.reason.startswith("paused by"))
        assert sorted(mesh.running().values()).count(INSTALLED) == 2
        await mesh.control.ask_deployer("egest", RequestKind.FORCE)
        await mesh.status(lambda status: status.stage == 2)
        assert sorted(mesh.running().values()).count(INSTALLED) == 1
        await until_readable(kafka, mesh.control.topics.actions)
        await mesh.log.catch_up()
        forced_actions = [
            action
            for action in mesh.log.history.newest_first
            if action.actor == "deploy" and action.forced_by
        ]
        assert [action.forced_by for action in forced_actions] == [author()] * 2
        assert forced_actions[0].reason == f"forced by {author()}"
        await mesh.control.ask_deployer("egest", RequestKind.ABORT)
        deployment = await mesh.settled(INSTALLED, DeploymentState.ROLLED_BACK)
        assert deployment.reason.startswith("aborted by")


@pytest.mark.more
async def test_a_deployer_that_is_killed_in_each_of_its_actions_leaves_nothing_half_done(
    kafka, tmp_path, monkeypatch
) -> None:
    async with deployed(kafka, tmp_path, monkeypatch) as mesh:
        good_release = mesh.release("good")
        await mesh.control.deploy("egest", good_release, 1)
        killed_actions = 0
        while not (await mesh.status(lambda _: True)).state.final:
            started_actions = sum(action.actor == "deploy" for action in mesh.log.history.newest_first)
            if started_actions > killed_actions:  # each action is interrupted once, soon after it began
                killed_actions = started_actions
                os.kill(mesh.mesh.instances["deploy"][0].process.pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
            await mesh.log.catch_up()
        await mesh.settled(good_release, DeploymentState.IN_FORCE)
        assert killed_actions >= 3
