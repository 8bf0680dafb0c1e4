"""The mesh that runs on a data folder: a lock that ends with its process, and `mesh.json`, which describes it."""

import asyncio
import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import IO, Final

import orjson
import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from hifi.control.releases.desired_release import INSTALLED
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import version
from hifi_infra.mesh.plan import Trigger

DATA_FORMAT: Final = 1
"""Form of data folders. It grows when an earlier release could not read what a later one wrote."""
EARLIER_END_S: Final = 10.0
"""The kernel and the process reaper kill the children of a mesh that was killed; a JVM takes a moment to end."""


class RunningInstance(BaseModel):
    """One instance of a service."""

    model_config = ConfigDict(frozen=True)

    service: str
    number: int
    pid: int
    """Process id of its last process, which may have ended and is then started again."""
    created: float
    """Creation time of the process, seconds since 1970 UTC, since process ids are used again; 0: it ended."""
    port: int
    log: Path
    release: str = INSTALLED


class RunningMesh(BaseModel):
    """The content of `mesh.json`."""

    model_config = ConfigDict(frozen=True)

    pid: int
    created: float
    stream: str
    kafka: str
    brokers: int | None
    """Number of brokers of its own cluster; None: it uses an existing cluster."""
    secure: bool = False
    """Whether its own cluster uses TLS, passwords and ACLs."""
    kafka_version: str = ""
    """Version of its own cluster; empty: the one that hifi is tested with."""
    partitions: int = 0
    """Partitions of each event topic; 0: not known yet."""
    url: str
    console: str | None = None
    """URL of observe's console and API; None without observe."""
    manage: str | None = None
    """URL of the management API; None without a control plane, and if its port was not chosen."""
    view: str | None = None
    """URL of view; None without views."""
    trigger: Trigger
    control: str = ""
    """Name of the control plane; empty: there is none."""
    data_format: int = DATA_FORMAT
    """Form of the data folder. A release refuses the folder of a later form."""
    release: str = ""
    """Of hifi, which wrote it."""
    python_path: list[Path] = []
    """Folders with the pipes' own Python functions."""
    instances: list[RunningInstance] = []
    colours: dict[str, Path] = {}
    """Colour to its data folder, where a mesh of its own runs; empty: this is one mesh."""
    control_kafka: str = ""
    """Bootstrap servers of the Kafka that outlives the colours; empty without colours."""


def state_file(data: Path) -> Path:
    """The file that describes the mesh on this folder."""
    return data / "mesh.json"


def read(data: Path) -> RunningMesh | None:
    """The last description that a mesh wrote to this folder, whether or not that mesh still runs.

    Raises:
        Misconfigured: the file cannot be read, or is that of a newer release.
    """
    try:
        content = state_file(data).read_bytes()
        _require_readable(data, content)
        return RunningMesh.model_validate_json(content)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise Misconfigured(
            f"{state_file(data)} is not a file that hifi wrote ({type(error).__name__}): "
            "remove that file while no mesh runs on the folder"
        ) from error


def _require_readable(data: Path, content: bytes) -> None:
    """Refuse the folder of a release whose data folders have a later form.

    Raises:
        Misconfigured: it is one.
    """
    with contextlib.suppress(ValueError):
        description = orjson.loads(content)
        data_format = description.get("data_format") if isinstance(description, dict) else None
        if isinstance(data_format, int) and data_format > DATA_FORMAT:
            raise Misconfigured(
                f"{data} was last used by hifi {description.get('release') or 'of a newer release'}, whose data "
                f"folders (format {data_format}) this release, {version('infra')}, cannot read; nothing was changed. "
                "Install that release again, or name another folder with --data"
            )


def find(data: Path) -> RunningMesh | None:
    """The mesh that runs on this folder now; None without one, and until a starting one has described itself."""
    mesh = read(data) if is_locked(data) else None
    return mesh if mesh is not None and is_alive(mesh) else None


def write(data: Path, mesh: RunningMesh) -> None:
    """Write the description. The file is replaced at once: a reader gets the old or the new one, whole."""
    temporary_file = state_file(data).with_suffix(".part")
    description = mesh.model_copy(update={"release": version("infra")})
    temporary_file.write_text(description.model_dump_json(indent=1))
    temporary_file.replace(state_file(data))


def lock(data: Path) -> IO[str]:
    """Lock the folder against other meshes until the returned file is closed or this process ends.

    Raises:
        Misconfigured: another mesh runs there, the folder cannot be used, or it is that of a newer release.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        _require_readable(data, state_file(data).read_bytes())
    try:
        data.mkdir(parents=True, exist_ok=True)
        file = (data / "mesh.lock").open("w")
    except OSError as error:
        raise Misconfigured(
            f"the data folder {data} cannot be used: {error.strerror}; name another with --data"
        ) from error
    try:
        _lock(file)
    except OSError as error:
        file.close()
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise Misconfigured(
                f"the data folder {data} cannot be locked: {error.strerror}; name another with --data"
            ) from error
        mesh = read(data)
        owner = f" (process {mesh.pid}, {mesh.url})" if mesh else ""
        raise Misconfigured(
            f"a mesh already runs on {data}{owner}: stop it with `hifi down --data {data}`, "
            "or give this one a folder of its own with --data"
        ) from error
    return file


async def wait_for_earlier(data: Path, within_s: float = EARLIER_END_S) -> int:
    """Wait until all processes of an earlier mesh on this folder have ended; kill the rest after `within_s` seconds.

    The caller holds the lock.

    Returns:
        How many of its processes still ran at the call.
    """
    mesh = read(data)
    remaining_processes = (
        [process for instance in mesh.instances if (process := _find_process(instance.pid, instance.created))]
        if mesh
        else []
    )
    count = len(remaining_processes)
    end_s = time.monotonic() + within_s
    while remaining_processes and time.monotonic() < end_s:
        await asyncio.sleep(0.05)
        remaining_processes = [
            process
            for process in remaining_processes
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ]
    for process in remaining_processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return count


def created(pid: int) -> float:
    """Creation time of a process, seconds since 1970 UTC; 0 when it has ended."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return 0.0


def is_alive(mesh: RunningMesh) -> bool:
    """Whether the mesh's own process still runs."""
    return _find_process(mesh.pid, mesh.created) is not None


def _find_process(pid: int, created_s: float) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if abs(process.create_time() - created_s) < 0.05 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _lock(file: IO[str]) -> None:
    for _ in range(5):
        with contextlib.suppress(BlockingIOError):  # `is_locked` holds it for microseconds
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.02)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(data: Path) -> bool:
    """Whether a mesh uses this folder: it starts, runs or stops."""
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
