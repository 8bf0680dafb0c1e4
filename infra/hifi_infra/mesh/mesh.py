"""The whole mesh on one machine: Kafka where wanted, topics, pipes, and every service as a child process.

Nothing outlives the process that holds a Mesh: its children die with it, even when it is killed. Started
again on the same folder it is the same mesh: what was accepted before is delivered after.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Final, Self

from hifi.errors import Misconfigured, Retryable
from hifi.pipe.model import Pipe
from hifi_infra.java.jars import kafka_jars, spark_jars
from hifi_infra.java.jdk import find_java
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh import running
from hifi_infra.mesh.broker_supervisor import BrokerKeeper
from hifi_infra.mesh.fleet import Fleet
from hifi_infra.mesh.instance import Instance
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import FLOW, Plan
from hifi_infra.mesh.running import Running
from hifi_infra.ports import is_free
from hifi_infra.process.process import Process

LOOK_S: Final = 0.25
LOOK_SELDOM_S: Final = 2.0
KAFKA_GRACE_S: Final = 20.0


class Mesh:
    """A mesh as planned: `start`, then `wait_ready`, in the end `stop` or `kill`; `async with` too."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.journal = Journal()
        self.topics = plan.topics
        self.fleet = Fleet(plan, self.journal)
        self.cluster: KafkaCluster | None = None
        self.brokers: BrokerKeeper | None = None
        self.partitions: int | None = None
        self.phase = "not started"
        """One phrase for a person."""
        self._lock: IO[str] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._written: Running | None = None

    def prepare(self) -> None:
        """See that Java and the jars are there; downloads what is missing, with progress. Takes no lock.

        Raises:
            Misconfigured: something is missing and cannot be had; says what to do.
        """
        spark = self.plan.instances("enrich") > 0
        if self.plan.kafka is None or spark:
            self.fleet.java_home = find_java().home
        if self.plan.kafka is None:
            kafka_jars()
        if spark:
            spark_jars()

    async def start(self, pipes: Sequence[Pipe] = ()) -> None:
        """Start everything and put the pipes in force; does not wait until all are ready.

        Raises:
            Misconfigured: the folder, the port, Java, Kafka or the stream does not allow it; nothing is left.
        """
        self._lock = running.lock(self.plan.data)
        try:
            await self._start(pipes)
        except BaseException:  # also a Ctrl-C
            await self.kill()
            raise

    async def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until every instance is ready.

        Raises:
            Misconfigured: a service will not run as it is set up; its own words.
            Retryable: after `timeout_s` seconds some were not ready; says which, and what they wait for.
        """
        self.phase = "waiting until every service is ready"
        try:
            async with asyncio.timeout(timeout_s):
                while not self.ready:
                    for instance in self.all():
                        instance.check()
                    await asyncio.sleep(LOOK_S / 2)
        except TimeoutError:
            raise Retryable(f"not ready within {timeout_s:.0f} s:\n" + "\n".join(self.reasons())) from None
        self.phase = "running"

    @property
    def bootstrap(self) -> str:
        """Kafka's bootstrap servers, empty as long as they are not known."""
        return self.fleet.bootstrap

    @property
    def instances(self) -> dict[str, list[Instance]]:
        """Service to its instances."""
        return self.fleet.instances

    @property
    def ready(self) -> bool:
        """Every instance runs and is ready."""
        return self.fleet.ready

    def all(self) -> Iterator[Instance]:
        """Every instance, in the order of the flow."""
        return self.fleet.all()

    def reasons(self) -> list[str]:
        """What each instance that is not ready waits for, a line each."""
        return self.fleet.reasons()

    async def scale(self, service: str, count: int) -> None:
        """Have so many instances of a service: start what is missing, drain and end the last ones.

        Raises:
            Misconfigured: no such service, or too many.
        """
        await self.fleet.scale(service, count)
        self._say()

    async def stop(self) -> None:
        """End everything in the order of the flow, so that what was taken in is passed on; Kafka last."""
        await self._unwatch()
        await self.fleet.stop(self._stopping)
        if self.cluster is not None and self.brokers is not None:
            self._stopping("Kafka")
            await self.brokers.end()
            await self.cluster.stop(KAFKA_GRACE_S)
        self._let_go()

    async def kill(self) -> None:
        """End everything at once, as a power cut of the processes would."""
        await self._unwatch()
        if self.brokers is not None:
            await self.brokers.end()
        await self.fleet.kill()
        if self.cluster is not None:
            await self.cluster.kill()
        self._let_go()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def cpu_seconds(self) -> dict[str, float]:
        """Used so far by each service, all its instances together, and by Kafka."""
        return self.fleet.cpu_seconds() | ({"kafka": self.brokers.cpu_seconds()} if self.brokers else {})

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory now of each service, all its instances together, and of Kafka."""
        return self.fleet.rss_bytes() | ({"kafka": self.brokers.rss_bytes()} if self.brokers else {})

    def describe(self) -> Running:
        """What runs now, as `mesh.json` says it."""
        me = os.getpid()
        return Running(
            pid=me,
            created=running.created(me),
            stream=self.plan.stream,
            kafka=self.bootstrap,
            brokers=self.cluster.brokers if self.cluster else None,
            url=self.plan.url,
            console=self.plan.console,
            trigger=self.plan.trigger,
            python_path=list(self.plan.python_path),
            instances=self.fleet.describe(),
        )

    async def _start(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "looking at what an earlier mesh left"
        if left := await running.wait_gone(self.plan.data):
            text = f"{left} process(es) of an earlier mesh were still there and have gone"
            self.journal.note("left-over", text, bad=True)
        for service, port, option in (
            ("ingest", self.plan.port, "--port"),
            ("observe", self.plan.console_port, "--console-port"),
        ):
            if self.plan.instances(service) and not is_free(port):
                raise Misconfigured(
                    f"port {port} of 127.0.0.1 is in use: "
                    f"end what listens there, or give {service} another with {option}"
                )
        kafka = asyncio.create_task(self._start_kafka(), name="start Kafka")
        try:
            await self._until_address(kafka)
            if kafka.done():
                await kafka
            await self.fleet.start("enrich")  # takes longest, and waits for Kafka by itself
            self._watch = asyncio.create_task(self._look_often(), name="watch the instances")
            await kafka
        finally:
            kafka.cancel()
            await asyncio.gather(kafka, return_exceptions=True)
        await self._start_stream(pipes)

    async def _start_kafka(self) -> None:
        if self.plan.kafka is not None:
            return
        self.phase = "starting Kafka"
        before = running.last(self.plan.data)
        brokers = self.plan.brokers or (before.brokers if before else None) or 1
        self.cluster = KafkaCluster(self.plan.data / "kafka", brokers=brokers)
        self.brokers = BrokerKeeper(self.cluster, self.journal)
        await self.cluster.start()
        self.brokers.begin()

    async def _until_address(self, kafka: "asyncio.Task[None]") -> None:
        """Until Kafka's ports are chosen: long before it answers there."""
        while not self.bootstrap and not kafka.done():
            await asyncio.sleep(0.01)
            if self.cluster is not None:
                with contextlib.suppress(RuntimeError):
                    self.fleet.bootstrap = self.cluster.bootstrap

    async def _start_stream(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "creating the stream's topics"
        preparing = asyncio.create_task(prepare(self.bootstrap, self.topics, self.plan.partitions))
        try:
            await self.fleet.start(*FLOW)
            self._say()
            self.partitions = await preparing
        finally:
            preparing.cancel()
        if pipes:
            self.phase = "publishing the pipes"
            for name, change in (await put_in_force(self.bootstrap, self.topics, pipes)).items():
                self.journal.note("pipe", f"pipe {name}: {change}", pipe=name, change=change)

    async def _look_often(self) -> None:
        """Ask every instance how it is, for `ready` and for `mesh.json`."""
        while True:
            await self.fleet.look()
            self._say()
            await asyncio.sleep(LOOK_SELDOM_S if self.ready else LOOK_S)

    async def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None

    def _say(self) -> None:
        now = self.describe()
        if now != self._written:
            with contextlib.suppress(OSError):  # a full disk; the next look tries again
                running.write(self.plan.data, now)
                self._written = now

    def _stopping(self, what: str) -> None:
        self.phase = f"stopping {what}"

    def _let_go(self) -> None:
        self.phase = "stopped"
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def processes(mesh: Mesh) -> Mapping[str, Process]:
    """Every process of the mesh by its name, brokers included: for those who break it on purpose."""
    named = {instance.name: instance.process for instance in mesh.all()}
    if mesh.cluster is not None:
        named |= {f"broker-{number}": process for number, process in mesh.cluster.processes.items()}
    return named
