"""Fixtures of all tests: a real Kafka broker for the session, and new topics."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.kraft import replication
from hifi_infra.ports import free_port

pytest.register_assert_rewrite("tests.support")

ROOT = Path(__file__).parents[1]
LEADERS_WITHIN_S = 20
CONTAINER_WITHIN_S = 180
MORE_TIMEOUT_S = 1800
PROGRAM_AWAITED_S = 5
"""How long a test may wait for a program that it may not start."""


hypothesis.settings.register_profile("hifi", deadline=None)  # a busy machine must not fail a test
hypothesis.settings.register_profile("fast", deadline=None, max_examples=20)
hypothesis.settings.load_profile("hifi")
os.environ.setdefault("HIFI_EGRESS_ALLOW", "loopback")  # as commands of hifi do
PROGRAMS = {"kafka", "start_hifi", "hifi", "oidc_program"}
"""Fixtures that start programs."""


class MakeTopic(Protocol):
    """Creates a topic with a unique name; returns the name once every partition has a leader."""

    def __call__(
        self, partitions: int = 1, *, prefix: str = "test", configs: Mapping[str, str] | None = None
    ) -> Awaitable[str]:
        """Create the topic."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--kafka`."""
    parser.addoption(
        "--kafka",
        default=os.environ.get("HIFI_TEST_KAFKA", ""),
        metavar="HOST:PORT",
        help="use this Kafka (host:port,...) instead of starting one, or `testcontainers` for one in a container; "
        "default: the variable HIFI_TEST_KAFKA",
    )
    parser.addoption(
        "--fast", action="store_true", help="run only quick tests, without Kafka, Spark and other programs"
    )


class NoPrograms:
    """Skips each test that is slow, starts a program or uses Kafka: `--fast`.

    The exception that skips a test stays with the thread or task that starts the program. If the test still waits for
    the program some seconds later, a signal raises it in the main thread.
    """

    def __init__(self) -> None:
        self._is_in_test = False
        self._timer: threading.Timer | None = None
        signal.signal(signal.SIGUSR1, self._end_waiting)
        sys.addaudithook(self._refuse_programs)

    def _refuse_programs(self, event_name: str, _: object) -> None:
        if event_name == "subprocess.Popen" and self._is_in_test:
            if self._timer is None:
                main_thread = threading.main_thread().ident
                self._timer = threading.Timer(
                    PROGRAM_AWAITED_S, signal.pthread_kill, (main_thread, signal.SIGUSR1)
                )
                self._timer.start()
            pytest.skip("it starts a program")

    def _end_waiting(self, *_: object) -> None:
        if self._is_in_test:
            pytest.skip("it waits for a program")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what needs Kafka or a command line of its own, or is marked `slow`."""
        left_out = {
            item
            for item in items
            if item.get_closest_marker("slow") or not PROGRAMS.isdisjoint(getattr(item, "fixturenames", ()))
        }
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Watch for programs while a test runs, its fixtures included."""
        self._is_in_test = True
        try:
            return (yield)
        finally:
            self._is_in_test = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None


def pytest_configure(config: pytest.Config) -> None:
    """Prepare `--fast`."""
    if config.getoption("--fast"):
        hypothesis.settings.load_profile("fast")
        config.pluginmanager.register(NoPrograms())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collections, each of which visits all modules and tests; later ones leave them out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests of the second tier, which run beside others for an hour, more time to end."""
    if item.get_closest_marker("more"):
        declared = item.get_closest_marker("timeout")
        timeout_s = max(MORE_TIMEOUT_S, declared.args[0] if declared else 0)
        item.add_marker(pytest.mark.timeout(timeout_s), append=False)


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap address of one real broker, started once a session, outside any test's event loop."""
    address_option: str = request.config.getoption("--kafka")
    if address_option == "testcontainers":
        with _container() as address:
            yield address
        return
    if address_option:
        yield address_option
        return
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"))
    with asyncio.Runner() as runner:
        runner.run(cluster.start())
        try:
            yield cluster.bootstrap
        finally:
            runner.run(cluster.stop())


@contextmanager
def _container() -> Iterator[str]:
    """A broker from the project's own image; builds the image and starts a Docker engine when missing."""
    os.environ["TESTCONTAINERS_RYUK_DISABLED"] = (
        "true"  # its image needs a registry; `with` removes the containers
    )
    os.environ["DOCKER_HOST"] = subprocess.check_output([ROOT / "infra/docker/engine.sh"], text=True).strip()
    subprocess.run(
        [ROOT / "infra/docker/images.sh", "kafka"], env={**os.environ, "HIFI_TAG": "test"}, check=True
    )
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

    port = free_port()
    with Network() as network:
        broker = DockerContainer("hifi-kafka:test").with_network(network).with_network_aliases("kafka")
        broker.with_env("KAFKA_ADVERTISED", f"127.0.0.1:{port}")
        broker.ports["9094/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment] # as the Docker client takes it
        with broker:
            end_s = time.monotonic() + CONTAINER_WITHIN_S
            while _health(broker.get_wrapped_container()) != "healthy":
                assert time.monotonic() < end_s, f"the broker is not healthy: {broker.get_logs()}"
                time.sleep(0.5)
            yield f"127.0.0.1:{port}"


def _health(container: Any) -> str:
    container.reload()
    return str(container.attrs["State"].get("Health", {}).get("Status"))


@pytest.fixture
async def topic(kafka: str) -> AsyncIterator[MakeTopic]:
    """A factory: `await topic(partitions=4)` returns the name of a new topic. `configs` are Kafka topic settings."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    copies, _ = replication(len((await admin.describe_cluster())["brokers"]))

    async def make(
        partitions: int = 1, *, prefix: str = "test", configs: Mapping[str, str] | None = None
    ) -> str:
        name = f"{prefix}.{uuid.uuid4().hex[:12]}"
        await admin.create_topics([NewTopic(name, partitions, copies, topic_configs=dict(configs or {}))])
        async with asyncio.timeout(LEADERS_WITHIN_S):
            while await _leaders(admin, name) < partitions:
                await asyncio.sleep(0.02)
        return name

    try:
        yield make
    finally:
        await admin.close()


async def _leaders(admin: AIOKafkaAdminClient, topic: str) -> int:
    descriptions = await admin.describe_topics([topic])
    return sum(description["leader"] >= 0 for description in descriptions[0]["partitions"])
