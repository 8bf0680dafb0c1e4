"""One colour: a whole mesh in a data folder of its own, run by one process that ends with all of its children."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from hifi.control.releases.desired_release import INSTALLED
from hifi.delivery.colours import NAMES, ColourSetup
from hifi.kafka.topics import ControlTopics
from hifi_infra.mesh import running
from hifi_infra.mesh.health_probe import readiness
from hifi_infra.mesh.release import command_of, release_environment
from hifi_infra.process.priority import can_restore, lower, restore
from hifi_infra.process.process import Process

STOP_S: Final = 300.0
"""Longer than all services of a mesh take to drain, one after the other."""
LOW_S: Final = 150.0
"""Longest time for which a colour that starts gets only the CPU time that the other one leaves, seconds."""
LOOK_S: Final = 2.0
"""Time between two looks whether it is ready, seconds."""


@dataclass(frozen=True, slots=True)
class ColourAddress:
    """Address of one colour: its data folder, and the ports of its ingest, its observe and its view."""

    name: str
    folder: Path
    port: int
    console_port: int
    view_port: int


MeshCommand: TypeAlias = Callable[[ColourAddress, ColourSetup], Sequence[str]]
"""Makes the command that runs the mesh of a colour until it gets SIGTERM."""


class ColourMesh:
    """The mesh of one colour.

    Args:
        address: of the colour.
        command: makes its command.
        control: name of the colour's own topics on the control plane's Kafka.
        control_kafka: bootstrap servers of that Kafka.
        env: more variables for the mesh.
        log: file for its output.
    """

    def __init__(
        self,
        address: ColourAddress,
        command: MeshCommand,
        control: ControlTopics,
        control_kafka: str,
        env: Mapping[str, str],
        log: Path,
    ) -> None:
        self.address = address
        self._command = command
        self._env = {name: value for name, value in os.environ.items() if name != "HIFI_KAFKA"} | dict(env)
        self._control = {"HIFI_CONTROL": control.control, "HIFI_CONTROL_KAFKA": control_kafka}
        self._log = log
        self._low_until_s = self._look_at_s = 0.0
        self.process = self._make_process(ColourSetup())

    @property
    def kafka(self) -> str:
        """Bootstrap servers of its Kafka; empty until it has started for the first time."""
        mesh = running.read(self.address.folder)
        return mesh.kafka if mesh is not None else ""

    async def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process.running

    @property
    def was_started(self) -> bool:
        """Whether its process was ever started."""
        return self.process.started

    async def start(self, setup: ColourSetup, *, in_background: bool = False) -> None:
        """Start it on a setup.

        Args:
            setup: of the colour.
            in_background: the other colour works, and nothing waits in this one: until it is ready it gets the CPU time
                that is left, where possible.

        Raises:
            Misconfigured: the release of the setup has no program.
        """
        self.process = self._make_process(setup)
        await self.process.start()
        self._low_until_s = time.monotonic() + LOW_S if in_background and can_restore() else 0
        if self._low_until_s:
            await asyncio.to_thread(lower, self.process.pid)

    async def adjust_priority(self, *, is_only: bool) -> None:
        """Give it its full share of CPU time when its services are ready, `LOW_S` are over, or no other colour runs.

        It looks every `LOOK_S`, since looking takes CPU time from the other colour.
        """
        now_s = time.monotonic()
        if not self._low_until_s or not self.process.running or not (is_only or now_s >= self._look_at_s):
            return
        self._look_at_s = now_s + LOOK_S
        if is_only or now_s >= self._low_until_s or not await waits_for(self.address.folder):
            await asyncio.to_thread(restore, self.process.pid)
            self._low_until_s = 0
        else:
            await asyncio.to_thread(lower, self.process.pid)

    def _make_process(self, setup: ColourSetup) -> Process:
        release = setup.release or INSTALLED
        env = release_environment(release, self._env | dict(setup.settings) | self._control)
        argv = command_of(release, self._command(self.address, setup))
        return Process(self.address.name, argv, log=self._log, env=env)

    async def stop(self) -> None:
        """Drain and end it."""
        if self.process.running:
            await self.process.stop(STOP_S)

    async def kill(self) -> None:
        """Kill all of its processes at once (SIGKILL)."""
        if self.process.running:
            await self.process.kill()


async def waits_for(folder: Path) -> list[str]:
    """Conditions that the mesh on a folder waits for before all of its services are ready; empty when they are."""
    mesh = running.find(folder)
    if mesh is None or not mesh.instances:
        return ["its mesh starts"]
    states = await asyncio.gather(*(readiness(instance.port) for instance in mesh.instances))
    return [
        f"{instance.service}-{instance.number}: {'; '.join(state.waiting.values()) or state.state}"
        for instance, state in zip(mesh.instances, states, strict=True)
        if not state.ready
    ]


def colour_topics(stream: str, colour: str) -> ControlTopics:
    """Topics on the control plane's Kafka in which observe of one colour gives its verdicts."""
    return ControlTopics(f"{stream}-{colour}")


def control_planes(stream: str) -> list[ControlTopics]:
    """The topics on the control plane's Kafka of two colours: those that they share, and those of each colour."""
    return [ControlTopics(f"{stream}-control"), *(colour_topics(stream, name) for name in NAMES)]
