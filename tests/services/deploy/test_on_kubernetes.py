"""The real deployer and executor on Kubernetes: on a model of it, and on a real API server with its controllers."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import aiohttp
import pytest
from tests.support.deploy.without_kafka import ForgetfulWriter, ImmediateRight
from tests.support.kubernetes.api_server import ApiServer
from tests.support.kubernetes.controllers import controlled_server
from tests.support.kubernetes.egest_service import MODEL_AND_REAL, EgestService, egest_service

from hifi.control.releases.deployment import Deployment, DeploymentState
from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.verdict import Condition, Verdict, Verdicts
from hifi.runtime.errors import Retryable
from hifi.runtime.http.server import listen, serve
from hifi_deploy import deployer
from hifi_deploy.deployer import Deployer
from hifi_deploy.desired_releases import DesiredReleases
from hifi_deploy.instance_reading import InstanceReading
from hifi_deploy.judge import JudgeRules
from hifi_infra.kubernetes.deployment_mesh import DeploymentMesh
from hifi_infra.mesh.executor import Executor
from hifi_infra.mesh.executor_client import MeshExecutor

pytestmark = pytest.mark.timeout(1200)

COUNT = 2
EVENTS_A_LOOK = 50
STABLE_S = 5.0
LOOKS = 400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with controlled_server(tmp_path_factory.mktemp("kubernetes")) as running:
        yield running


class ReleasedEgest:
    """Egest on Kubernetes, whose ready instances process events from one look to the next.

    As `hifi_deploy.driver.Driver`; those of the release `worse` fail once they have replaced a peer.
    """

    def __init__(self, mesh: DeploymentMesh, executor: MeshExecutor) -> None:
        self._mesh = mesh
        self._executor = executor
        self._events: dict[str, int] = {}
        self._dead_letters: dict[str, int] = {}
        self.set_release = executor.set_release
        self.remove = executor.remove
        self.set_default_release = executor.set_default_release

    async def read(self, service: str) -> Sequence[InstanceReading]:
        """Let the instances work, and read them."""
        with contextlib.suppress(Retryable):  # of metrics that are missing
            await self._mesh.refresh()
        instances = (await self._executor.instances())[service]
        failing_members = [instance.member for instance in instances if instance.release == "worse"]
        for instance in instances:
            if instance.ready:
                self._events[instance.member] = self._events.get(instance.member, 0) + EVENTS_A_LOOK
                if instance.member in failing_members and len(failing_members) > 1:
                    self._dead_letters[instance.member] = self._events[instance.member] // 2
        return [
            InstanceReading(
                instance.name,
                instance.release,
                instance.ready,
                instance.ready_after_s,
                instance.restarts,
                0.0 if instance.measured else None,
                instance.rss_bytes if instance.measured else None,
                self._events.get(instance.member, 0),
                self._dead_letters.get(instance.member, 0),
                lag_s=0.0,
                partitions=2,
            )
            for instance in instances
        ]


class DeployedEgest:
    """Egest with a deployer, and a clock that goes on by a second a look."""

    def __init__(self, service: EgestService, driver: ReleasedEgest) -> None:
        self.service = service
        self.right = ImmediateRight()
        self.clock_s = 1_000.0
        self._number = 0
        self._driver = driver
        self._desired = DesiredReleases()
        self._verdicts = Verdicts()
        self._deployer = self._new_deployer()

    @property
    def status(self) -> Deployment:
        """How far the deployment is."""
        return self._desired.deployments["egest"]

    def want(self, release: str) -> None:
        """Want a release."""
        desired = DesiredRelease("egest", release, "ann", 0, 1)
        self._number += 1
        self._desired.take_release(b"egest", desired.record().value, self._number)

    def replace_deployer(self) -> None:
        """Go on with another deployer, which knows only what the first one has recorded."""
        self._deployer = self._new_deployer()

    async def look(self) -> bool:
        """Let a second pass, and look; returns whether work remains. No pod needs longer than a second to start."""
        await self.service.until_ready()
        self.clock_s += 1
        now_us = round(self.clock_s * 1_000_000)
        for scope in ("stream", "service/egest"):
            self._verdicts.put(Verdict(scope, Condition.STABLE, now_us, now_us))
        return await self._deployer.reconcile()

    async def look_until_done(self) -> Deployment:
        """Look until nothing is left to do."""
        for _ in range(LOOKS):
            if not await self.look():
                return self.status
        raise AssertionError(f"not done after {LOOKS} looks: {self.status}, {self.right.summaries}")

    def _new_deployer(self) -> Deployer:
        return Deployer(
            topic="deployments",
            rules=JudgeRules(STABLE_S, 100, 10, 5, 0.02),
            unstable_s=3600,
            driver=self._driver,
            desired=self._desired,
            verdicts=self._verdicts,
            right=self.right,
            writer=ForgetfulWriter(),
        )


@pytest.fixture(params=MODEL_AND_REAL)
async def egest(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DeployedEgest]:
    sock = listen("127.0.0.1", 0)
    async with egest_service(request, monkeypatch, COUNT) as service, aiohttp.ClientSession() as session:
        mesh = service.executor(-1)
        executor = Executor(mesh, keep_token=mesh.keep_token)
        async with serve(executor.app(), sock, drain_s=1):
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            deployed = DeployedEgest(
                service, ReleasedEgest(mesh, MeshExecutor(session, url, executor.secret))
            )
            monkeypatch.setattr(deployer, "monotonic_s", lambda: deployed.clock_s)
            monkeypatch.setattr(deployer, "now_us", lambda: round(deployed.clock_s * 1_000_000))
            yield deployed


async def test_a_good_release_gets_to_every_instance(egest: DeployedEgest) -> None:
    egest.want("1.4")
    await egest.look()
    while egest.status.state is not DeploymentState.ROLLING:
        await egest.look()
    egest.replace_deployer()
    status = await egest.look_until_done()
    assert status.state is DeploymentState.IN_FORCE, status
    await egest.service.until_done()
    assert list((await egest.service.tags()).values()) == ["1.4"] * COUNT
    assert egest.right.summaries[0] == "canary egest-1: 1.4"
    assert "canary egest-1 ends" in egest.right.summaries
    assert egest.service.api.lowest_ready >= COUNT


async def test_a_release_that_never_becomes_ready_is_rolled_back_and_its_peers_stay(
    egest: DeployedEgest,
) -> None:
    pods = await egest.service.tags()
    egest.want("broken")
    status = await egest.look_until_done()
    assert status.state is DeploymentState.ROLLED_BACK
    assert "egest-1 was not ready for 10 s" in status.reason
    await egest.service.until_done()
    assert await egest.service.tags() == pods
    assert egest.service.api.lowest_ready == COUNT


async def test_a_release_that_fails_after_its_first_batch_is_rolled_back_everywhere(
    egest: DeployedEgest,
) -> None:
    egest.want("worse")
    status = await egest.look_until_done()
    assert status.state is DeploymentState.ROLLED_BACK
    assert "dead letters" in status.reason
    await egest.service.until_done()
    assert list((await egest.service.tags()).values()) == ["1"] * COUNT
    assert egest.service.api.lowest_ready >= COUNT


async def test_a_release_that_is_no_tag_is_refused_and_changes_nothing(egest: DeployedEgest) -> None:
    pods = await egest.service.tags()
    egest.want("../other")
    status = await egest.look_until_done()
    assert (status.state, status.reason) == (DeploymentState.REFUSED, "../other is no tag of an image")
    assert await egest.service.tags() == pods


async def test_without_metrics_a_bad_release_is_rolled_back_and_a_good_one_waits(
    egest: DeployedEgest,
) -> None:
    egest.service.api.has_metrics = False
    egest.want("broken")
    assert (await egest.look_until_done()).state is DeploymentState.ROLLED_BACK
    egest.want("1.4")
    while "CPU time and memory are unknown" not in egest.status.reason:
        assert await egest.look()
    assert len(await egest.service.names("installed")) == COUNT
    egest.service.api.has_metrics = True
    assert (await egest.look_until_done()).state is DeploymentState.IN_FORCE
