"""What is running on a data folder: a lock that ends with its process, and `mesh.json` for whoever asks."""

import asyncio
import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import IO, Final

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from hifi.errors import Misconfigured
from hifi_infra.mesh.plan import Trigger

LEFT_S: Final = 10.0
"""Children of a mesh that was killed are killed by the kernel and the guard; a JVM takes a moment to go."""


class RunningInstance(BaseModel):
    """One instance of a service."""

    model_config = ConfigDict(frozen=True)

    service: str
    number: int
    pid: int
    """Of its last process, which may have ended: it is started again."""
    created: float
    """When the process was made, seconds since 1970 UTC, to tell it from a later one with its number; 0: it ended."""
    port: int
    log: Path


class Running(BaseModel):
    """The content of `mesh.json`."""

    model_config = ConfigDict(frozen=True)

    pid: int
    created: float
    stream: str
    kafka: str
    brokers: int | None
    """Of the mesh's own cluster; None: the cluster is somebody else's."""
    url: str
    console: str | None = None
    """Where observe's console and API are, when it runs."""
    trigger: Trigger
    python_path: list[Path] = []
    """Where the services look for the pipes' own functions."""
    instances: list[RunningInstance] = []


def state_file(data: Path) -> Path:
    """Where a mesh on this folder says what it is."""
    return data / "mesh.json"


def last(data: Path) -> Running | None:
    """What the last mesh on this folder said of itself, whether it still runs or not."""
    try:
        return Running.model_validate_json(state_file(data).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise Misconfigured(
            f"{state_file(data)} is not what hifi wrote there ({type(error).__name__}): "
            "remove that file while no mesh runs on the folder"
        ) from error


def find(data: Path) -> Running | None:
    """The mesh that runs on this folder now, if one does and has said so; one that starts says it soon."""
    found = last(data) if held(data) else None
    return found if found is not None and is_alive(found) else None


def write(data: Path, running: Running) -> None:
    """Say what runs. Whoever reads sees the old or the new, never a half."""
    part = state_file(data).with_suffix(".part")
    part.write_text(running.model_dump_json(indent=1))
    part.replace(state_file(data))


def lock(data: Path) -> IO[str]:
    """Keep other meshes off the folder until the file that is returned is closed, or this process ends.

    Raises:
        Misconfigured: another mesh runs there, or the folder cannot be used.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        held = (data / "mesh.lock").open("w")
    except OSError as error:
        raise Misconfigured(
            f"the data folder {data} cannot be used: {error.strerror}; name another with --data"
        ) from error
    try:
        _lock_soon(held)
    except OSError as error:
        held.close()
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise Misconfigured(
                f"the data folder {data} cannot be locked: {error.strerror}; name another with --data"
            ) from error
        running = last(data)
        who = f" (process {running.pid}, {running.url})" if running else ""
        raise Misconfigured(
            f"a mesh already runs on {data}{who}: stop it with `hifi down --data {data}`, "
            "or give this one a folder of its own with --data"
        ) from error
    return held


async def wait_gone(data: Path, within_s: float = LEFT_S) -> int:
    """See that nothing of an earlier mesh on this folder is left; ends what does not go. Hold the lock.

    Returns:
        How many processes of it were still there.
    """
    running = last(data)
    left = (
        [process for one in running.instances if (process := _same(one.pid, one.created))] if running else []
    )
    found = len(left)
    end = time.monotonic() + within_s
    while left and time.monotonic() < end:
        await asyncio.sleep(0.05)
        left = [
            process for process in left if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return found


def created(pid: int) -> float:
    """When a process was made, seconds since 1970 UTC; 0 when it is gone."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def is_alive(running: Running) -> bool:
    """Whether the mesh's own process still lives."""
    return _same(running.pid, running.created) is not None


def _same(pid: int, made: float) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if abs(process.create_time() - made) < 0.05 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _lock_soon(held: IO[str]) -> None:
    for _ in range(5):
        with contextlib.suppress(BlockingIOError):  # somebody who only looks holds it for microseconds
            return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    return fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(data: Path) -> bool:
    """Whether a mesh has this folder, be it that it starts, runs or stops."""
    try:
        descriptor = os.open(data / "mesh.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
