"""What can be done to a mesh. Each fault ends by itself and says what it did, to whom, and when."""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import aiohttp
import psutil
from tests.chaos.judge import Window
from tests.chaos.rig import ASYNCIO, DISK_BYTES, HOUR_S, Rig

from hifi_infra.kafka.cluster import brokers_seen_by
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.process.process import Process

MODES: Final = (
    "hang",
    "reset",
    "slow",
    "late",
    "error",
    "refuse",
    "silent",
    "truncate",
    "reset-after",
    "retry-after",
)

NOTICED_S: Final = 8.0
"""Bound on the time in which a service notices that its driver is dead, seconds."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults act on."""

    mesh: Mesh
    rig: Rig
    destination_url: str
    dice: random.Random
    longest_freeze_s: float


Fault: TypeAlias = Callable[[Scene], Awaitable[Window]]


async def kill(scene: Scene) -> Window:
    """SIGKILL of one instance, its children with it."""
    name, process = _instance(scene)
    start_s = time.time()
    await process.kill()
    return Window("kill", name, start_s, time.time())


async def terminate(scene: Scene) -> Window:
    """SIGTERM of one instance: it drains and ends, and is started again."""
    name, process = _instance(scene)
    start_s = time.time()
    os.kill(process.pid, signal.SIGTERM)
    await asyncio.wait_for(process.wait(), 40)
    return Window("terminate", name, start_s, time.time())


async def freeze(scene: Scene) -> Window:
    """SIGSTOP of one instance for a while: alive for the kernel, silent for everybody else."""
    name, process = _instance(scene)
    return await _frozen("freeze", name, [process], scene)


async def kill_driver(scene: Scene) -> Window:
    """SIGKILL of the JVM under an instance of enrich; its Python part stays."""
    name, process = _instance(scene, "enrich")
    start_s = time.time()
    for child in psutil.Process(process.pid).children(recursive=True):
        if "java" in child.name():
            child.kill()
    with contextlib.suppress(TimeoutError):  # a standby's loss shows late
        async with asyncio.timeout(NOTICED_S):
            while process.running and scene.mesh.ready:
                await asyncio.sleep(0.05)
    return Window("kill-driver", name, start_s, time.time())


async def kill_broker(scene: Scene) -> Window:
    """SIGKILL of one broker, which is then started again."""
    cluster = scene.mesh.cluster
    assert cluster is not None
    number = scene.dice.randint(1, cluster.brokers)
    start_s = time.time()
    await cluster.processes[number].kill()
    return Window("kill", _broker(scene, number), start_s, time.time())


async def freeze_broker(scene: Scene) -> Window:
    """SIGSTOP of one broker for a while."""
    cluster = scene.mesh.cluster
    assert cluster is not None
    number = scene.dice.randint(1, cluster.brokers)
    return await _frozen("freeze", _broker(scene, number), [cluster.processes[number]], scene)


async def kill_all_brokers(scene: Scene) -> Window:
    """SIGKILL of every broker at once."""
    cluster = scene.mesh.cluster
    assert cluster is not None
    start_s = time.time()
    await asyncio.gather(*(process.kill() for process in list(cluster.processes.values())))
    return Window("kill", "brokers", start_s, time.time())


async def scale(scene: Scene) -> Window:
    """One service to three instances, to one, and back to two."""
    service = scene.dice.choice(("ingest", "normalize", "egest", "retrier"))
    start_s = time.time()
    for count in (3, 1, 2):
        await scene.mesh.scale(service, count)
        await settled(scene.mesh)
    return Window("scale", service, start_s, time.time())


async def misbehave(scene: Scene) -> Window:
    """The shaky destination does one wrong thing for a while."""
    mode = scene.dice.choice(MODES)
    start_s = time.time()
    async with aiohttp.ClientSession() as session:
        await session.put(f"{scene.destination_url}/mode/shaky", data=mode)
        await asyncio.sleep(scene.dice.uniform(2, 8))
        await session.put(f"{scene.destination_url}/mode/shaky", data="ok")
    return Window("destination-" + mode, "shaky", start_s, time.time())


async def cut(scene: Scene) -> Window:
    """The network between one instance and one broker is cut for a while: no byte, no reset."""
    cluster = scene.mesh.cluster
    assert cluster is not None
    service, number = scene.dice.choice(ASYNCIO), scene.dice.randint(1, cluster.brokers)
    start_s = time.time()
    scene.rig.wire("cut", service, number)
    try:
        await asyncio.sleep(scene.dice.uniform(1, scene.longest_freeze_s))
    finally:
        scene.rig.wire("mend", service, number)
    return Window("cut", f"{service}-2", start_s, time.time())


async def step_clock(scene: Scene) -> Window:
    """The wall clock of one instance is an hour off for a while; it steps forth and back."""
    service = scene.dice.choice(ASYNCIO)
    start_s = time.time()
    scene.rig.set_clock(service, scene.dice.choice((HOUR_S, -HOUR_S)))
    try:
        await asyncio.sleep(scene.dice.uniform(3, 10))
    finally:
        scene.rig.set_clock(service, 0)
    await asyncio.sleep(1)  # it looks at its file once a second
    return Window("clock", f"{service}-1", start_s, time.time())


async def fill_disk(scene: Scene) -> Window:
    """The brokers' disk is full for a while."""
    start_s = time.time()
    scene.rig.resize_disk(0)
    try:
        await asyncio.sleep(scene.dice.uniform(2, 8))
    finally:
        scene.rig.resize_disk(DISK_BYTES)
    return Window("disk", "brokers", start_s, time.time())


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        kill,
        terminate,
        freeze,
        kill_driver,
        kill_broker,
        freeze_broker,
        kill_all_brokers,
        scale,
        misbehave,
        cut,
        step_clock,
        fill_disk,
    )
}


async def settled(mesh: Mesh, within_s: float = 90) -> float:
    """Wait until every broker answers and every instance is ready; seconds that took.

    Raises:
        TimeoutError: it took longer than `within_s` seconds.
    """
    start_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while not await _brokers_answer(mesh):
            await asyncio.sleep(0.1)
        # The mesh's own view is up to two seconds old, so ask twice with a fresh look between.
        for _ in range(2):
            await asyncio.gather(*(instance.probe() for instance in mesh.all()))
            while not mesh.ready:
                await asyncio.sleep(0.1)
                await asyncio.gather(*(instance.probe() for instance in mesh.all()))
    return time.monotonic() - start_s


async def _brokers_answer(mesh: Mesh) -> bool:
    """Each broker knows of all."""
    if mesh.cluster is None:
        return True
    everyone = set(mesh.cluster.processes)
    seen = await asyncio.gather(*(brokers_seen_by(mesh.cluster.address(number)) for number in everyone))
    return all(numbers == everyone for numbers in seen)


def _instance(scene: Scene, service: str | None = None) -> tuple[str, Process]:
    choices = {
        name: process
        for name, process in processes(scene.mesh).items()
        if not name.startswith("broker") and (service is None or name.startswith(service)) and process.running
    }
    name = scene.dice.choice(sorted(choices))
    return name, choices[name]


def _broker(scene: Scene, number: int) -> str:
    cluster = scene.mesh.cluster
    assert cluster is not None
    return "brokers" if cluster.brokers == 1 else f"broker-{number}"


async def _frozen(fault: str, name: str, frozen: list[Process], scene: Scene) -> Window:
    start_s = time.time()
    for process in frozen:
        process.pause()
    try:
        await asyncio.sleep(scene.dice.uniform(1, scene.longest_freeze_s))
    finally:
        for process in frozen:
            process.resume()
    return Window(fault, name, start_s, time.time())
