"""A stream with a control plane and two instances of the real service manage."""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from tests.support.openapi_documents import require_described

from hifi.control.principals.principal import Principal, Role, new_token, token_sha256
from hifi.control.releases.desired_release import INSTALLED
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics, Topics
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.http.openapi import document
from hifi_infra.kafka.stream_setup import prepare
from hifi_infra.mesh.release import release_environment
from hifi_infra.ports import free_port
from hifi_manage.schemas.registered import Registered
from hifi_manage.web.operations import API, OPERATIONS

WITHIN_S = 300
_DOCUMENT = document(OPERATIONS, "1", API)
_DESCRIBED = ("/pipes", "/check", "/try", "/me", "/principals", "/audit")


def body(destination: str, name: str = "flights") -> dict[str, Any]:
    return {
        "pipe": name,
        "source": {"keys": [{"env": f"KEY_{name.upper()}"}]},
        "destinations": [{"name": destination, "url": "http://127.0.0.1:9/"}],
    }


class Answer:
    """Of a call."""

    def __init__(self, status: int, headers: Any, content: Any) -> None:
        self.status, self.headers, self.content = status, headers, content

    @property
    def etag(self) -> dict[str, str]:
        return {"if-match": self.headers["etag"]}


class Managed:
    """A stream with a control plane and two instances of manage.

    Args:
        kafka: bootstrap servers.
        folder: for logs.
        releases: of the two instances.
    """

    def __init__(self, kafka: str, folder: Path, releases: tuple[str, str] = (INSTALLED, INSTALLED)) -> None:
        self.kafka, self.folder, self.releases = kafka, folder, releases
        self.topics = Topics(f"m{uuid.uuid4().hex[:8]}")
        self.control = ControlTopics(f"{self.topics.stream}-control")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.urls: list[str] = []
        self.tokens: dict[str, str] = {}

    async def start(self) -> None:
        await prepare(self.kafka, self.topics, 2, self.control)
        self._producer = Producer(self.kafka, "test")
        await self._producer.start()
        self._session = aiohttp.ClientSession()
        for number, release in enumerate(self.releases):
            port = free_port()
            settings = {
                "HIFI_KAFKA": self.kafka,
                "HIFI_STREAM": self.topics.stream,
                "HIFI_CONTROL": self.control.control,
                "HIFI_INSTANCE": f"manage-{number}",
                "HIFI_PORT": str(free_port()),
                "HIFI_MANAGE_PORT": str(port),
            }
            with (self.folder / f"manage-{number}.log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "hifi_manage"],
                        env=release_environment(release, os.environ | settings),
                        stdout=log,
                        stderr=log,
                    )
                )
            self.urls.append(f"http://127.0.0.1:{port}/api/v1")
        await self.create("ann", Role.ADMIN)
        for instance in range(2):
            await self.until(instance, "GET", "/pipes", 200)

    async def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(20)
        await self._session.close()
        await self._producer.stop(timeout_s=1)

    async def create(
        self, name: str, role: Role, pipes: tuple[str, ...] = (), expires_us: int | None = None
    ) -> None:
        self.tokens[name] = new_token()
        principal = Principal(
            name, role, pipes, token_sha256(self.tokens[name]), expires_us, "test", now_us()
        )
        await self.write(self.control.principals, principal.record())

    async def write(self, topic: str, record: Record) -> None:
        await self._producer.send_and_wait(topic, 0, [record])

    async def call(
        self,
        instance: int,
        method: str,
        path: str,
        content: Any = None,
        headers: dict[str, str] | None = None,
        by: str = "ann",
    ) -> Answer:
        sent_headers = {"authorization": f"Bearer {self.tokens[by]}"} if by else {}
        data = content if isinstance(content, bytes | None) else orjson.dumps(content)
        async with self._session.request(
            method, self.urls[instance] + path, data=data, headers=sent_headers | (headers or {})
        ) as answer:
            body = orjson.loads(await answer.read())
            if path.startswith(_DESCRIBED) and self.releases[instance] == INSTALLED:
                api_path = f"/api/v1{path.partition('?')[0]}"
                require_described(_DOCUMENT, method, api_path, answer.status, body)
            return Answer(answer.status, answer.headers, body)

    async def until(self, instance: int, method: str, path: str, status: int, by: str = "ann") -> Answer:
        """Call again until the status comes."""
        end, last = time.monotonic() + WITHIN_S, None
        while time.monotonic() < end:
            try:
                last = await self.call(instance, method, path, by=by)
                if last.status == status:
                    return last
            except aiohttp.ClientError:
                assert self.processes[instance].poll() is None, (
                    self.folder / f"manage-{instance}.log"
                ).read_text()
            await asyncio.sleep(0.05)
        raise AssertionError((last and last.content, (self.folder / f"manage-{instance}.log").read_text()))

    async def read(self, topic: str, take: Any) -> None:
        follower = TopicFollower(self.kafka, "test", {topic: take})
        await follower.start()
        await follower.stop()

    async def read_until(self, topic: str, is_complete: Callable[[Registered], bool]) -> Registered:
        """The schema registry in its topic, as soon as it is enough."""
        registered, end = Registered(), time.monotonic() + WITHIN_S
        follower = TopicFollower(self.kafka, "test", {topic: registered.take})
        await follower.start()
        try:
            while not is_complete(registered):
                assert time.monotonic() < end, registered.last_id
                await asyncio.sleep(0.02)
                await follower.catch_up()
        finally:
            await follower.stop()
        return registered
