"""Releases on a real mesh under load: bad ones are rolled back by themselves, a good one gets to every instance."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination

from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import INSTALLED
from hifi.pipe.model import Pipe
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = pytest.mark.timeout(600)
NORMALIZE = Path(__file__).parents[3] / "services" / "normalize"
WRITE_KEY = "write-key"
KEYS = 200
EVENTS_PER_S = 150
WITHIN_S = 600
STEP = Path("hifi_normalize/step.py")
SETTINGS = {
    "DEPLOY_KEY": WRITE_KEY,
    "HIFI_DEPLOY_STABLE_S": "12",
    "HIFI_DEPLOY_EVENTS": "100",
    "HIFI_DEPLOY_READY_S": "30",
    "HIFI_DEPLOY_LAG_S": "3",
    "HIFI_OBSERVE_STABLE_S": "5",
}


@dataclass
class LoadedMesh:
    """A mesh with a steady load.

    Attributes:
        mesh: the mesh, with two instances of normalize.
        control: the control plane.
        load_task: the load.
        accepted: numbers of the events that ingest acknowledged.
        received: number of an event to how often it arrived.
    """

    mesh: Mesh
    control: ControlPlane
    load_task: "asyncio.Task[None]" = field(init=False)
    accepted: set[int] = field(default_factory=set)
    received: Counter[int] = field(default_factory=Counter)

    async def send(self, session: aiohttp.ClientSession) -> None:
        """Send events at a steady rate, each once, until cancelled."""
        number, start_s = 0, time.monotonic()
        async with asyncio.TaskGroup() as posts:
            while True:
                while number < (time.monotonic() - start_s) * EVENTS_PER_S:
                    posts.create_task(self._post(session, number))
                    number += 1
                await asyncio.sleep(0.02)

    async def _post(self, session: aiohttp.ClientSession, number: int) -> None:
        headers = {"authorization": f"Bearer {WRITE_KEY}", "x-key": f"key-{number % KEYS}"}
        url = f"{self.mesh.plan.url}/v1/pipes/orders/events"
        async with session.post(url, json={"n": number}, headers=headers) as answer:
            if answer.status == 202:
                self.accepted.add(number)

    async def deployed(self, release: str) -> Deployment:
        """Deploy a release of normalize, and wait until the deployment has ended and the instances have settled."""
        await self.control.deploy("normalize", release, 1)
        end_s = time.monotonic() + WITHIN_S
        while True:
            deployment = (await self.control.deployments())["normalize"]
            running_releases = [
                (instance.name, instance.spec.release) for instance in self.mesh.instances["normalize"]
            ]
            is_settled = sorted(running_releases) == [
                (f"normalize-{number}", deployment.settled) for number in (1, 2)
            ]
            if (
                deployment.release == release
                and deployment.state.final
                and is_settled
                and not deployment.canary
            ):
                return deployment
            assert time.monotonic() < end_s, (deployment, running_releases)
            await asyncio.sleep(0.5)

    async def end_load(self, dead_count: int) -> None:
        """End the load, and wait until all accepted events but `dead_count` have arrived."""
        self.load_task.cancel()
        await asyncio.gather(self.load_task, return_exceptions=True)
        end_s = time.monotonic() + WITHIN_S
        while len(missing_numbers := self.accepted - self.received.keys()) > dead_count:
            assert time.monotonic() < end_s, f"{len(missing_numbers)} did not arrive"
            await asyncio.sleep(0.2)


@asynccontextmanager
async def loaded(tmp_path: Path) -> AsyncIterator[LoadedMesh]:
    """A mesh with its control plane and a load of 150 events a second."""
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=4,
        scale={"observe": 1, "normalize": 2},
        control=True,
        env=SETTINGS,
    )
    mesh = Mesh(plan)
    mesh.prepare()
    assert plan.control_topics is not None
    received_counts: Counter[int] = Counter()

    async def take(request: ReceivedRequest) -> bytes:
        received_counts[orjson.loads(request.body)["n"]] += 1
        return OK

    async with destination(take) as receiver, aiohttp.ClientSession() as session:
        declaration = {
            "pipe": "orders",
            "source": {"keys": [{"env": "DEPLOY_KEY"}]},
            "destinations": [{"name": "crm", "url": receiver.url}],
        }
        await mesh.start([Pipe.model_validate(declaration)])
        try:
            await mesh.wait_ready(180)
            loaded_mesh = LoadedMesh(
                mesh, ControlPlane(mesh.bootstrap, plan.control_topics), received=received_counts
            )
            loaded_mesh.load_task = asyncio.create_task(loaded_mesh.send(session))
            try:
                yield loaded_mesh
            finally:
                loaded_mesh.load_task.cancel()
                await asyncio.gather(loaded_mesh.load_task, return_exceptions=True)
        finally:
            await mesh.stop()


def release(folder: Path, *changes: tuple[str, str]) -> str:
    """A copy of normalize in which some text was replaced."""
    release_folder = folder / "services" / "normalize"
    shutil.copytree(NORMALIZE, release_folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (release_folder / STEP).read_text("utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    (release_folder / STEP).write_text(text, "utf-8")
    return str(folder)


EACH_BATCH = "        fetched_us, outputs = now_us(), _Outputs()\n"
OPEN = "        fingerprints = await self._cache.open(assigned, batch[0])\n"
EACH_EVENT = "        program = self._pipes.get(event.pipe, event.revision)\n        if program.function"
CRASHES = (EACH_BATCH, '        __import__("os")._exit(3)\n' + EACH_BATCH)
SLOW = (
    ("        if fingerprints is None:\n", "        if True:\n"),
    (OPEN, "        await asyncio.sleep(0.2 * len(batch))\n" + OPEN),
)
LEAKS = (EACH_BATCH, '        self.__dict__.setdefault("leak", []).append(b"x" * 2**23)\n' + EACH_BATCH)
DEAD_LETTERS = (
    EACH_EVENT,
    "        if record.offset % 5 == 0:\n"
    '            raise Rejected("bad-release", "the release refuses good events")\n' + EACH_EVENT,
)
GOOD = (EACH_BATCH, EACH_BATCH + "        # nothing else changes\n")


@pytest.mark.parametrize("changes", [(CRASHES,), SLOW, (LEAKS,), (DEAD_LETTERS,), (GOOD,)])
def test_each_release_of_the_tests_can_be_made_of_the_sources(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    made = Path(release(tmp_path, *changes)) / "services" / "normalize" / STEP
    compile(made.read_text("utf-8"), str(made), "exec")


@pytest.mark.more
async def test_a_release_that_crashes_is_rolled_back_and_nothing_is_lost(tmp_path) -> None:
    async with loaded(tmp_path) as loaded_mesh:
        deployment = await loaded_mesh.deployed(release(tmp_path / "crashes", CRASHES))
        assert deployment.state is DeploymentState.ROLLED_BACK
        assert "normalize-3 ended 2 times by itself" in deployment.reason
        await loaded_mesh.end_load(dead_count=0)
        assert set(loaded_mesh.received.values()) == {1}, "an event arrived twice"
        print(f"{len(loaded_mesh.accepted):,} accepted, 0 lost; {deployment.reason}")


@pytest.mark.more
async def test_bad_releases_are_rolled_back_and_nothing_is_lost(tmp_path) -> None:
    async with loaded(tmp_path) as loaded_mesh:
        for name, changes, reason in (
            ("slow", SLOW, "behind, its peers"),
            ("leaks", (LEAKS,), "MiB"),
            ("dead-letters", (DEAD_LETTERS,), "dead letters: "),
        ):
            deployment = await loaded_mesh.deployed(release(tmp_path / name, *changes))
            print(f"{name}: {deployment.reason}")
            assert (deployment.state, deployment.before) == (DeploymentState.ROLLED_BACK, INSTALLED), (
                deployment
            )
            assert reason in deployment.reason
        dead_count = await dead_letters(loaded_mesh)
        assert 0 < dead_count < 500
        await loaded_mesh.end_load(dead_count)
        assert len(loaded_mesh.accepted - loaded_mesh.received.keys()) == dead_count, "an event was lost"
        assert set(loaded_mesh.received.values()) == {1}, "an event arrived twice"
        print(f"{len(loaded_mesh.accepted):,} accepted, {dead_count} dead letters, 0 lost")


@pytest.mark.more
async def test_a_good_release_gets_to_every_instance_and_nothing_is_lost(tmp_path) -> None:
    async with loaded(tmp_path) as loaded_mesh:
        deployment = await loaded_mesh.deployed(release(tmp_path / "good", GOOD))
        assert deployment.state is DeploymentState.IN_FORCE, deployment
        await loaded_mesh.end_load(dead_count=0)
        assert set(loaded_mesh.received.values()) == {1}, "an event arrived twice"
        print(f"{len(loaded_mesh.accepted):,} accepted, 0 lost; {deployment.reason}")


async def dead_letters(loaded_mesh: LoadedMesh) -> int:
    """Number of dead letters of the stream."""
    topics = loaded_mesh.mesh.topics
    async with AIOKafkaConsumer(bootstrap_servers=loaded_mesh.mesh.bootstrap) as consumer:
        partitions = [TopicPartition(topics.dead_letter, partition) for partition in range(4)]
        return sum((await consumer.end_offsets(partitions)).values())
