"""Two colours in containers behind HAProxy: requests are shifted under load, a colour sleeps, wakes and is lost."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.containers.stack import ComposeMesh, SteadySender, all_arrived_once, run, slow_pipes, until

from hifi_infra.ports import free_port

pytestmark = pytest.mark.more  # two meshes; without containers: tests/infra/colours and `make demo-colours`
NAME = "hifi-test-col"
SHORTENED = """
services:
  observe: {environment: {HIFI_OBSERVE_STABLE_S: "5"}}
  egest: {networks: [default, front]}
"""
OVERLOADED = (
    "429 ",
    "Kafka did not acknowledge",
    "Kafka is not acknowledging",
    "the buffer of events for Kafka is full",
    "too many request bodies",
)
"""In ingest's refusals where two meshes are too much for these cores; events that were refused so are sent again."""
CONCURRENCY = 32
"""Of the pipe: number of deliveries that may be repeated when egest is killed."""


@dataclass
class ColouredMesh(ComposeMesh):
    """Both colours; `containers` are those of the destination beside them."""

    def script(self, *arguments: str, check: bool = True) -> str:
        return run("infra/docker/colours.sh", *arguments, env=self.env, check=check).stdout

    def colour(self, *arguments: str) -> str:
        return self.script("colour", *arguments)

    def shift(self, colour: str) -> None:
        """Shift as an operator does: once more where a colour is unstable just then."""
        self._repeat("shift", colour, while_refused="unstable")

    def wake(self, colour: str) -> None:
        """Wake as an operator does: once more where its Kafka is not there yet."""
        self._repeat("wake", colour, while_refused="cannot be read from Kafka")

    def _repeat(self, command: str, colour: str, while_refused: str) -> None:
        def has_succeeded() -> bool:
            completed = run("infra/docker/colours.sh", "colour", command, colour, env=self.env, check=False)
            assert completed.returncode == 0 or while_refused in completed.stderr, completed.stderr
            return completed.returncode == 0

        until(has_succeeded, f"`hifi colour {command} {colour}` succeeds", every_s=4)

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.colour("status", "--json")))

    def stable(self) -> bool:
        verdicts = self.status()["seen"]
        return all(verdict["condition"] == "stable" for verdict in verdicts.values())

    def running(self, colour: str) -> list[str]:
        label = f"label=com.docker.compose.project={NAME}-{colour}"
        return run("docker", "ps", "--quiet", "--filter", label).stdout.split()

    def containers(self, service: str) -> list[str]:
        assert service == "destination"
        return [f"{NAME}-destination"]


@pytest.fixture(scope="module")
def mesh(tag: str, secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColouredMesh]:
    folder = tmp_path_factory.mktemp("compose")
    file = folder / "shortened.yaml"
    file.write_text(SHORTENED)
    env = {
        "HIFI_PIPES": slow_pipes(folder),
        "HIFI_TAG": tag,
        "HIFI_SECRETS": str(secrets),
        "HIFI_COLOURS_PROJECT": NAME,
        "HIFI_FRONT": NAME,
        "HIFI_COLOUR_FILES": str(file),
        "HIFI_PUBLIC_PORT": str(free_port()),
        "HIFI_SECOND_PORT": str(free_port()),
        "HIFI_CONSOLE_PORT": str(free_port()),
        "HIFI_GREEN_CONSOLE_PORT": str(free_port()),
    }
    mesh = ColouredMesh(NAME, env)

    def remove() -> None:
        run("docker", "rm", "--force", "--volumes", f"{NAME}-destination", check=False)
        mesh.script("down", "--volumes", "--timeout", "1", check=False)

    remove()  # from an earlier run
    mesh.script("up")
    destination = ("--name", f"{NAME}-destination", "--network", NAME, "--network-alias", "destination")
    run("docker", "run", "--detach", *destination, f"hifi-destination:{tag}")
    yield mesh
    remove()


@pytest.fixture
def sender(mesh: ColouredMesh, secrets: Path, request: pytest.FixtureRequest) -> SteadySender:
    return sender_to("HIFI_PUBLIC_PORT", mesh, secrets, request.node.name)


def sender_to(port: str, mesh: ColouredMesh, secrets: Path, name: str) -> SteadySender:
    key = (secrets / "write_key").read_text().strip()
    return SteadySender(f"http://127.0.0.1:{mesh.env[port]}", key, name=name)


def without_overload(sender: SteadySender) -> list[str]:
    """Refusals of the front, which has no colour for a request, or of an ingest that ends."""
    return [refusal for refusal in sender.refusals if not any(text in refusal for text in OVERLOADED)]


async def run_steps(*steps: Callable[[], object]) -> None:
    for step in steps:
        await asyncio.to_thread(step)
        await asyncio.sleep(2)


async def test_a_shift_and_back_refuse_lose_and_repeat_nothing(
    mesh: ColouredMesh, sender: SteadySender
) -> None:
    def shares(blue: int) -> Callable[[], None]:
        def check() -> None:
            shares = {name: colour["share"] for name, colour in mesh.status()["colours"].items()}
            assert shares == {"blue": blue, "green": 10_000 - blue}

        return check

    await sender.send_while(
        run_steps(
            lambda: until(mesh.stable, "both colours are stable", every_s=4),
            lambda: mesh.shift("green"),
            shares(0),
            lambda: mesh.colour("split"),
            shares(5_000),
            lambda: mesh.shift("blue"),
            shares(10_000),
        )
    )
    assert not without_overload(sender)
    all_arrived_once(mesh, sender)


async def test_the_second_front_follows_the_shares(mesh: ColouredMesh, secrets: Path) -> None:
    senders = [sender_to("HIFI_SECOND_PORT", mesh, secrets, f"second-{number}") for number in range(3)]
    await senders[0].send(2)
    until(mesh.stable, "both colours are stable", every_s=4)
    mesh.shift("green")
    accepted_before = accepted_by(mesh, "blue")
    await senders[1].send(3)
    assert accepted_by(mesh, "blue") == accepted_before > 0
    mesh.shift("blue")
    await senders[2].send(3)
    assert accepted_by(mesh, "blue") > accepted_before
    all_arrived_once(mesh, *senders)


def accepted_by(mesh: ColouredMesh, colour: str) -> float:
    """Events that the ingest of a colour has accepted since its start."""
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9000/metrics').read().decode())"
    page = mesh.script("compose", colour, "exec", "-T", "ingest", "/opt/hifi/bin/python", "-c", script)
    return sum(
        float(line.split()[-1])
        for line in page.splitlines()
        if line.startswith("hifi_ingest_accepted_events_total")
    )


async def test_a_burst_is_split(mesh: ColouredMesh, sender: SteadySender) -> None:
    split = {**mesh.env, "HIFI_COLOURS_SPLIT_ABOVE": str(sender.rate / 2)}
    run("infra/docker/colours.sh", "compose", "front", "up", "--detach", "--wait", "colours", env=split)

    def shared() -> bool:
        return all(colour["share"] == 5_000 for colour in mesh.status()["colours"].values())

    await sender.send_while(run_steps(lambda: until(shared, "both colours share the requests", every_s=4)))
    mesh.script("compose", "front", "up", "--detach", "--wait", "colours")
    until(mesh.stable, "both colours are stable", every_s=4)
    mesh.shift("blue")
    all_arrived_once(mesh, sender)


async def test_a_colour_sleeps_without_a_process_and_wakes(mesh: ColouredMesh, sender: SteadySender) -> None:
    def sleep() -> None:
        until(mesh.stable, "both colours are stable", every_s=4)
        mesh.colour("sleep", "green")
        assert mesh.running("green") == []

    await sender.send_while(run_steps(sleep, lambda: mesh.wake("green")))
    assert mesh.status()["colours"]["green"]["state"] == "idle"
    assert not without_overload(sender)
    all_arrived_once(mesh, sender)


async def test_the_loss_of_a_colour_loses_nothing_that_was_accepted(
    mesh: ColouredMesh, sender: SteadySender
) -> None:
    began_s = 0.0

    def lose() -> None:
        nonlocal began_s
        time.sleep(3)
        began_s = time.monotonic()
        run("docker", "kill", *mesh.running("blue"))
        until(
            lambda: mesh.status()["colours"]["green"]["share"] == 10_000, "green has every request", every_s=1
        )
        print(f"green has every request after {time.monotonic() - began_s:.1f} s")

    def is_back() -> None:
        until(lambda: mesh.running("blue"), "blue is started again")
        mesh.wake("blue")

    await sender.send_while(run_steps(lose, is_back))
    print(f"{len(sender.doubtful)} requests without a 202")
    all_arrived_once(mesh, sender, repeats=CONCURRENCY)


async def test_what_the_front_refuses_is_counted_by_observe(
    mesh: ColouredMesh, sender: SteadySender, secrets: Path
) -> None:
    url = f"http://127.0.0.1:{mesh.env['HIFI_GREEN_CONSOLE_PORT']}/api/v1/pipes/orders/minutes"
    headers = {"authorization": f"Bearer {(secrets / 'manage_token').read_text().strip()}"}

    async def refused() -> int:
        now = int(time.time() // 60)
        query = {"from": str(now - 5), "to": str(now)}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(url, params=query) as answer,
        ):
            fronts = (await answer.json())["fronts"]
        return sum(front_counts["failed"] for front_counts in fronts.values())

    refused_before = await refused()
    for colour in ("blue", "green"):
        mesh.script("compose", colour, "stop", "ingest")
    await sender.send(5)
    assert sender.doubtful
    for colour in ("blue", "green"):
        mesh.script("compose", colour, "start", "ingest")
    end_s = time.monotonic() + 150
    while await refused() <= refused_before:
        assert time.monotonic() < end_s, "observe has not counted what the front refused"
        await asyncio.sleep(2)
