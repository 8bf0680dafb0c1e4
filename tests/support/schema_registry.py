"""hifi's own schema registry as a process, for the tests of its clients."""

import asyncio
import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from tests.support.stream_process import free_port, start_service

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.control.principals.principal import Principal, Role, new_token, token_sha256
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Retryable
from hifi_infra.kafka.stream_setup import prepare

WITHIN_S = 300


class SchemaRegistryProcess:
    """An instance of manage on a control plane of its own, and one principal."""

    user = "ann"

    def __init__(self, kafka: str, folder: Path) -> None:
        self._kafka, self._folder = kafka, folder
        self._topics = Topics(f"r{uuid.uuid4().hex[:8]}")
        self._control = ControlTopics(f"{self._topics.stream}-control")
        self._port = free_port()
        self._token = new_token()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}/registry"
        self.password_file = folder / "registry-password"
        self.password_file.write_text(self._token)

    @property
    def declared(self) -> dict[str, Any]:
        """As pipes name it."""
        return {"url": self.url, "user": self.user, "password_file": str(self.password_file)}

    def client(self) -> RegistryClient:
        """hifi's client."""
        return RegistryClient(RegistryAccess(self.url, self.user, self.password_file))

    def confluent(self) -> SchemaRegistryClient:
        """Confluent's client. It blocks."""
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"{self.user}:{self._token}"})

    async def prepare(self) -> None:
        """Create the topics and the principal."""
        await prepare(self._kafka, self._topics, 1, self._control)
        principal = Principal(self.user, Role.ADMIN, (), token_sha256(self._token), None, "test", now_us())
        producer = Producer(self._kafka, "test")
        await producer.start()
        await producer.send_and_wait(self._control.principals, 0, [principal.record()])
        await producer.stop(timeout_s=5)

    async def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = start_service(
            "hifi-manage",
            self._kafka,
            self._topics.stream,
            free_port(),
            self._folder / "manage.log",
            control=self._control.control,
            manage_port=self._port,
        )
        async with asyncio.timeout(WITHIN_S):
            while True:
                assert self._process.poll() is None, (self._folder / "manage.log").read_text()[-3000:]
                with contextlib.suppress(Retryable):
                    await self.client().request("GET", "/subjects")
                    return
                await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """Stop it at once."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._process = None


@contextlib.asynccontextmanager
async def schema_registry(kafka: str, folder: Path) -> AsyncIterator[SchemaRegistryProcess]:
    """A registry that answers."""
    registry = SchemaRegistryProcess(kafka, folder)
    await registry.prepare()
    await registry.start()
    try:
        yield registry
    finally:
        await registry.kill()
