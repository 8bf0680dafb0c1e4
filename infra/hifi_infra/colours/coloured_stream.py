"""Two colours of one stream on this machine: the control plane's Kafka, a mesh for each colour, and the fronts."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from aiokafka.errors import KafkaError

from hifi.control.principals.principal import Role
from hifi.delivery.colours import (
    NAMES,
    Colour,
    Colours,
    ColourState,
    FrontAddress,
)
from hifi.kafka.admin import create_topics
from hifi.kafka.certificate_reports import report_to
from hifi.kafka.settings import StreamSettings
from hifi.kafka.topics import ControlTopics, DeclaredTopics, Topics
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.settings import ProcessSettings, load
from hifi_infra.colours.burst import BurstPolicy
from hifi_infra.colours.burst_splitter import BurstSplitter, accepted_events, ingests_of
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import LOOP_S, ColourLoop
from hifi_infra.colours.colour_mesh import (
    ColourAddress,
    ColourMesh,
    MeshCommand,
    colour_topics,
    control_planes,
)
from hifi_infra.colours.colours_at_start import colours_at_start
from hifi_infra.colours.front import Front
from hifi_infra.colours.front_settings import FrontSettings
from hifi_infra.colours.haproxy import HAProxy
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.colours.runtime import ColourFolders, wait_until_ready
from hifi_infra.colours.source_topics import SourceTopics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.first_principal import OBSERVE, create_first_principal
from hifi_infra.mesh import running
from hifi_infra.mesh.plan import Trigger
from hifi_infra.mesh.running import RunningMesh
from hifi_infra.ports import free_port, is_free

CLIENT: Final = "hifi-colours"
CONTROL_HEAP_MB: Final = 256
SPLIT_BY: Final = "hifi up --split-above"
_BY: Final = "hifi up"
"""Authors of its records."""


@dataclass(frozen=True, slots=True)
class ColouredPlan:
    """Two colours of a stream on one machine.

    Attributes:
        data: folder for all state; each colour has a folder in it.
        stream: name of the stream, the same in both colours.
        ports: the fronts accept events here, one each.
        mesh_command: of both colours.
        trigger: of enrich.
        split_above: events per second above which both colours share the requests; 0: that is left to people.
        env: more variables for both colours, such as secrets that pipes refer to.
    """

    data: Path
    stream: str
    ports: tuple[int, ...]
    mesh_command: MeshCommand
    trigger: Trigger = "auto"
    split_above: float = 0
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def control(self) -> ControlTopics:
        """Topics of the control plane that both colours share."""
        return ControlTopics(f"{self.stream}-control")

    @property
    def token(self) -> Path:
        """File with the token of the first principal of both colours."""
        return self.data / f"{self.control.control}.token"

    def folder(self, colour: str) -> Path:
        """Data folder of a colour."""
        return self.data / colour


class ColouredStream:
    """Runs a plan: `start`, `wait_ready`, and at the end `stop` or `kill`."""

    def __init__(self, plan: ColouredPlan) -> None:
        self.plan = plan
        self.cluster = KafkaCluster(plan.data / "control", heap_mb=CONTROL_HEAP_MB)
        self.meshes: dict[str, ColourMesh] = {}
        self.fronts: list[Front] = []
        self._log: ColourLog | None = None
        self._lock: IO[str] | None = None
        self._loops: list[asyncio.Task[None]] = []

    @property
    def colours(self) -> Colours:
        """The newest record of the colours that was read, once the stream is started."""
        assert self._log is not None
        assert self._log.newest is not None
        return self._log.newest

    async def start(self) -> None:
        """Start everything; does not wait until the colours are ready.

        Raises:
            HifiError: the folder, the port, HAProxy or Java does not allow it; nothing keeps running.
        """
        self._lock = running.lock(self.plan.data)
        try:
            await self._start()
        except BaseException:  # including KeyboardInterrupt
            await self.kill()
            raise

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until every colour that is not asleep is ready.

        Raises:
            Misconfigured: a colour ended, for example because a pipe is not valid; the message is the end of its log.
            Retryable: a colour is not ready in time.
        """
        awake_names = [
            name for name, colour in self.colours.colours.items() if colour.state is not ColourState.ASLEEP
        ]
        ready_tasks = [
            asyncio.create_task(wait_until_ready(ColourFolders(self._folders), name, timeout_s))
            for name in awake_names
        ]
        try:
            while not all(task.done() for task in ready_tasks):
                for name in awake_names:
                    process = self.meshes[name].process
                    if process.started and not process.running:
                        raise Misconfigured(
                            f"{name} ended while it started; end of {process.log}:\n{process.tail(8)}"
                        )
                await asyncio.wait(ready_tasks, timeout=LOOP_S)
            await asyncio.gather(*ready_tasks)
        finally:
            for task in ready_tasks:
                task.cancel()
            await asyncio.gather(*ready_tasks, return_exceptions=True)
        await self._note_kafka()

    async def follow(self) -> None:
        """Wait until a task of it ends, which only an error brings about.

        Raises:
            Exception: with which it ended.
        """
        ended_tasks, _ = await asyncio.wait(self._loops, return_when=asyncio.FIRST_COMPLETED)
        for task in ended_tasks:
            task.result()

    async def stop(self) -> None:
        """Stop accepting requests, drain both colours, and end."""
        await self._end_loops()
        await asyncio.gather(*(front.stop() for front in self.fronts))
        await asyncio.gather(*(mesh.stop() for mesh in self.meshes.values()))
        await self._end_log()
        await self.cluster.stop()
        self._unlock()

    async def kill(self) -> None:
        """Kill everything at once."""
        await self._end_loops()
        await asyncio.gather(*(front.kill() for front in self.fronts))
        await asyncio.gather(*(mesh.kill() for mesh in self.meshes.values()))
        await self._end_log()
        await self.cluster.kill()
        self._unlock()

    async def _start(self) -> None:
        plan = self.plan
        for option, port in zip(("--port", "--second-port"), plan.ports, strict=False):
            if not is_free(port):
                raise Misconfigured(
                    f"port {port} of 127.0.0.1 is in use: end the program that listens there, or give the front "
                    f"another port with {option}"
                )
        addresses = _addresses(plan)
        ingest = {name: [f"127.0.0.1:{address.port}"] for name, address in addresses.items()}
        health = Health("front", socket.gethostname())
        certificate = load(FrontSettings).certificate(health)
        self.fronts = [
            HAProxy(plan.data / f"front-{number}", port, ingest, certificate)
            for number, port in enumerate(plan.ports, 1)
        ]
        await self.cluster.start()
        bootstrap = self.cluster.bootstrap
        declared: tuple[DeclaredTopics, ...] = (
            *control_planes(plan.stream),
            SourceTopics(Topics(plan.stream)),
        )
        for topics in declared:
            await create_topics(bootstrap, topics, partitions=1, replication=1, create=True)
        observe_token = plan.data / f"{plan.control.control}.observe.token"
        await create_first_principal(bootstrap, plan.control, plan.token)
        await create_first_principal(bootstrap, plan.control, observe_token, OBSERVE, Role.VIEWER)
        self._log = ColourLog(bootstrap, plan.control, CLIENT)
        await self._log.start()
        for name, address in addresses.items():
            self.meshes[name] = ColourMesh(
                address,
                plan.mesh_command,
                colour_topics(plan.stream, name),
                bootstrap,
                {
                    **plan.env,
                    "HIFI_COLOURS": plan.control.control,
                    "HIFI_COLOUR": name,
                    "HIFI_OBSERVE_TOKEN_FILE": str(observe_token),
                },
                plan.data / "logs" / f"{name}.log",
            )

        async def at_start(before: Colours | None) -> Colours:
            """The record of this start."""
            return self._colours_at_start(before, addresses)

        await self._log.write(at_start)
        self._write_state()
        loop = ColourLoop(self._log, self.meshes, self.fronts, self._operations, _BY)
        await loop.bring_about()
        days = load(ProcessSettings).certificate_days
        report_loop = report_to(plan.control.certificates, bootstrap, health.instance, days, health)
        self._loops = [
            asyncio.create_task(loop.follow(), name="follow the colours"),
            asyncio.create_task(report_loop, name="report the front's certificate"),
        ]
        if plan.split_above:
            splitter = BurstSplitter(
                BurstPolicy(plan.split_above),
                SPLIT_BY,
                self._operations,
                lambda: accepted_events(ingests_of(self._folders)),
            )
            split_loop = splitter.follow(lambda: self.colours)
            self._loops.append(asyncio.create_task(split_loop, name="split bursts"))

    def _colours_at_start(self, before: Colours | None, addresses: Mapping[str, ColourAddress]) -> Colours:
        """The record of this start, after the one before."""
        colours = {
            name: Colour(
                0,
                ColourState.IDLE,
                (f"http://127.0.0.1:{address.port}",),
                f"http://127.0.0.1:{address.console_port}",
            )
            for name, address in addresses.items()
        }
        fronts = tuple(FrontAddress(front.url, front.stats) for front in self.fronts)
        return colours_at_start(before, colours, fronts, time.time_ns() // 1_000_000, _BY)

    def _operations(self, actor: str) -> ColourOperations:
        topics = Topics(self.plan.stream, load(StreamSettings).tiers)
        return ColourOperations(self.cluster.bootstrap, topics, ColourFolders(self._folders), actor)

    @property
    def _folders(self) -> dict[str, Path]:
        return {name: self.plan.folder(name) for name in NAMES}

    async def _note_kafka(self) -> None:
        """Write the addresses of the colours' Kafka into the record where they have changed."""
        assert self._log is not None
        await self._log.catch_up()

        async def with_kafka(before: Colours | None) -> Colours:
            """A record with the addresses as they are now."""
            assert before is not None
            colours = {
                name: replace(colour, kafka=self.meshes[name].kafka or colour.kafka)
                for name, colour in before.colours.items()
            }
            return replace(before, colours=colours)

        if await with_kafka(self.colours) != self.colours:
            await self._log.write(with_kafka)

    def _write_state(self) -> None:
        pid = os.getpid()
        state = RunningMesh(
            pid=pid,
            created=running.created(pid),
            stream=self.plan.stream,
            kafka="",
            brokers=1,
            url=self.fronts[0].url,
            trigger=self.plan.trigger,
            colours=self._folders,
            control_kafka=self.cluster.bootstrap,
        )
        running.write(self.plan.data, state)

    async def _end_loops(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops.clear()

    async def _end_log(self) -> None:
        if self._log is not None:
            with contextlib.suppress(KafkaError, OSError):
                await self._log.stop()
            self._log = None

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _addresses(plan: ColouredPlan) -> dict[str, ColourAddress]:
    used_ports = set(plan.ports)
    addresses = {}
    for name in NAMES:
        ports = []
        for _ in range(3):
            ports.append(free_port(but=used_ports))
            used_ports.add(ports[-1])
        addresses[name] = ColourAddress(name, plan.folder(name), *ports)
    return addresses
