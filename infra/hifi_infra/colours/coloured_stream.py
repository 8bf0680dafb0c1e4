"""Two colours of one stream on this machine: the control plane's Kafka, a mesh for each colour, and the fronts.

The record of the colours says what should be. A loop brings about what it says: the shares at the fronts, and which
colours run. It starts again what has died.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

from aiokafka.errors import KafkaError

from hifi import log
from hifi.control.action import ActionKind
from hifi.control.colours import (
    NAMES,
    WHOLE_SHARE,
    Colour,
    Colours,
    ColourSetup,
    ColourState,
    FrontAddress,
    other,
)
from hifi.errors import HifiError, Misconfigured
from hifi.kafka.admin import create_topics
from hifi.settings import StreamSettings, load
from hifi.topics import ControlTopics, DeclaredTopics, Topics
from hifi_infra.colours.burst import BurstPolicy
from hifi_infra.colours.burst_splitter import BY, MEASURE_S, BurstSplitter, accepted_events
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_mesh import (
    ColourAddress,
    ColourMesh,
    MeshCommand,
    colour_topics,
    wait_until_ready,
)
from hifi_infra.colours.front import Front
from hifi_infra.colours.haproxy import HAProxy
from hifi_infra.colours.source_topics import SourceTopics
from hifi_infra.colours.switch import Switch
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh import running
from hifi_infra.mesh.plan import Trigger
from hifi_infra.mesh.running import RunningMesh
from hifi_infra.ports import free_port, is_free

CLIENT: Final = "hifi-colours"
CONTROL_HEAP_MB: Final = 256
_LOOP_S: Final = 0.5
_RESTART_S: Final = 5.0
"""Least time between two starts of a colour that ends."""

logger = log.get(__name__)


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
        self._divided: dict[str, dict[str, int]] = {}
        self._started_s: dict[str, float] = {}

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
        awake = [name for name, one in self.colours.colours.items() if one.state is not ColourState.ASLEEP]
        ready = [
            asyncio.create_task(wait_until_ready(self.plan.folder(name), name, timeout_s)) for name in awake
        ]
        try:
            while not all(one.done() for one in ready):
                for name in awake:
                    process = self.meshes[name].process
                    if process.started and not process.running:
                        raise Misconfigured(
                            f"{name} ended while it started; end of {process.log}:\n{process.tail(8)}"
                        )
                await asyncio.wait(ready, timeout=_LOOP_S)
            await asyncio.gather(*ready)
        finally:
            for one in ready:
                one.cancel()
            await asyncio.gather(*ready, return_exceptions=True)
        await self._note_kafka()

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
        ingest = {name: [f"127.0.0.1:{one.port}"] for name, one in addresses.items()}
        self.fronts = [
            HAProxy(plan.data / f"front-{number}", port, ingest) for number, port in enumerate(plan.ports, 1)
        ]
        await self.cluster.start()
        bootstrap = self.cluster.bootstrap
        declared: tuple[DeclaredTopics, ...] = (
            plan.control,
            *(colour_topics(plan.stream, name) for name in NAMES),
            SourceTopics(Topics(plan.stream)),
        )
        for topics in declared:
            await create_topics(bootstrap, topics, partitions=1, replication=1, create=True)
        self._log = ColourLog(bootstrap, plan.control.colours, CLIENT)
        await self._log.start()
        for name, address in addresses.items():
            self.meshes[name] = ColourMesh(
                address,
                plan.mesh_command,
                colour_topics(plan.stream, name),
                bootstrap,
                {
                    **plan.env,
                    "HIFI_OBSERVE_COLOURS": plan.control.control,
                    "HIFI_COLLECT_COLOURS": plan.control.control,
                    "HIFI_COLLECT_COLOUR": name,
                },
                plan.data / "logs" / f"{name}.log",
            )
        await self._log.write(self._first_record(addresses))
        await self._log.catch_up()
        self._write_state()
        await self._start_and_divide_fronts()
        await self._start_and_stop_colours()
        self._loops = [asyncio.create_task(self._follow(), name="follow the colours")]
        if plan.split_above:
            self._loops.append(asyncio.create_task(self._split_bursts(), name="split bursts"))

    def _first_record(self, addresses: Mapping[str, ColourAddress]) -> Colours:
        """The record of this start: shares and states as before, else everything to the first colour."""
        assert self._log is not None
        before = self._log.newest.colours if self._log.newest is not None else {}
        colours = {}
        for name, one in addresses.items():
            known = before.get(name)
            share = known.share if known else WHOLE_SHARE * (name == NAMES[0])
            state = known.state if known else (ColourState.LIGHT if share else ColourState.DARK)
            colours[name] = Colour(
                share,
                state,
                (f"http://127.0.0.1:{one.port}",),
                f"http://127.0.0.1:{one.console_port}",
                known.kafka if known else "",
                known.setup if known else ColourSetup(),
            )
        fronts = tuple(FrontAddress(one.url, one.stats) for one in self.fronts)
        return Colours(colours, fronts, time.time_ns() // 1_000_000, "hifi up")

    async def _follow(self) -> None:
        """Do what the record says, again and again."""
        assert self._log is not None
        while True:
            await asyncio.sleep(_LOOP_S)
            try:
                await self._start_and_divide_fronts()
                await self._start_and_stop_colours()
                async with asyncio.timeout(10):
                    await self._log.catch_up()
            except (HifiError, KafkaError, OSError, TimeoutError) as error:
                logger.warning("colours-wait", reason=str(error) or repr(error))

    async def _start_and_divide_fronts(self) -> None:
        """Start fronts that do not run, and give all the shares of the record; none waits for another one."""
        done = await asyncio.gather(*map(self._start_or_divide, self.fronts), return_exceptions=True)
        for problem in done:
            if problem is not None:
                raise problem

    async def _start_or_divide(self, front: Front) -> None:
        shares = self.colours.shares
        if not front.running:
            await front.start(shares)
            logger.info("front-started", url=front.url)
        elif self._divided.get(front.url) != shares:
            await front.divide(shares)
            logger.info("shares-changed", url=front.url, **shares)
        self._divided[front.url] = shares

    async def _start_and_stop_colours(self) -> None:
        for name, mesh in self.meshes.items():
            colour = self.colours.colours[name]
            wanted = colour.state is not ColourState.ASLEEP
            if mesh.process.running and not wanted:
                await mesh.stop()
            elif wanted and not mesh.process.running:
                if mesh.process.started and colour.share:
                    await self._give_requests_away(name)
                now_s = time.monotonic()
                if now_s - self._started_s.get(name, -_RESTART_S) >= _RESTART_S:
                    self._started_s[name] = now_s
                    await mesh.start(colour.setup, beside=bool(self._loops) and self._runs(other(name)))
            await mesh.adjust_priority(alone=not self._runs(other(name)))

    def _runs(self, name: str) -> bool:
        return self.meshes[name].process.running

    async def _give_requests_away(self, name: str) -> None:
        """Shift everything away from a colour whose mesh has ended, so that it gets no requests while it starts."""
        switch = self._switch("hifi up")
        shares = {name: 0, other(name): WHOLE_SHARE}
        try:
            await switch.shift(shares, f"the mesh of {name} has ended", kind=ActionKind.RECOVER)
        except HifiError as error:
            logger.warning("colour-lost", colour=name, requests_stay=str(error))
        else:
            logger.warning("colour-lost", colour=name, requests_go_to=other(name))

    def _switch(self, by: str) -> Switch:
        topics = Topics(self.plan.stream, load(StreamSettings).tiers)
        return Switch(self.cluster.bootstrap, topics, self._folders, by)

    async def _split_bursts(self) -> None:
        """Split and join requests with the rate of events, again and again."""
        splitter = BurstSplitter(
            BurstPolicy(self.plan.split_above), self._switch(BY), lambda: accepted_events(self._folders)
        )
        while True:
            await asyncio.sleep(MEASURE_S)
            await splitter.adjust(self.colours)

    @property
    def _folders(self) -> dict[str, Path]:
        return {name: self.plan.folder(name) for name in NAMES}

    async def _note_kafka(self) -> None:
        """Write the addresses of the colours' Kafka into the record where they have changed."""
        assert self._log is not None
        await self._log.catch_up()
        colours = {
            name: replace(one, kafka=self.meshes[name].kafka or one.kafka)
            for name, one in self.colours.colours.items()
        }
        if colours != self.colours.colours:
            await self._log.write(replace(self.colours, colours=colours))
            await self._log.catch_up()

    def _write_state(self) -> None:
        me = os.getpid()
        state = RunningMesh(
            pid=me,
            created=running.created(me),
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
        for one in self._loops:
            one.cancel()
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
    taken = set(plan.ports)
    found = {}
    for name in NAMES:
        ports = []
        for _ in range(2):
            ports.append(free_port(but=taken))
            taken.add(ports[-1])
        found[name] = ColourAddress(name, plan.folder(name), *ports)
    return found
