"""Kafka Connect's REST API answers only clients with the password; a worker that takes no requests is replaced."""

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

import aiohttp
import orjson
import pytest

from hifi.runtime.connect_credentials import authorization
from hifi.runtime.errors import Misconfigured
from hifi_infra.connect import worker as connect_worker
from hifi_infra.connect.held_slots import HeldSlots
from hifi_infra.connect.worker import ConnectWorker
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import CREDENTIALS
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

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
        wrong_headers = {"Authorization": "Basic aGlmaTp3cm9uZw=="}
        async with aiohttp.ClientSession() as session:
            for method, path in REQUESTS:
                for headers in ({}, wrong_headers):
                    async with session.request(method, worker.url + path, json={}, headers=headers) as answer:
                        assert (method, path, answer.status) == (method, path, 401)
            async with session.get(worker.url + "/connectors", headers=secret) as answer:
                assert (answer.status, await answer.json()) == (200, [])
        for file in (CREDENTIALS, "rest-users.properties"):
            assert (tmp_path / "connect" / file).stat().st_mode & 0o077 == 0
    finally:
        await worker.stop()
        await kafka.kill()


@pytest.mark.more
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


ANSWERS_500 = """
import http.server, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if pathlib.Path("stuck").exists() else 200)
        self.end_headers()
        if self.path == "/connectors?expand=status" and pathlib.Path("status").exists():
            self.wfile.write(pathlib.Path("status").read_bytes())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
"""A double of a worker whose REST API answers while the thread that handles requests does nothing: no real one can be
brought into that state at will. In the folder `stuck` has to exist for it; `status` is that of its connectors."""


class DoubleOfWorker(ConnectWorker):
    def _process(self) -> Process:
        command = [sys.executable, "-c", ANSWERS_500, str(self._port)]
        return Process("double", command, log=self._folder / "double.log", cwd=self._folder)


def status_of(**traces: str) -> bytes:
    """The answer of `/connectors?expand=status`: a failed task of each connector with a trace."""
    return orjson.dumps(
        {
            name: {
                "status": {"connector": {"state": "RUNNING"}, "tasks": [{"state": "FAILED", "trace": trace}]}
            }
            for name, trace in traces.items()
        }
    )


SLOT = 'PSQLException: ERROR: replication slot "hifi_shop" {}'
HELD = SLOT.format("is active for PID 4711")


def requests(double: Process) -> int:
    return double.log.read_bytes().count(b"GET /health")


async def until_replaced(worker: ConnectWorker, process: Process, cause: Path) -> None:
    """Wait until a process is killed, take its cause away, and wait until the worker runs again."""
    async with asyncio.timeout(120):
        while process.running:
            await asyncio.sleep(0.1)
    cause.unlink()
    async with asyncio.timeout(60):
        while worker.restarts == 0:
            await asyncio.sleep(0.1)


@pytest.mark.more
async def test_a_worker_whose_api_answers_that_it_is_stuck_is_replaced_only_while_kafka_answers(
    tmp_path: Path,
) -> None:
    kafka = KafkaCluster(tmp_path / "kafka")
    await kafka.start()
    worker = DoubleOfWorker(tmp_path, kafka.bootstrap, free_port())
    supervising: asyncio.Task[None] | None = None
    try:
        await worker.start()
        process = worker.process
        assert process is not None
        supervising = asyncio.create_task(worker.supervise(stuck_s=6.0))
        [broker] = kafka.processes
        await kafka.kill_broker(broker)
        (tmp_path / "stuck").touch()
        requests_before = requests(process)
        async with asyncio.timeout(120):
            while (
                requests(process) < requests_before + 4
            ):  # three times the time between two of them is above `stuck_s`
                await asyncio.sleep(0.1)
        assert (process.running, worker.restarts) == (True, 0)
        await kafka.start_broker(broker)
        await until_replaced(worker, process, tmp_path / "stuck")
    finally:
        if supervising is not None:
            supervising.cancel()
        await worker.stop()
        await kafka.kill()


@pytest.mark.slow
async def test_a_worker_with_a_task_that_it_could_not_end_is_replaced(tmp_path: Path) -> None:
    worker = DoubleOfWorker(tmp_path, "127.0.0.1:1", free_port())
    supervising: asyncio.Task[None] | None = None
    try:
        await worker.start()
        process = worker.process
        assert process is not None
        supervising = asyncio.create_task(worker.supervise(orphan_s=0))
        (tmp_path / "status").write_bytes(status_of(shop=SLOT.format("does not exist")))
        async with asyncio.timeout(60):
            while process.log.read_bytes().count(b"GET /connectors") < 2:
                await asyncio.sleep(0.1)
        assert (process.running, worker.restarts) == (True, 0)
        (tmp_path / "status").write_bytes(status_of(shop=HELD))
        await until_replaced(worker, process, tmp_path / "status")
    finally:
        if supervising is not None:
            supervising.cancel()
        await worker.stop()


async def test_a_worker_is_not_replaced_again_while_another_program_holds_the_slot(tmp_path: Path) -> None:
    worker = DoubleOfWorker(tmp_path, "127.0.0.1:1", free_port())
    supervising: asyncio.Task[None] | None = None
    try:
        (tmp_path / "status").write_bytes(status_of(shop=HELD))
        await worker.start()
        supervising = asyncio.create_task(worker.supervise(orphan_s=0))
        async with asyncio.timeout(60):
            while worker.restarts == 0:
                await asyncio.sleep(0.1)
        process = worker.process
        assert process is not None
        count_before = process.log.read_bytes().count(b"GET /connectors")
        async with asyncio.timeout(60):
            while process.log.read_bytes().count(b"GET /connectors") < count_before + 3 and process.running:
                await asyncio.sleep(0.1)
        assert (process.running, worker.restarts) == (True, 1)
    finally:
        if supervising is not None:
            supervising.cancel()
        await worker.stop()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left"), Misconfigured("there is no Java")])
async def test_a_worker_is_supervised_after_a_start_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(connect_worker, "_RESTART_S", (0.01,))
    worker = DoubleOfWorker(tmp_path, "127.0.0.1:1", free_port())
    make_process, failures = worker._process, list[Exception]()

    def fail_once() -> Process:
        if not failures:
            failures.append(error)
            raise error
        return make_process()

    supervising: asyncio.Task[None] | None = None
    try:
        await worker.start()
        assert worker.process is not None
        monkeypatch.setattr(worker, "_process", fail_once)
        supervising = asyncio.create_task(worker.supervise())
        await worker.process.kill()
        async with asyncio.timeout(60):
            while worker.restarts == 0 and not supervising.done():
                await asyncio.sleep(0.1)
        assert (worker.restarts, worker.process.running, failures) == (1, True, [error])
    finally:
        if supervising is not None:
            supervising.cancel()
        await worker.stop()


def test_a_slot_is_a_reason_to_replace_the_worker_once_until_it_was_free() -> None:
    slots = HeldSlots()
    held, other = status_of(shop=HELD), status_of(shop=HELD, orders=HELD)
    assert slots.take(status_of(shop=SLOT.format("does not exist")), 0) == []
    assert slots.take(b"", 1) == []
    assert slots.take(held, 2) == ["shop"]
    # It is held again each time after collect has restarted the task.
    assert [slots.take(status, 100 + s) for s in range(0, 600, 100) for status in (held, b"{}")] == [[]] * 12
    assert slots.take(other, 700) == ["orders"], (
        "the slot of another connector may have an orphan all the same"
    )
    assert slots.take(held, 1_001) == ["shop"], "it was free for five minutes"
    times = range(1_200, 40_000, 200)
    assert [s for s in times if slots.take(held, s)] == [22_800], (
        "rarely, if it may be an orphan that came soon after"
    )
