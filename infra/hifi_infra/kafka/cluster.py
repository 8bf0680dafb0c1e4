"""A real Apache Kafka on this machine: one JVM a broker, in KRaft mode, no ZooKeeper, no container."""

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

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from hifi.errors import HifiError, Misconfigured
from hifi_infra.java.jars import kafka_jars
from hifi_infra.java.kafka_command import kafka_command
from hifi_infra.kafka.cluster_state import State, load
from hifi_infra.kafka.kraft import meta_properties, server_properties
from hifi_infra.ports import LOOPBACK
from hifi_infra.process.process import Process

FORMAT_S: Final = 60
POLL_S: Final = 0.05
LEAST_FREE_BYTES: Final = 256 * 1024 * 1024
"""An empty broker takes little, but one that fills the disk later stops with its log folder offline."""


class BrokerFailed(HifiError):
    """A broker did not come up. The message quotes the end of its log and says where it is."""


class KafkaCluster:
    """One to many brokers, numbered from 1, each also a controller, that keep everything in one folder.

    Started again on the same folder it is the same cluster with the same records. One broker keeps one copy
    of each record: it survives the death of processes, not of the disk. Three keep three copies and
    acknowledge once two have a record; nothing is flushed by force, so this too is about processes.

    Args:
        data: the folder, made where missing. One cluster at a time uses it.
        brokers: how many; fixed by the folder's first start.
        ports: where clients find the brokers, one each; where empty, free ones, the same at each start if
            they are still free.
        heap_mb: the heap of each JVM; what else a broker needs comes on top (about 150 MB).
        jvm_flags: more flags for each JVM.
    """

    def __init__(
        self,
        data: Path,
        *,
        brokers: int = 1,
        ports: Sequence[int] = (),
        heap_mb: int = 512,
        jvm_flags: Sequence[str] = (),
    ) -> None:
        if brokers < 1:
            raise Misconfigured("a Kafka cluster needs at least one broker")
        if ports and len(ports) != brokers:
            raise Misconfigured(f"{brokers} brokers need {brokers} ports, not {len(ports)}")
        self.data = data.absolute()
        self.brokers = brokers
        self._wanted = tuple(ports)
        self._heap_mb = heap_mb
        self._jvm_flags = tuple(jvm_flags)
        self._state: State | None = None
        self._lock: IO[str] | None = None
        self.processes: dict[int, Process] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers. Raises RuntimeError before the first start."""
        return ",".join(self.address(number) for number in range(1, self.brokers + 1))

    @property
    def cluster_id(self) -> str:
        """Kafka's own id of the cluster. Raises RuntimeError before the first start."""
        return self._known.cluster_id

    def address(self, broker: int) -> str:
        """`host:port` of one broker. Raises RuntimeError before the first start."""
        return f"{LOOPBACK}:{self._known.ports[broker - 1].broker}"

    async def start(self, timeout_s: float = 60.0) -> None:
        """Starts all brokers; returns once each of them answers that it sees all of them.

        Raises:
            Misconfigured: Java, the jars, the ports or the folder do not allow it; says what to do.
            BrokerFailed: a broker died or was not ready in time.
        """
        try:
            await self._start(timeout_s)
        except BaseException as error:  # also a Ctrl-C: nothing half started is left
            await self.kill()
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise Misconfigured(f"no space is left on the disk of {self.data}") from error
            raise

    async def _start(self, timeout_s: float) -> None:
        self._lock_folder()
        free = shutil.disk_usage(self.data).free
        if free < LEAST_FREE_BYTES:
            raise Misconfigured(
                f"the disk of {self.data} has {free >> 20} MiB left, Kafka needs at least "
                f"{LEAST_FREE_BYTES >> 20}: make room, or choose another data folder"
            )
        await asyncio.to_thread(kafka_jars)  # may download
        self._state = load(self.data, self.brokers, self._wanted)
        everyone = range(1, self.brokers + 1)
        for number in everyone:
            self._configure(number)
        await self._format()
        await asyncio.gather(*(self.processes[number].start() for number in everyone))
        await asyncio.gather(*(self._ready(number, self.brokers, timeout_s) for number in everyone))

    async def stop(self, grace_s: float = 20.0) -> None:
        """Ends all brokers in order, by force those that do not within `grace_s`. May be repeated."""
        await asyncio.gather(
            *(process.stop(grace_s) for process in self.processes.values() if process.running)
        )
        self._unlock_folder()

    async def kill(self) -> None:
        """Ends all brokers at once, as a power cut of the processes would."""
        await asyncio.gather(*(process.kill() for process in self.processes.values() if process.running))
        self._unlock_folder()

    async def start_broker(self, broker: int, timeout_s: float = 60.0) -> None:
        """Starts one broker again after `stop_broker` or `kill_broker`; returns once it answers.

        Raises:
            BrokerFailed: it died or was not ready in time.
        """
        await self.processes[broker].start()
        await self._ready(broker, 1, timeout_s)

    async def stop_broker(self, broker: int, grace_s: float = 20.0) -> None:
        """Ends one broker in order: its partitions move to others first."""
        await self.processes[broker].stop(grace_s)

    async def kill_broker(self, broker: int) -> None:
        """Ends one broker at once (SIGKILL)."""
        await self.processes[broker].kill()

    def pause_broker(self, broker: int) -> None:
        """Freezes one broker (SIGSTOP), as a long garbage collection or a hung disk would."""
        self.processes[broker].pause()

    def resume_broker(self, broker: int) -> None:
        """Lets a frozen broker go on."""
        self.processes[broker].resume()

    async def __aenter__(self) -> Self:
        """Starts it."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        await self.stop()

    @property
    def _known(self) -> State:
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
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with this process, however it ends
        except OSError as error:
            lock.close()
            raise Misconfigured(
                f"the data folder {self.data} is in use by another running cluster: "
                "end that, or choose another folder"
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
        settings.write_text(server_properties(broker, self._known.ports, str(folder / "log")))
        self.processes[broker] = Process(
            f"Kafka broker {broker}",
            kafka_command(f"-Xmx{self._heap_mb}m", *self._jvm_flags, "kafka.Kafka", str(settings)),
            log=folder / "kafka.log",
            cwd=folder,
        )

    async def _format(self) -> None:
        """Gives every log folder its identity, once in its life.

        A folder gets its name only when it is complete: a kill in the middle leaves nothing half formatted.
        One JVM start (1 s) does for all: the folders differ in `meta.properties` only.
        """
        blank = [n for n in range(1, self.brokers + 1) if not (self._folder(n) / "log").exists()]
        if not blank:
            return
        part = self.data / "formatting"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        settings = part / "server.properties"
        settings.write_text(server_properties(1, self._known.ports, str(part / "log")))
        tool = Process(
            "Kafka's format tool",
            kafka_command("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(settings)),
            log=part / "format.log",
        )
        self.processes[0] = tool  # so that a Ctrl-C ends it as well
        await tool.start()
        async with asyncio.timeout(FORMAT_S):
            code = await tool.wait()
        if code != 0:
            raise BrokerFailed(_told(f"{tool.name} ended with code {code}", tool))
        del self.processes[0]
        for number in blank:
            copy = part / f"log-{number}"
            shutil.copytree(part / "log", copy)
            (copy / "meta.properties").write_text(meta_properties(number, self.cluster_id))
            copy.rename(self._folder(number) / "log")
        shutil.rmtree(part)

    async def _ready(self, broker: int, seen: int, timeout_s: float) -> None:
        """Returns once the broker answers with metadata that lists itself and at least `seen` brokers."""
        process = self.processes[broker]
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if not process.running:
                code = process.returncode
                raise BrokerFailed(_told(f"{process.name} ended with code {code} while it started", process))
            numbers = await brokers_seen_by(self.address(broker))
            if broker in numbers and len(numbers) >= seen:
                return
            await asyncio.sleep(POLL_S)
        raise BrokerFailed(_told(f"{process.name} was not ready within {timeout_s:.0f} s", process))


def _told(what: str, process: Process) -> str:
    lines = process.tail() or "(nothing)"
    return f"{what}. Its log {process.log} ends with:\n{lines}"


async def brokers_seen_by(address: str) -> set[int]:
    """The brokers that the one at this address lists as alive; none where it does not answer."""
    host, _, port = address.partition(":")
    # The admin client logs an error for each refused connection: it is asked once somebody listens.
    with suppress(OSError):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=5000)
        try:
            await admin.start()
            answer = await admin.describe_cluster()
            return {int(each["node_id"]) for each in answer["brokers"]}
        except (KafkaError, OSError, TimeoutError) as error:
            logging.getLogger(__name__).debug("not ready", exc_info=error)
        finally:
            await admin.close()
    return set()
