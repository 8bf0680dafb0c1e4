"""The control plane beside a mesh in containers adds, removes and replaces instances under load; nothing is lost."""

import asyncio
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.containers.stack import (
    ComposeMesh,
    SteadySender,
    all_arrived_once,
    inspect,
    run,
    slow_pipes,
    until,
)

pytestmark = pytest.mark.more  # test_mesh.py has the executor's changes without deploy and scale
MakeSender = Callable[[ComposeMesh], SteadySender]
SHORTENED = """
services:
  observe: {environment: {HIFI_OBSERVE_STABLE_S: "5"}}
  deploy:
    environment: {HIFI_DEPLOY_STABLE_S: "8", HIFI_DEPLOY_EVENTS: "50", HIFI_DEPLOY_READY_S: "45"}
  scale:
    environment: {HIFI_SCALE_BOUNDS: "egest=1-3", HIFI_SCALE_DOWN_AFTER_S: "10"}
"""
CRASHING = """
FROM hifi-normalize:{tag}
USER 0:0
RUN printf '\\nimport os, threading\\nthreading.Timer(6, os._exit, [9]).start()\\n' \\
    >>"$(echo /opt/hifi/lib/python3*/site-packages/hifi_normalize/__main__.py)"
USER 10001:10001
"""


@pytest.fixture(scope="module")
def mesh(make_mesh: Callable[..., ComposeMesh], tmp_path_factory: pytest.TempPathFactory) -> ComposeMesh:
    folder = tmp_path_factory.mktemp("compose")
    file = folder / "shortened.yaml"
    file.write_text(SHORTENED)
    mesh = make_mesh("executor", str(file), control="hifi-control", HIFI_PIPES=slow_pipes(folder))
    mesh.up()
    return mesh


@pytest.fixture(scope="module")
def releases(tag: str) -> None:
    """Images of normalize: `good` is the same under another tag, `bad` ends by itself again and again."""
    run("docker", "tag", f"hifi-normalize:{tag}", "hifi-normalize:good")
    subprocess.run(
        ["docker", "build", "--network", "none", "--tag", "hifi-normalize:bad", "-"],
        input=CRASHING.format(tag=tag),
        text=True,
        check=True,
        capture_output=True,
    )


def instances(mesh: ComposeMesh, service: str) -> dict[str, dict[str, Any]]:
    return {instance["name"]: instance for instance in mesh.executor() if instance["service"] == service}


def deployed(mesh: ComposeMesh, service: str) -> dict[str, Any]:
    return next(
        deployment
        for deployment in json.loads(mesh.hifi("deploy", "status", "--json"))
        if deployment["service"] == service
    )


def images(mesh: ComposeMesh, service: str) -> list[str]:
    return [inspect(container, "{{.Config.Image}}") for container in mesh.containers(service)]


async def run_steps(*steps: Callable[[], object]) -> None:
    for step in steps:
        await asyncio.to_thread(step)


async def test_egest_grows_and_the_control_plane_removes_what_is_not_needed(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    def grow() -> None:
        assert (
            len([instance for instance in mesh.executor("egest", "3") if instance["service"] == "egest"]) == 3
        )
        until(
            lambda: all(instance["ready"] for instance in instances(mesh, "egest").values()),
            "all are ready",
            every_s=2,
        )
        assert all(instance["rss_bytes"] > 10_000_000 for instance in instances(mesh, "egest").values())
        assert len(mesh.containers("egest")) == 3

    def shrink() -> None:
        until(lambda: len(instances(mesh, "egest")) == 1, "scale has removed two instances", every_s=4)
        assert len(mesh.containers("egest")) == 1

    event_sender = sender(mesh)
    await event_sender.send_while(run_steps(grow, shrink))
    all_arrived_once(mesh, event_sender)


async def test_an_instance_that_died_runs_again_and_is_counted(mesh: ComposeMesh) -> None:
    restarts_before = instances(mesh, "egest")["egest-1"]["restarts"]
    mesh.crash("egest")
    until(
        lambda: (
            (egest := instances(mesh, "egest")["egest-1"])["restarts"] > restarts_before and egest["ready"]
        ),
        "egest is ready again",
        every_s=2,
    )


async def test_a_bad_release_is_rolled_back_and_a_good_one_gets_to_every_instance(
    mesh: ComposeMesh, sender: MakeSender, tag: str, releases: None
) -> None:
    def deploy(release: str, state: str) -> Callable[[], None]:
        def wait() -> None:
            began_s = time.monotonic()
            mesh.hifi("deploy", "start", "normalize", release)
            until(
                lambda: (
                    (deployment := deployed(mesh, "normalize"))["release"] == release
                    and deployment["state"] == state
                    and not deployment["canary"]
                ),
                f"{release} is {state}",
                every_s=4,
            )
            print(f"{release}: {deployed(mesh, 'normalize')['reason']}; {time.monotonic() - began_s:.0f} s")

        return wait

    event_sender = sender(mesh)
    await event_sender.send_while(run_steps(deploy("bad", "rolled back")))
    # It ended again and again; on a slow machine it is seen first how far that puts it behind.
    assert deployed(mesh, "normalize")["reason"].startswith("normalize-2 ")
    assert images(mesh, "normalize") == [f"hifi-normalize:{tag}"]
    second_sender = sender(mesh)
    second_sender.name += "-good"
    await second_sender.send_while(run_steps(deploy("good", "in force")))
    assert images(mesh, "normalize") == ["hifi-normalize:good"]
    all_arrived_once(mesh, event_sender, second_sender)


def test_a_release_without_an_image_is_refused(mesh: ComposeMesh) -> None:
    mesh.hifi("deploy", "start", "egest", "no-such-tag")
    until(lambda: deployed(mesh, "egest")["state"] == "refused", "the release is refused", every_s=4)
    assert "no image hifi-egest:no-such-tag" in deployed(mesh, "egest")["reason"]
    assert len(mesh.containers("egest")) == 1


async def test_an_executor_that_died_knows_the_highest_token_and_the_release_in_force(
    mesh: ComposeMesh,
) -> None:
    mesh.crash("executor")
    until(lambda: mesh.health("executor") == ["healthy"], "the executor is back")
    with pytest.raises(AssertionError, match="is over"):
        mesh.executor("egest", "2")
    folder = run("docker", "exec", mesh.containers("executor")[0], "cat", "/var/lib/executor/executor.json")
    assert json.loads(folder.stdout)["releases"]["normalize"] == "good"
