"""The faults. Each one ends by itself and returns what it did to which target, and when."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import aiohttp
import psutil
from tests.chaos.fault_tools import ASYNCIO, DISK_BYTES, HOUR_S, FaultTools
from tests.chaos.verification import FaultWindow

from hifi_infra.kafka.cluster import brokers_seen_by
from hifi_infra.kafka.credentials import write_secret
from hifi_infra.kafka.scram_users import set_passwords
from hifi_infra.kafka.secured_stream import stream_users
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
"""A service detects the death of its Spark driver within this time, seconds."""


@dataclass(frozen=True, slots=True)
class FaultContext:
    """The mesh and the tools that a fault uses."""

    mesh: Mesh
    tools: FaultTools
    destination_url: str
    random_source: random.Random
    longest_freeze_s: float
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a fault has met a service."""


Fault: TypeAlias = Callable[[FaultContext], Awaitable[FaultWindow]]


async def kill(context: FaultContext) -> FaultWindow:
    """SIGKILL of one instance and its children."""
    start_s = time.time()
    return FaultWindow("kill", await kill_instance(context), start_s, time.time())


async def kill_instance(context: FaultContext, service: str | None = None) -> str:
    """SIGKILL of one instance, of any service if none is given, and of its children; returns its name."""
    name, process = _instance(context, "kill", service)
    await process.kill()
    return name


async def terminate(context: FaultContext) -> FaultWindow:
    """SIGTERM of one instance: it drains, ends and is started again."""
    name, process = _instance(context, "terminate")
    start_s = time.time()
    os.kill(process.pid, signal.SIGTERM)
    await asyncio.wait_for(process.wait(), 40)
    return FaultWindow("terminate", name, start_s, time.time())


async def freeze(context: FaultContext) -> FaultWindow:
    """SIGSTOP of one instance for a while: its connections stay open and it answers nothing."""
    name, process = _instance(context, "freeze")
    return await _frozen("freeze", name, [process], context)


async def kill_driver(context: FaultContext) -> FaultWindow:
    """SIGKILL of the JVM of an instance of enrich; its Python process stays."""
    name, process = _instance(context, "kill_driver", "enrich")
    start_s = time.time()
    for child in psutil.Process(process.pid).children(recursive=True):
        if "java" in child.name():
            child.kill()
    with contextlib.suppress(TimeoutError):  # a standby detects it later
        async with asyncio.timeout(NOTICED_S):
            while process.running and context.mesh.ready:
                await asyncio.sleep(0.05)
    return FaultWindow("kill-driver", name, start_s, time.time())


async def kill_broker(context: FaultContext) -> FaultWindow:
    """SIGKILL of one broker; it is started again."""
    cluster = context.mesh.cluster
    assert cluster is not None
    number = context.random_source.randint(1, cluster.brokers)
    start_s = time.time()
    await cluster.processes[number].kill()
    return FaultWindow("kill", _broker(context, number), start_s, time.time())


async def freeze_broker(context: FaultContext) -> FaultWindow:
    """SIGSTOP of one broker for a while."""
    cluster = context.mesh.cluster
    assert cluster is not None
    number = context.random_source.randint(1, cluster.brokers)
    return await _frozen("freeze", _broker(context, number), [cluster.processes[number]], context)


async def kill_all_brokers(context: FaultContext) -> FaultWindow:
    """SIGKILL of every broker at once."""
    cluster = context.mesh.cluster
    assert cluster is not None
    start_s = time.time()
    await asyncio.gather(*(process.kill() for process in list(cluster.processes.values())))
    return FaultWindow("kill", "brokers", start_s, time.time())


async def scale(context: FaultContext) -> FaultWindow:
    """Scale one service to three instances, to one, and back to two."""
    service = context.random_source.choice(context.tools.services)
    start_s = time.time()
    for count in (3, 1, 2):
        await context.mesh.scale(service, count)
        await wait_until_ready(context.mesh)
    return FaultWindow("scale", service, start_s, time.time())


async def misbehave(context: FaultContext) -> FaultWindow:
    """The shaky destination misbehaves in one way for a while."""
    mode = context.random_source.choice(MODES)
    start_s = time.time()
    async with aiohttp.ClientSession() as session:
        await session.put(f"{context.destination_url}/mode/shaky", data=mode)
        await asyncio.sleep(context.random_source.uniform(2, 8))
        await session.put(f"{context.destination_url}/mode/shaky", data="ok")
    return FaultWindow("destination-" + mode, "shaky", start_s, time.time())


async def cut(context: FaultContext) -> FaultWindow:
    """Cut the network between one instance and one broker for a while: no bytes, no reset."""
    cluster = context.mesh.cluster
    assert cluster is not None
    service = context.random_source.choice(context.tools.services)
    number = context.random_source.randint(1, cluster.brokers)
    start_s = time.time()
    context.tools.set_connection("cut", service, number)
    try:
        await asyncio.sleep(context.random_source.uniform(1, context.longest_freeze_s))
    finally:
        context.tools.set_connection("restore", service, number)
    return FaultWindow("cut", f"{service}-2", start_s, time.time())


async def step_clock(context: FaultContext) -> FaultWindow:
    """Step the wall clock of one instance by an hour, and back after a while."""
    service = context.random_source.choice([*context.tools.clocks])
    start_s = time.time()
    context.tools.set_clock(service, context.random_source.choice((HOUR_S, -HOUR_S)))
    try:
        await asyncio.sleep(context.random_source.uniform(3, 10))
    finally:
        context.tools.set_clock(service, 0)
    await asyncio.sleep(1)  # the library reads the offset once a second
    return FaultWindow("clock", f"{service}-1", start_s, time.time())


async def fill_disk(context: FaultContext) -> FaultWindow:
    """Fill the brokers' disk for a while."""
    start_s = time.time()
    context.tools.resize_disk(0)
    try:
        await asyncio.sleep(context.random_source.uniform(2, 8))
    finally:
        context.tools.resize_disk(DISK_BYTES)
    return FaultWindow("disk", "brokers", start_s, time.time())


async def rotate_password(context: FaultContext) -> FaultWindow:
    """Replace the password of one service's Kafka user, some seconds earlier in Kafka than in the service's file.

    One instance of the service is restarted before the file is right, of enrich all of them.
    """
    mesh = context.mesh
    assert mesh.cluster is not None
    credentials = mesh.cluster.credentials
    assert credentials is not None
    service = context.random_source.choice((*ASYNCIO, "enrich", "observe"))
    user = stream_users(mesh.topics)[service]
    start_s = time.time()
    await set_passwords(mesh.bootstrap, {user: (password := secrets.token_urlsafe(32))})
    running = [
        process
        for name, process in sorted(processes(mesh).items())
        if name.startswith(service) and process.running
    ]
    restarted = running if service == "enrich" else running[:1]
    for process in restarted:
        os.kill(process.pid, signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*(process.wait() for process in restarted)), 60)
    await asyncio.sleep(context.random_source.uniform(1, 6))
    write_secret(credentials.password_file(user), password)
    return FaultWindow("rotate-password", service, start_s, time.time())


async def replace_certificate(context: FaultContext) -> FaultWindow:
    """Replace the brokers' certificate, and restart a broker by SIGKILL; the others keep theirs."""
    cluster = context.mesh.cluster
    assert cluster is not None
    assert cluster.credentials is not None
    number = context.random_source.randint(1, cluster.brokers)
    start_s = time.time()
    cluster.credentials.replace_broker_certificate()
    await cluster.processes[number].kill()
    return FaultWindow("replace-certificate", _broker(context, number), start_s, time.time())


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
        rotate_password,
        replace_certificate,
    )
}


async def wait_until_ready(mesh: Mesh, within_s: float = 90) -> float:
    """Wait until every broker answers and every instance is ready; returns the seconds it took.

    Raises:
        TimeoutError: it took longer than `within_s` seconds.
    """
    start_s = time.monotonic()
    async with asyncio.timeout(within_s):
        while not await _brokers_answer(mesh):
            await asyncio.sleep(0.1)
        # The mesh's own view is up to two seconds old, so probe twice.
        for _ in range(2):
            await asyncio.gather(*(instance.probe() for instance in mesh.all()))
            while not mesh.ready:
                await asyncio.sleep(0.1)
                await asyncio.gather(*(instance.probe() for instance in mesh.all()))
    return time.monotonic() - start_s


async def _brokers_answer(mesh: Mesh) -> bool:
    """Whether each broker sees all of them."""
    if mesh.cluster is None:
        return True
    all_numbers = set(mesh.cluster.processes)
    seen_numbers = await asyncio.gather(
        *(brokers_seen_by(mesh.cluster.address(number)) for number in all_numbers)
    )
    return all(numbers == all_numbers for numbers in seen_numbers)


def _instance(context: FaultContext, fault: str, service: str | None = None) -> tuple[str, Process]:
    """An instance of a service that this fault has met least often."""
    choices = {
        name: process
        for name, process in processes(context.mesh).items()
        if not name.startswith("broker") and (service is None or name.startswith(service)) and process.running
    }
    hit_counts = {name: context.hits[fault, name.partition("-")[0]] for name in choices}
    name = context.random_source.choice(
        sorted(name for name in hit_counts if hit_counts[name] == min(hit_counts.values()))
    )
    context.hits[fault, name.partition("-")[0]] += 1
    return name, choices[name]


def _broker(context: FaultContext, number: int) -> str:
    cluster = context.mesh.cluster
    assert cluster is not None
    return "brokers" if cluster.brokers == 1 else f"broker-{number}"


async def _frozen(fault: str, name: str, frozen: list[Process], context: FaultContext) -> FaultWindow:
    start_s = time.time()
    for process in frozen:
        process.pause()
    try:
        await asyncio.sleep(context.random_source.uniform(1, context.longest_freeze_s))
    finally:
        for process in frozen:
            process.resume()
    return FaultWindow(fault, name, start_s, time.time())
