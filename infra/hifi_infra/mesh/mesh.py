"""The whole mesh on one machine: Kafka unless another is given, topics, pipes, and every service as a child process.

All child processes end with the process that holds a Mesh, even when it is killed. A mesh that is started again on the
same folder continues where it stopped: what it accepted before is delivered after.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final, Self

from hifi.kafka.settings import StreamSettings
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.runtime.egress import VARIABLE as EGRESS
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.server import listen, serve
from hifi.runtime.http.tls import refuse_tls_settings
from hifi.runtime.settings import load
from hifi_infra.java.jars import kafka_jars, spark_jars
from hifi_infra.java.jdk import find_java
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.first_principal import ADMIN, create_first_principal
from hifi_infra.kafka.secured_stream import secure_stream, stream_users
from hifi_infra.kafka.stream_setup import prepare, put_in_force, read_declared_names, split_decided
from hifi_infra.mesh import running
from hifi_infra.mesh.broker_supervisor import BrokerSupervisor
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor import Executor
from hifi_infra.mesh.fleet import Fleet
from hifi_infra.mesh.instance import Instance
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import CONTROL, FLOW, Plan
from hifi_infra.mesh.running import RunningMesh
from hifi_infra.ports import is_free
from hifi_infra.process.process import Process

PROBE_S: Final = 0.25
READY_PROBE_S: Final = 2.0
KAFKA_GRACE_S: Final = 20.0


class Mesh:
    """Runs a plan: `start`, `wait_ready`, and at the end `stop` or `kill`. `async with` starts and stops it."""

    def __init__(self, plan: Plan) -> None:
        # Its destinations are on this machine, too, unless the operator says otherwise.
        os.environ.setdefault(EGRESS, "loopback")
        self.plan = plan
        self.journal = Journal()
        self.topics = plan.topics
        self.fleet = Fleet(plan, self.journal)
        self.cluster: KafkaCluster | None = None
        self.brokers: BrokerSupervisor | None = None
        self.partitions: int | None = None
        self.phase = "not started"
        """Its present activity, as a phrase."""
        self._serving = contextlib.AsyncExitStack()
        self._lock: IO[str] | None = None
        self._prober: asyncio.Task[None] | None = None
        self._written_state: RunningMesh | None = None
        self._kafka_version = plan.kafka_version

    def prepare(self) -> None:
        """Find Java and the jars; downloads missing jars and shows progress. Takes no lock.

        Raises:
            Misconfigured: something is missing and cannot be installed; the message says what to do.
        """
        spark = self.plan.instances("enrich") > 0
        if self.plan.needs_java:
            self.fleet.java_home = find_java().home
        if self.plan.kafka is None:
            kafka_jars(self.plan.kafka_version)
        if spark:
            spark_jars()

    async def start(self, pipes: Sequence[Pipe] = ()) -> None:
        """Start everything and publish the pipes; does not wait until all are ready.

        Raises:
            Misconfigured: the folder, a port, Java, Kafka, the stream or a setting does not allow it; nothing keeps
                running.
        """
        refuse_tls_settings(dict(os.environ) | dict(self.plan.env))
        self._lock = running.lock(self.plan.data)
        try:
            await self._start(pipes)
        except BaseException:  # including KeyboardInterrupt
            await self.kill()
            raise

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until every instance is ready.

        Raises:
            Misconfigured: a service exits as misconfigured; the message is its own.
            Retryable: not all were ready after `timeout_s` seconds; the message says which wait for what.
        """
        self.phase = "waiting until every service is ready"
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ready:
                    for instance in self.all():
                        instance.raise_if_misconfigured()
                    await asyncio.sleep(PROBE_S / 2)
        except TimeoutError:
            raise Retryable(f"not ready within {timeout_s:.0f} s:\n" + "\n".join(self.reasons())) from None
        self.phase = "running"

    @property
    def bootstrap(self) -> str:
        """Kafka's bootstrap servers; empty until they are known."""
        return self.fleet.bootstrap

    @property
    def instances(self) -> dict[str, list[Instance]]:
        """Service to its instances."""
        return self.fleet.instances

    @property
    def ready(self) -> bool:
        """Whether every instance runs and is ready."""
        return self.fleet.ready

    def executed(self) -> list[ExecutedInstance]:
        """Every instance as the executor reports it."""
        return self.fleet.executed()

    def all(self) -> Iterator[Instance]:
        """Every instance, in the order of the flow."""
        return self.fleet.all()

    def reasons(self) -> list[str]:
        """One line for each instance that is not ready, with what it waits for."""
        return self.fleet.reasons()

    async def scale(self, service: str, count: int, reason: str = "") -> None:
        """Set the number of instances of a service: start missing ones, drain and end the last ones.

        Args:
            service: one of the data plane.
            count: number of instances.
            reason: for the journal.

        Raises:
            Misconfigured: unknown service, or too many instances.
            Retryable: instances would end while a deployment compares them.
        """
        await self.fleet.scale(service, count, reason)
        self._write_state()

    async def set_release(self, name: str, release: str, reason: str) -> None:
        """Set the release of an instance, as `Fleet.set_release` does."""
        await self.fleet.set_release(name, release, reason)
        self._write_state()

    async def remove(self, name: str, reason: str) -> None:
        """Remove an instance, as `Fleet.remove` does."""
        await self.fleet.remove(name, reason)
        self._write_state()

    async def set_default_release(self, service: str, release: str) -> None:
        """Have instances of a service that start from now on run a release."""
        self.fleet.releases[service] = release

    async def stop(self) -> None:
        """Drain and end the services in the order of the flow, so that accepted events go on; then Kafka."""
        await self._stop_probing()
        await self.fleet.stop(self._set_stopping)
        await self._serving.aclose()
        if self.cluster is not None and self.brokers is not None:
            self._set_stopping("Kafka")
            await self.brokers.stop()
            await self.cluster.stop(KAFKA_GRACE_S)
        self._unlock()

    async def kill(self) -> None:
        """Kill everything at once, brokers too."""
        await self._stop_probing()
        if self.brokers is not None:
            await self.brokers.stop()
        await self.fleet.kill()
        await self._serving.aclose()
        if self.cluster is not None:
            await self.cluster.kill()
        self._unlock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time so far by service, all its instances together, and of Kafka, in seconds."""
        return self.fleet.cpu_seconds() | ({"kafka": self.brokers.cpu_seconds()} if self.brokers else {})

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory now by service, all its instances together, and of Kafka."""
        return self.fleet.rss_bytes() | ({"kafka": self.brokers.rss_bytes()} if self.brokers else {})

    def describe(self) -> RunningMesh:
        """The mesh that runs now: the content of `mesh.json`."""
        pid = os.getpid()
        return RunningMesh(
            pid=pid,
            created=running.created(pid),
            stream=self.plan.stream,
            kafka=self.bootstrap,
            brokers=self.cluster.brokers if self.cluster else None,
            secure=self.cluster is not None and self.cluster.credentials is not None,
            kafka_version=self._kafka_version,
            partitions=self.partitions or 0,
            url=self.plan.url,
            console=self.plan.console,
            manage=self.plan.manage,
            view=self.plan.view_console,
            control=self.plan.control_topics.control if self.plan.control_topics else "",
            trigger=self.plan.trigger,
            python_path=list(self.plan.python_path),
            instances=self.fleet.describe(),
        )

    async def _start(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "waiting for processes of an earlier mesh to end"
        if earlier_count := await running.wait_for_earlier(self.plan.data):
            text = f"{earlier_count} process(es) of an earlier mesh still ran and have ended"
            self.journal.add("earlier-processes-ended", text, bad=True)
        for service, port, option in (
            ("ingest", self.plan.port, "--port"),
            ("observe", self.plan.console_port, "--console-port"),
            ("manage", self.plan.manage_port, "--manage-port"),
            ("view", self.plan.view_port, "--view-port"),
        ):
            if self.plan.instances(service) and port and not is_free(port):
                raise Misconfigured(
                    f"port {port} of 127.0.0.1 is in use: "
                    f"end the program that listens there, or give {service} another port with {option}"
                )
        kafka = asyncio.create_task(self._start_kafka(), name="start Kafka")
        try:
            await self._wait_for_address(kafka)
            if kafka.done():
                await kafka
            await self.fleet.start("enrich")  # starts slowest, and waits for Kafka by itself
            self._prober = asyncio.create_task(self._probe_often(), name="probe the instances")
            await kafka
        finally:
            kafka.cancel()
            await asyncio.gather(kafka, return_exceptions=True)
        await self._start_stream(pipes)

    async def _start_kafka(self) -> None:
        if self.plan.kafka is not None:
            return
        self.phase = "starting Kafka"
        mesh_before = running.read(self.plan.data)
        brokers = self.plan.brokers or (mesh_before.brokers if mesh_before else None) or 1
        secure = mesh_before.secure if mesh_before and self.plan.secure is None else bool(self.plan.secure)
        self._kafka_version = self.plan.kafka_version or (mesh_before.kafka_version if mesh_before else "")
        self.partitions = (mesh_before.partitions if mesh_before else 0) or None
        cluster = KafkaCluster(
            self.plan.data / "kafka", brokers=brokers, secure=secure, version=self._kafka_version
        )
        self.brokers = BrokerSupervisor(cluster, self.journal)
        if cluster.credentials is not None:
            users = stream_users(self.topics, self.plan.control_topics)
            cluster.credentials.prepare(users.values())
        self.fleet.credentials, self.cluster = cluster.credentials, cluster
        await cluster.start()
        if cluster.credentials is not None:
            await secure_stream(cluster.bootstrap, self.topics, cluster.credentials, self.plan.control_topics)
        self.brokers.start()

    async def _wait_for_address(self, kafka: "asyncio.Task[None]") -> None:
        """Wait until Kafka's ports are chosen, which is long before it answers."""
        while not self.bootstrap and not kafka.done():
            await asyncio.sleep(0.01)
            if self.cluster is not None:
                with contextlib.suppress(RuntimeError):
                    self.fleet.bootstrap = self.cluster.bootstrap

    async def _start_stream(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "creating the stream's topics"
        prepare_task = asyncio.create_task(self._prepare_stream())
        try:
            coloured = bool(load(StreamSettings).colour)
            if coloured:  # no service may see pipes that a colour is refused for
                await prepare_task
            await self.fleet.start(*FLOW)
            self._write_state()
            self.partitions = await prepare_task
            if not coloured and (self.plan.console or self.plan.control):
                # Both colours share theirs, which are on the control plane's Kafka.
                name = f"{ADMIN}@{socket.gethostname()}" if self.plan.kafka else ADMIN
                await create_first_principal(
                    self.bootstrap, self.plan.principal_topics, self.plan.token, name
                )
        finally:
            prepare_task.cancel()
        if self.plan.control:
            await self._start_control()
        if pipes:
            await self._publish(pipes)

    async def _publish(self, pipes: Sequence[Pipe]) -> None:
        """Put pipes into force; beside a control plane only those that it has not decided about."""
        self.phase = "publishing the pipes"
        if (control := self.plan.control_topics) is not None:
            declared_names = await read_declared_names(self.bootstrap, control)
            registry = await read_registry(self.bootstrap, self.topics)
            pipes, left_names = split_decided(registry, declared_names, pipes)
            if left_names:
                text = (
                    f"left as the control plane has them: {', '.join(left_names)}; "
                    "`hifi apply DIR` declares them as the folder has them"
                )
                self.journal.add("pipes-left", text, bad=True, pipes=left_names)
        variables = dict(os.environ) | dict(self.plan.env)
        changes = await put_in_force(self.bootstrap, self.topics, pipes, variables=variables)
        for name, change in changes.items():
            self.journal.add("pipe-published", f"pipe {name}: {change}", pipe=name, change=change)

    async def _start_control(self) -> None:
        self.phase = "starting the control plane"
        executor, sock = Executor(self), listen("127.0.0.1", 0)
        self.fleet.executor = {
            "HIFI_CONTROL_EXECUTOR": f"http://127.0.0.1:{sock.getsockname()[1]}",
            "HIFI_CONTROL_EXECUTOR_SECRET": executor.secret,
        }
        await self._serving.enter_async_context(serve(executor.app(), sock, drain_s=1))
        await self.fleet.start(*CONTROL)
        self._write_state()

    async def _prepare_stream(self) -> int:
        settings = load(StreamSettings)
        return await prepare(
            self.bootstrap,
            self.topics,
            self.plan.partitions,
            None if settings.colour else self.plan.principal_topics,
            create=self.cluster is not None or settings.create_topics,
            coloured=bool(settings.colour),
        )

    async def _probe_often(self) -> None:
        """Probe all instances again and again, for `ready` and for `mesh.json`."""
        while True:
            await self.fleet.probe()
            self._write_state()
            await asyncio.sleep(READY_PROBE_S if self.ready else PROBE_S)

    async def _stop_probing(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.gather(self._prober, return_exceptions=True)
            self._prober = None

    def _write_state(self) -> None:
        description = self.describe()
        if description != self._written_state:
            with contextlib.suppress(OSError):  # a full disk; the next probe tries again
                running.write(self.plan.data, description)
                self._written_state = description

    def _set_stopping(self, subject: str) -> None:
        self.phase = f"stopping {subject}"

    def _unlock(self) -> None:
        self.phase = "stopped"
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def processes(mesh: Mesh) -> Mapping[str, Process]:
    """Every process of the mesh by its name, brokers as `broker-1`, for fault injection."""
    processes_by_name = {instance.name: instance.process for instance in mesh.all()}
    if mesh.cluster is not None:
        processes_by_name |= {
            f"broker-{number}": process for number, process in mesh.cluster.processes.items()
        }
    return processes_by_name
