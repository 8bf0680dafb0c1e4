"""The whole mesh on one machine: Kafka where wanted, topics, pipes, and every service as a child process.

Nothing outlives the process that holds a Mesh: its children die with it, even when it is killed. Started
again on the same folder it is the same mesh: what was accepted before is delivered after.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final, Self

from hifi.errors import Misconfigured, Retryable
from hifi.pipe.model import Pipe
from hifi_infra import running
from hifi_infra.broker import KafkaCluster
from hifi_infra.instance import Instance
from hifi_infra.jars import kafka_jars, spark_jars
from hifi_infra.java import find_java
from hifi_infra.journal import Journal
from hifi_infra.keeper import BrokerKeeper
from hifi_infra.plan import FLOW, MOST_INSTANCES, START_ORDER, Place, Plan, command, environment
from hifi_infra.ports import free_port, is_free
from hifi_infra.process import Process
from hifi_infra.running import Running, RunningInstance
from hifi_infra.stream import prepare, put_in_force

if TYPE_CHECKING:
    from pathlib import Path

LOOK_S: Final = 0.25
LOOK_SELDOM_S: Final = 2.0
STOP_GRACE_S: Final = 55.0
"""Above the 45 s in which egest drains; a service that takes longer is killed."""
KAFKA_GRACE_S: Final = 20.0


class Mesh:
    """A mesh as planned: `start`, then `wait_ready`, in the end `stop` or `kill`; `async with` too."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.journal = Journal()
        self.topics = plan.topics
        self.instances: dict[str, list[Instance]] = {service: [] for service in FLOW}
        self.cluster: KafkaCluster | None = None
        self.brokers: BrokerKeeper | None = None
        self.bootstrap = plan.kafka or ""
        self.partitions: int | None = None
        self.phase = "not started"
        """One phrase for a person."""
        self._java_home: Path | None = None
        self._lock: IO[str] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._written: Running | None = None

    def prepare(self) -> None:
        """See that Java and the jars are there; downloads what is missing, with progress. Takes no lock.

        Raises:
            Misconfigured: something is missing and cannot be had; says what to do.
        """
        needs_java = self.plan.kafka is None or self.plan.instances("enrich") > 0
        if needs_java:
            self._java_home = find_java().home
        if self.plan.kafka is None:
            kafka_jars()
        if self.plan.instances("enrich"):
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
    def ready(self) -> bool:
        """Every instance runs and is ready."""
        return all(instance.ready for instance in self.all())

    def all(self) -> Iterator[Instance]:
        """Every instance, in the order of the flow."""
        for service in FLOW:
            yield from self.instances[service]

    def reasons(self) -> list[str]:
        """What each instance that is not ready waits for, a line each."""
        lines = []
        for instance in self.all():
            if not instance.ready:
                why = "; ".join(instance.readiness.waiting.values()) or instance.readiness.state
                lines.append(f"  {instance.name}: {instance.refused or why} (log: {instance.log})")
        return lines

    async def scale(self, service: str, count: int) -> None:
        """Have so many instances of a service: start what is missing, drain and end the last ones.

        Raises:
            Misconfigured: no such service, or too many.
        """
        if service not in FLOW or not 0 <= count <= MOST_INSTANCES:
            raise Misconfigured(
                f"{service}={count}: name one of {', '.join(FLOW)} and 0 to {MOST_INSTANCES} instances"
            )
        instances = self.instances[service]
        while len(instances) > count:
            await instances.pop().stop(STOP_GRACE_S)
        while len(instances) < count:
            await self._add(service)
        self.journal.note("scaled", f"{service} has {count} instance(s) now", service=service, count=count)
        self._say()

    async def stop(self) -> None:
        """End everything in the order of the flow, so that what was taken in is passed on; Kafka last."""
        await self._unwatch()
        for service in FLOW:
            self.phase = f"stopping {service}"
            await asyncio.gather(*(instance.stop(STOP_GRACE_S) for instance in self.instances[service]))
        if self.cluster is not None and self.brokers is not None:
            self.phase = "stopping Kafka"
            await self.brokers.end()
            await self.cluster.stop(KAFKA_GRACE_S)
        self._let_go()

    async def kill(self) -> None:
        """End everything at once, as a power cut of the processes would."""
        await self._unwatch()
        if self.brokers is not None:
            await self.brokers.end()
        await asyncio.gather(*(instance.kill() for instance in self.all()))
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
        used = {name: sum(one.cpu_seconds() for one in ones) for name, ones in self.instances.items() if ones}
        return used | ({"kafka": self.brokers.cpu_seconds()} if self.brokers else {})

    def rss_bytes(self) -> dict[str, int]:
        """Resident memory now of each service, all its instances together, and of Kafka."""
        held = {name: sum(one.rss_bytes() for one in ones) for name, ones in self.instances.items() if ones}
        return held | ({"kafka": self.brokers.rss_bytes()} if self.brokers else {})

    async def _start(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "looking at what an earlier mesh left"
        if left := await running.wait_gone(self.plan.data):
            text = f"{left} process(es) of an earlier mesh were still there and have gone"
            self.journal.note("left-over", text, bad=True)
        if self.plan.instances("ingest") and not is_free(self.plan.port):
            raise Misconfigured(
                f"port {self.plan.port} of 127.0.0.1 is in use: "
                "end what listens there, or give ingest another with --port"
            )
        kafka = self._start_kafka()
        try:
            if kafka is not None:
                assert self.cluster is not None
                self.bootstrap = await _address(self.cluster, kafka)
            for _ in range(self.plan.instances("enrich")):
                await self._add("enrich")
            self._watch = asyncio.create_task(self._look_often(), name="watch the instances")
            if kafka is not None:
                await kafka
        finally:
            if kafka is not None and not kafka.done():
                kafka.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await kafka
        if self.brokers is not None:
            self.brokers.begin()
        await self._start_services(pipes)

    async def _start_services(self, pipes: Sequence[Pipe]) -> None:
        self.phase = "creating the stream's topics"
        starting = [asyncio.create_task(prepare(self.bootstrap, self.topics, self.plan.partitions))]
        for service in START_ORDER:
            for _ in range(self.plan.instances(service) - len(self.instances[service])):
                await self._add(service)
        self._say()
        self.partitions = await starting[0]
        if pipes:
            self.phase = "publishing the pipes"
            for name, change in (await put_in_force(self.bootstrap, self.topics, pipes)).items():
                self.journal.note("pipe", f"pipe {name}: {change}", pipe=name, change=change)

    def _start_kafka(self) -> asyncio.Task[None] | None:
        if self.plan.kafka is not None:
            return None
        self.phase = "starting Kafka"
        before = running.last(self.plan.data)
        brokers = self.plan.brokers or (before.brokers if before else None) or 1
        self.cluster = KafkaCluster(self.plan.data / "kafka", brokers=brokers)
        self.brokers = BrokerKeeper(self.cluster, self.journal)
        return asyncio.create_task(self.cluster.start(), name="start Kafka")

    async def _add(self, service: str) -> None:
        instances = self.instances[service]
        taken = {self.plan.port, *(one.place.port for one in self.all())}
        place = Place(service, len(instances) + 1, free_port(but=taken))
        instance = Instance(place, self._process, self.journal)
        instances.append(instance)
        await instance.start()

    def _process(self, place: Place) -> Process:
        return Process(
            place.name,
            command(place.service),
            log=self.plan.data / "logs" / f"{place.name}.log",
            env=environment(self.plan, place, self.bootstrap, self._java_home),
        )

    async def _look_often(self) -> None:
        """Ask every instance how it is, for `ready` and for `mesh.json`."""
        while True:
            await asyncio.gather(*(instance.look() for instance in self.all()))
            self._say()
            await asyncio.sleep(LOOK_SELDOM_S if self.ready else LOOK_S)

    async def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None

    def _say(self) -> None:
        now = self.describe()
        if now != self._written:
            running.write(self.plan.data, now)
            self._written = now

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
            trigger=self.plan.trigger,
            instances=[_described(instance) for instance in self.all() if instance.process.running],
        )

    def _let_go(self) -> None:
        self.phase = "stopped"
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _described(instance: Instance) -> RunningInstance:
    pid = instance.process.pid
    place = instance.place
    return RunningInstance(
        service=place.service,
        number=place.number,
        pid=pid,
        created=running.created(pid),
        port=place.port,
        log=instance.log,
    )


async def _address(cluster: KafkaCluster, starting: "asyncio.Task[None]") -> str:
    """Where the cluster will be, as soon as its ports are chosen: long before it answers there."""
    while not starting.done():
        with contextlib.suppress(RuntimeError):
            return cluster.bootstrap
        await asyncio.sleep(0.01)
    await starting
    return cluster.bootstrap


def processes(mesh: Mesh) -> Mapping[str, Process]:
    """Every process of the mesh by its name, brokers included: for those who break it on purpose."""
    named = {instance.name: instance.process for instance in mesh.all()}
    if mesh.cluster is not None:
        named |= {f"broker-{number}": process for number, process in mesh.cluster.processes.items()}
    return named
