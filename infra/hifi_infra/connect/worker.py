"""One worker of Kafka Connect as a child process, with Debezium's connector for PostgreSQL and exactly-once sources."""

import asyncio
import base64
import os
import secrets
import signal
import time
from pathlib import Path
from typing import Final

import aiohttp
from aiokafka.errors import KafkaError

from hifi.kafka.admin import topic_names
from hifi.kafka.security import java_client_options
from hifi.pipe.limits import pipe_limits
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import HifiError, Retryable
from hifi_infra.connect.held_slots import HeldSlots
from hifi_infra.connect.worker_settings import (
    USER,
    properties,
    worker_settings,
    write_login,
)
from hifi_infra.java.jars import connect_jars, debezium_jars
from hifi_infra.java.jdk import find_java
from hifi_infra.java.kafka_command import LOG4J
from hifi_infra.mesh.plan import CREDENTIALS
from hifi_infra.process.process import Process

_START_S: Final = 300.0
_POLL_S: Final = 0.5
_RESTART_S: Final = (1.0, 5.0, 30.0)
_STUCK_S: Final = 300.0
_PROBE_S: Final = 5.0
_STATUS_S: Final = 1.0
"""Less than the time after which collect restarts a task that has failed, which ends its status."""
_ORPHAN_S: Final = 60.0
_ANSWER: Final = aiohttp.ClientTimeout(total=12)
"""More than the 10 s that Kafka Connect takes to tell that the thread that does its work does none."""

logger = log.get(__name__)


class ConnectWorker:
    """Runs a worker. Its connectors and their positions are kept in topics of the Kafka cluster."""

    def __init__(self, folder: Path, bootstrap: str, port: int, *, brokers: int = 1) -> None:
        """Prepare the worker; `start` starts it.

        Args:
            folder: for its settings and its log, and the file `CREDENTIALS`, which collect needs.
            bootstrap: bootstrap servers of a Kafka cluster without security.
            port: of the REST API, on this machine only.
            brokers: of the cluster, which bounds the copies of the worker's topics.
        """
        self.url: Final = f"http://127.0.0.1:{port}"
        self._folder = folder
        self._bootstrap = bootstrap
        self._port = port
        self._copies = min(brokers, 3)
        self._password = secrets.token_urlsafe(24)
        self.process: Process | None = None
        self._healthy_s = self._asked_s = self._status_s = self._started_s = 0.0
        self._held_slots = HeldSlots()
        self.restarts = 0
        """How often `supervise` has started it again."""

    async def start(self) -> None:
        """Start the worker, and return when it takes requests.

        Raises:
            Misconfigured: Java or a jar is missing and cannot be installed.
            Retryable: it ends, or is not ready in time; the message has the end of its log.
        """
        process = await asyncio.to_thread(self._process)
        await process.start()
        self.process = process
        await self.wait_ready()

    async def wait_ready(self) -> None:
        """Return when the worker takes requests.

        Raises:
            Retryable: as `start`.
        """
        process, end_s = self.process, time.monotonic() + _START_S
        assert process is not None
        while not await self._healthy():
            if not process.running or time.monotonic() > end_s:
                reason = "is not ready in time" if process.running else "has ended"
                raise Retryable(f"Kafka Connect {reason}; end of its log {process.log}:\n{process.tail(5)}")
            await asyncio.sleep(_POLL_S)
        self._healthy_s = self._asked_s = self._started_s = time.monotonic()

    async def supervise(self, stuck_s: float = _STUCK_S, orphan_s: float = _ORPHAN_S) -> None:
        """Start the worker again whenever it ends, is stuck or has orphans, until cancelled.

        Its connectors go on from their positions. A worker that handles no requests may still hold the slots of its
        connectors at their databases; its threads are in its log before it is killed. While Kafka is away a worker
        waits for it, which is no reason to replace it.

        An orphan is a task that Kafka Connect could not end when Kafka went away: it reads its slot for as long as the
        worker lives, so its successors fail. A slot that is held after that, too, is no reason to replace it again.

        Args:
            stuck_s: how long it may handle no requests while Kafka answers, seconds.
            orphan_s: least time between a start and one for an orphan, seconds.
        """
        failures = 0
        while True:
            await asyncio.sleep(_POLL_S)
            process = self.process
            if process is None:
                continue
            if process.running and (connectors := await self._orphaned(orphan_s)):
                logger.error("connect-orphan", connectors=connectors, log=str(process.log))
                await process.kill()
            elif process.running and not await self._stuck(stuck_s):
                continue
            elif process.running:
                logger.error("connect-stuck", seconds=stuck_s, log=str(process.log))
                os.kill(process.pid, signal.SIGQUIT)  # writes what each thread does
                await asyncio.sleep(_POLL_S)
                await process.kill()
            else:
                logger.error("connect-ended", exit_code=process.returncode, log=str(process.log))
            try:
                await self.start()
            except (HifiError, OSError) as error:
                logger.error("connect-not-started", error=str(error))  # noqa: TRY400 - the message says it
                await asyncio.sleep(backoff_s(failures, _RESTART_S))
                failures += 1
            else:
                failures, self.restarts = 0, self.restarts + 1

    async def stop(self) -> None:
        """End the worker; its connectors go on when it is started again."""
        if self.process is not None:
            await self.process.kill()

    async def _stuck(self, stuck_s: float) -> bool:
        """Whether it has handled no requests for so long while Kafka answers; it is asked every few seconds."""
        if time.monotonic() - self._asked_s < _PROBE_S:
            return False
        is_excused = await self._healthy() or not await self._kafka_answers()
        self._asked_s = time.monotonic()
        if is_excused:
            self._healthy_s = self._asked_s
        return self._asked_s - self._healthy_s >= stuck_s

    async def _orphaned(self, orphan_s: float) -> list[str]:
        """The connectors of which a task has failed since an orphan reads its slot."""
        now_s = time.monotonic()
        if now_s - self._status_s < _STATUS_S or now_s - self._started_s < orphan_s:
            return []
        self._status_s = now_s
        return self._held_slots.take(await self._get("/connectors?expand=status") or b"", now_s)

    async def _kafka_answers(self) -> bool:
        try:
            async with asyncio.timeout(_ANSWER.total):
                await topic_names(self._bootstrap, "")
        except (KafkaError, OSError):  # also no answer in time
            return False
        return True

    async def _healthy(self) -> bool:
        """Whether the thread of the worker that handles requests does so."""
        return await self._get("/health") is not None

    async def _get(self, path: str) -> bytes | None:
        """The body of an answer with status 200; None: there is none."""
        login = base64.b64encode(f"{USER}:{self._password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        try:
            async with (
                aiohttp.ClientSession(timeout=_ANSWER) as session,
                session.get(self.url + path, headers=headers) as answer,
            ):
                return await answer.read() if answer.status == 200 else None
        except (OSError, aiohttp.ClientError):
            return None

    def _process(self) -> Process:
        plugin = self._folder / "plugins" / "debezium-postgres"
        plugin.mkdir(parents=True, exist_ok=True)
        for jar in debezium_jars():
            link = plugin / jar.name
            link.unlink(missing_ok=True)
            link.symlink_to(jar)
        file = self._folder / "worker.properties"
        settings = worker_settings(
            java_client_options(self._bootstrap),
            group="hifi-connect",
            listener=self.url,
            plugins=str(plugin.parent),
            copies=self._copies,
            secrets=[str(folder.resolve()) for folder in pipe_limits().secret_folders],
        )
        file.write_text(properties(settings))
        credentials = self._folder / CREDENTIALS
        credentials.touch(mode=0o600)
        credentials.write_text(f"{self.url} {USER} {self._password}\n")
        java = find_java()
        command = [
            str(java.executable),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            write_login(self._folder.resolve(), self._password),
            f"-Dlog4j2.configurationFile={LOG4J}",
            "-cp",
            os.pathsep.join(map(str, connect_jars())),
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(file),
        ]
        return Process("Kafka Connect", command, log=self._folder / "connect.log")
