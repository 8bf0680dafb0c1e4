"""An Apache Kafka cluster on this machine: one JVM per broker, in KRaft mode, without containers."""

import asyncio
import errno
import fcntl
import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from aiokafka.errors import KafkaError

from hifi.kafka.clients import started_admin
from hifi.kafka.security import KafkaSecurity, use
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_infra.java.jars import kafka_jars, kafka_versions
from hifi_infra.java.kafka_command import kafka_command
from hifi_infra.kafka.cluster_state import ClusterState, load_cluster_state
from hifi_infra.kafka.credentials import ADMIN, BROKER, cluster_credentials
from hifi_infra.kafka.kraft import SecuredListeners, meta_properties, server_properties
from hifi_infra.ports import LOOPBACK
from hifi_infra.process.process import Process

FORMAT_S: Final = 60
POLL_S: Final = 0.05
MIN_FREE_BYTES: Final = 256 * 1024 * 1024
"""An empty broker needs little, but one that fills the disk later stops with its log folder offline."""


class BrokerFailed(HifiError):
    """A broker did not start. The message quotes the end of its log and gives the log's path."""


class KafkaCluster:
    """Brokers numbered from 1, each also a controller, with all data in one folder.

    Started again on the same folder it is the same cluster with the same records. One broker keeps one copy of each
    record, which survives killed processes but not a lost disk. Three brokers keep three copies and acknowledge once
    two have a record. Records are not flushed to disk at each write, so this too covers killed processes only.

    Args:
        data: the folder, created if missing. One cluster at a time uses it.
        brokers: number of brokers, fixed at the folder's first start.
        ports: client port of each broker; default: free ports, the same at each start while they are free.
        heap_mb: heap of each JVM; a broker needs about 150 MB more.
        jvm_flags: additional flags of each JVM.
        secure: clients must use TLS and authenticate, and may do only what ACLs allow; fixed at the folder's first
            start. Certificates and passwords are made at the first start; see `credentials`.
        version: of Kafka, as for `hifi_infra.java.jars.kafka_jars`; may be another one at each start.
    """

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        ports: Sequence[int] = (),
        heap_mb: int = 512,
        jvm_flags: Sequence[str] = (),
        secure: bool = False,
        version: str = "",
    ) -> None:
        if brokers < 1:
            raise Misconfigured("a Kafka cluster needs at least one broker")
        if ports and len(ports) != brokers:
            raise Misconfigured(f"{brokers} brokers need {brokers} ports, not {len(ports)}")
        self.data = data.absolute()
        self.brokers = brokers
        self._ports = tuple(ports)
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._version = version
        self.credentials = cluster_credentials(self.data) if secure else None
        """Certificates and passwords; None: plaintext."""
        self._state: ClusterState | None = None
        self._lock: IO[str] | None = None
        self.processes: dict[int, Process] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers. Raises RuntimeError before the first start."""
        return ",".join(self.address(number) for number in range(1, self.brokers + 1))

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id. Raises RuntimeError before the first start."""
        return self._loaded.cluster_id

    def address(self, broker: int) -> str:
        """`host:port` of one broker. Raises RuntimeError before the first start."""
        return f"{LOOPBACK}:{self._loaded.ports[broker - 1].broker}"

    async def start(self, timeout_s: float = 60.0) -> None:
        """Start all brokers; returns once each of them sees all of them.

        Raises:
            Misconfigured: Java, the jars, the ports or the folder do not allow it; the message says what to do.
            BrokerFailed: a broker ended or was not ready in time.
        """
        try:
            await self._start(timeout_s)
        except BaseException as error:  # including KeyboardInterrupt: no broker keeps running
            await self.kill()
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise Misconfigured(f"no space is left on the disk of {self.data}") from error
            raise

    async def _start(self, timeout_s: float) -> None:
        self._lock_folder()
        free_bytes = shutil.disk_usage(self.data).free
        if free_bytes < MIN_FREE_BYTES:
            raise Misconfigured(
                f"the disk of {self.data} has {free_bytes >> 20} MiB left, Kafka needs at least "
                f"{MIN_FREE_BYTES >> 20}: make room, or choose another data folder"
            )
        await asyncio.to_thread(kafka_jars, self._version)  # may download them
        secure = self.credentials is not None
        self._state = load_cluster_state(self.data, self.brokers, self._ports, secure=secure)
        numbers = range(1, self.brokers + 1)
        if self.credentials is not None:
            self.credentials.prepare()
        security = self.credentials.security(ADMIN) if self.credentials else KafkaSecurity()
        for address in (self.bootstrap, *map(self.address, numbers)):
            use(address, security)
        for number in numbers:
            self._configure(number)
        await self._format()
        await asyncio.gather(*(self.processes[number].start() for number in numbers))
        await asyncio.gather(*(self._ready(number, self.brokers, timeout_s) for number in numbers))

    async def stop(self, grace_s: float = 20.0) -> None:
        """Stop all brokers; kill those that have not ended after `grace_s` seconds. May be repeated."""
        await asyncio.gather(
            *(process.stop(grace_s) for process in self.processes.values() if process.running)
        )
        self._unlock_folder()

    async def kill(self) -> None:
        """Kill all brokers at once (SIGKILL)."""
        await asyncio.gather(*(process.kill() for process in self.processes.values() if process.running))
        self._unlock_folder()

    async def start_broker(self, broker: int, timeout_s: float = 60.0) -> None:
        """Start one broker again after `stop_broker` or `kill_broker`; returns once it answers.

        Raises:
            BrokerFailed: it ended or was not ready in time.
        """
        await self.processes[broker].start()
        await self._ready(broker, 1, timeout_s)

    async def stop_broker(self, broker: int, grace_s: float = 20.0) -> None:
        """Stop one broker; its partitions move to others first."""
        await self.processes[broker].stop(grace_s)

    async def kill_broker(self, broker: int) -> None:
        """Kill one broker (SIGKILL)."""
        await self.processes[broker].kill()

    def pause_broker(self, broker: int) -> None:
        """Freeze one broker (SIGSTOP), like a long garbage collection or a hung disk."""
        self.processes[broker].pause()

    def resume_broker(self, broker: int) -> None:
        """Continue a frozen broker (SIGCONT)."""
        self.processes[broker].resume()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        await self.stop()

    @property
    def _loaded(self) -> ClusterState:
        if self._state is None:
            raise RuntimeError("the cluster was never started")
        return self._state

    def _folder(self, broker: int) -> Path:
        return self.data / f"broker-{broker}"

    def _lock_folder(self) -> None:
        if self._lock is not None:
            raise RuntimeError("the cluster was started already")
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            lock = (self.data / "cluster.lock").open("w")
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise Misconfigured(f"the data folder {self.data} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when this process ends
        except OSError as error:
            lock.close()
            raise Misconfigured(
                f"the data folder {self.data} is in use by another running cluster: "
                "stop that cluster, or choose another folder"
            ) from error
        self._lock = lock

    def _unlock_folder(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _configure(self, broker: int) -> None:
        folder = self._folder(broker)
        folder.mkdir(exist_ok=True)
        settings = folder / "server.properties"
        self._write_settings(settings, broker, folder / "log")
        self.processes[broker] = Process(
            f"Kafka broker {broker}",
            kafka_command(
                f"-Xmx{self._heap_mb}m",
                *self._jvm_flags,
                "kafka.Kafka",
                str(settings),
                version=self._version,
            ),
            log=folder / "kafka.log",
            cwd=folder,
        )

    def _write_settings(self, file: Path, broker: int, log: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(server_properties(broker, self._loaded.ports, str(log), self._secured()))

    def _secured(self) -> SecuredListeners | None:
        credentials = self.credentials
        if credentials is None:
            return None
        return SecuredListeners(
            credentials.ca, credentials.broker, BROKER, credentials.password(BROKER), [ADMIN]
        )

    async def _format(self) -> None:
        """Format every new log folder.

        A folder gets its final name only when it is complete, so a kill leaves no half-formatted folder. One JVM
        start (1 s) formats all: the folders differ in `meta.properties` only.
        """
        new_brokers = [
            number for number in range(1, self.brokers + 1) if not (self._folder(number) / "log").exists()
        ]
        if not new_brokers:
            return
        temporary_folder = self.data / "formatting"
        shutil.rmtree(temporary_folder, ignore_errors=True)
        temporary_folder.mkdir()
        settings = temporary_folder / "server.properties"
        self._write_settings(settings, 1, temporary_folder / "log")
        # The formats of the oldest version, so that a cluster which a newer one began can go back.
        oldest_version = ".".join(next(iter(kafka_versions())).split(".")[:2])
        arguments = [
            "format",
            "-t",
            self.cluster_id,
            "-c",
            str(settings),
            "--release-version",
            oldest_version,
        ]
        for user in (ADMIN, BROKER) if self.credentials else ():
            assert self.credentials is not None
            password = self.credentials.password(user)
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        # In a file: every user of the machine can read the arguments of a process.
        arguments_file = temporary_folder / "arguments"
        arguments_file.touch(mode=0o600)
        arguments_file.write_text("\n".join(arguments))
        tool = Process(
            "Kafka's format tool",
            kafka_command("kafka.tools.StorageTool", f"@{arguments_file}", version=self._version),
            log=temporary_folder / "format.log",
        )
        self.processes[0] = tool  # so that `kill` ends it too
        await tool.start()
        async with asyncio.timeout(FORMAT_S):
            code = await tool.wait()
        if code != 0:
            raise BrokerFailed(_with_log(f"{tool.name} ended with code {code}", tool))
        del self.processes[0]
        for number in new_brokers:
            copy = temporary_folder / f"log-{number}"
            shutil.copytree(temporary_folder / "log", copy)
            (copy / "meta.properties").write_text(meta_properties(number, self.cluster_id))
            copy.rename(self._folder(number) / "log")
        shutil.rmtree(temporary_folder)

    async def _ready(self, broker: int, least_brokers: int, timeout_s: float) -> None:
        """Wait until the broker's metadata lists itself and at least `least_brokers`."""
        process = self.processes[broker]
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            if not process.running:
                code = process.returncode
                raise BrokerFailed(
                    _with_log(f"{process.name} ended with code {code} while it started", process)
                )
            numbers = await brokers_seen_by(self.address(broker))
            if broker in numbers and len(numbers) >= least_brokers:
                return
            await asyncio.sleep(POLL_S)
        raise BrokerFailed(_with_log(f"{process.name} was not ready within {timeout_s:.0f} s", process))


def _with_log(problem: str, process: Process) -> str:
    lines = process.tail() or "(nothing)"
    return f"{problem}. Its log {process.log} ends with:\n{lines}"


async def brokers_seen_by(address: str) -> set[int]:
    """Ids of the brokers that the one at this address lists as alive; empty without an answer."""
    host, _, port = address.partition(":")
    # The admin client logs an error for each refused connection, so it is used only once the port is open.
    with suppress(OSError):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        try:
            async with started_admin(address, "hifi-cluster", request_timeout_ms=5000) as admin:
                answer = await admin.describe_cluster()
            return {int(broker["node_id"]) for broker in answer["brokers"]}
        except (KafkaError, OSError, TimeoutError) as error:
            logging.getLogger(__name__).debug("not ready", exc_info=error)
    return set()
