"""What every test may ask for: a real Kafka broker, and topics of its own."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Protocol

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hifi_infra.broker import KafkaCluster
from hifi_infra.kraft import replication

LEADERS_WITHIN_S = 20


class MakeTopic(Protocol):
    """Makes a topic of a unique name, and returns the name once every partition has a leader."""

    def __call__(
        self, partitions: int = 1, *, prefix: str = "test", configs: Mapping[str, str] | None = None
    ) -> Awaitable[str]:
        """See the class."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--kafka`."""
    parser.addoption(
        "--kafka",
        default=os.environ.get("HIFI_TEST_KAFKA", ""),
        metavar="HOST:PORT",
        help="use this Kafka (host:port,...) instead of starting one; also the variable HIFI_TEST_KAFKA",
    )


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of one real broker, started once a session, outside of any test's event loop."""
    given: str = request.config.getoption("--kafka")
    if given == "testcontainers":
        pytest.exit("--kafka=testcontainers is not there yet: give HOST:PORT, or nothing", 2)
    if given:
        yield given
        return
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"))
    with asyncio.Runner() as runner:
        runner.run(cluster.start())
        try:
            yield cluster.bootstrap
        finally:
            runner.run(cluster.stop())


@pytest.fixture
async def topic(kafka: str) -> AsyncIterator[MakeTopic]:
    """A factory: `await topic(partitions=4)` is the name of a new topic. `configs` are Kafka's, as text."""
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
    described = await admin.describe_topics([topic])
    return sum(each["leader"] >= 0 for each in described[0]["partitions"])
