"""A secured broker for the tests of this folder: its users, its stream, and clients that act as them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.security.access import user
from hifi.kafka.topics import ControlTopics, Topics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.credentials import ClusterCredentials

CONTROL = ControlTopics("s-control")


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """A running cluster and its stream `s`."""

    cluster: KafkaCluster
    topics: Topics

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def credentials(self) -> ClusterCredentials:
        assert self.cluster.credentials is not None
        return self.cluster.credentials

    def security(self, role: str) -> KafkaSecurity:
        """How a service, the publisher or the operator connects."""
        return self.credentials.security(user(self.topics, role))

    def replace_authority(self) -> None:
        """Replace the certificate authority and the brokers' certificate, which they load when they start."""
        for name in ("ca.pem", "ca.key", "broker.pem"):
            (self.credentials.folder / name).unlink()
        self.credentials.prepare()

    @asynccontextmanager
    async def client(
        self, make: Callable[..., Any], security: KafkaSecurity, **options: Any
    ) -> AsyncIterator[Any]:
        """A started client of aiokafka with this security."""
        client = make(**client_options(self.bootstrap, security), **options)
        try:
            await client.start()
            yield client
        finally:
            await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
