"""Kafka Connect's REST API answers whoever has the password only; a worker that takes no requests is replaced."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from hifi.runtime.connect_credentials import authorization
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import CREDENTIALS
from hifi_infra.ports import free_port

REQUESTS = [
    ("GET", "/"),
    ("GET", "/connectors?expand=info"),
    ("GET", "/connector-plugins"),
    ("GET", "/admin/loggers"),
    ("PUT", "/connectors/planted/config"),
    ("POST", "/connectors"),
    ("DELETE", "/connectors/planted"),
]
"""Beside them Kafka Connect leaves open what its workers send each other, which is signed with a key of theirs."""


@pytest.mark.more
async def test_without_the_password_nothing_is_answered_or_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = KafkaCluster(tmp_path / "kafka")
    await kafka.start()
    worker = ConnectWorker(tmp_path / "connect", kafka.bootstrap, free_port())
    try:
        await worker.start()
        monkeypatch.setenv("HIFI_CONNECT_CREDENTIALS_FILE", str(tmp_path / "connect" / CREDENTIALS))
        secret = authorization(worker.url)
        wrong = {"Authorization": "Basic aGlmaTp3cm9uZw=="}
        async with aiohttp.ClientSession() as session:
            for method, path in REQUESTS:
                for headers in ({}, wrong):
                    async with session.request(method, worker.url + path, json={}, headers=headers) as answer:
                        assert (method, path, answer.status) == (method, path, 401)
            async with session.get(worker.url + "/connectors", headers=secret) as answer:
                assert (answer.status, await answer.json()) == (200, [])
        for file in (CREDENTIALS, "rest-users.properties"):
            assert (tmp_path / "connect" / file).stat().st_mode & 0o077 == 0
    finally:
        await worker.stop()
        await kafka.kill()


async def test_a_worker_that_runs_and_takes_no_requests_is_replaced(tmp_path: Path) -> None:
    kafka = KafkaCluster(tmp_path / "kafka")
    await kafka.start()
    worker = ConnectWorker(tmp_path / "connect", kafka.bootstrap, free_port())
    supervising: asyncio.Task[None] | None = None
    try:
        await worker.start()
        supervising = asyncio.create_task(worker.supervise(stuck_s=15.0))
        process = worker.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        async with asyncio.timeout(120):
            while worker.restarts == 0:
                await asyncio.sleep(0.5)
        assert not process.running
        assert worker.process is not None
        assert worker.process.pid != process.pid
        await worker.wait_ready()
    finally:
        if supervising is not None:
            supervising.cancel()
        await worker.stop()
        await kafka.kill()
