"""Seconds from `hifi up` to ready: without class archives, with them, and again on the same folder."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from mesh_row import Keep, attempt

from hifi.runtime.errors import Retryable
from hifi_cli.demo.workspace import Workspace
from hifi_infra.java import jars
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

READY = "Ready. Send events to"
READY_S, GRACE_S = 180.0, 90.0
COLD = "cold: no class archives, an empty folder"
EMPTY = "class archives as `make setup` makes them, an empty folder"
AGAIN = "warm: the same folder again"


def start(keep: Keep) -> None:
    """`hifi up` with the demo's pipe and real-time trigger. The file cache is not dropped. About 2.5 minutes."""
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        attempt(
            keep, COLD, lambda: asyncio.run(_times(keep, Path(folder), [COLD], _empty_caches(Path(folder))))
        )
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        attempt(keep, EMPTY, lambda: asyncio.run(_times(keep, Path(folder), [EMPTY, AGAIN, AGAIN], {})))


def _empty_caches(folder: Path) -> Mapping[str, str]:
    """Variables that point to caches with the jars but without class archives."""
    cache, jar_folder = folder / "cache", folder / "jars"
    cache.mkdir()
    jar_folder.mkdir()
    for jar in {*jars.kafka_jars(), *jars.spark_jars()}:
        (jar_folder / jar.name).symlink_to(jar)
    return {"HIFI_JARS": str(jar_folder), "XDG_CACHE_HOME": str(cache)}


async def _times(keep: Keep, folder: Path, names: list[str], env: Mapping[str, str]) -> None:
    workspace = Workspace.at(folder)
    workspace.pipes()
    seconds_by_name: dict[str, list[float]] = {}
    for name in names:
        seconds = await _up(workspace, env)
        print(f"{name}: {seconds:.1f} s", flush=True)
        seconds_by_name.setdefault(name, []).append(round(seconds, 1))
        keep(name, {"seconds": seconds_by_name[name]})


async def _up(workspace: Workspace, env: Mapping[str, str]) -> float:
    """Start, wait until it prints that it is ready, stop.

    Raises:
        Retryable: it ended, or was not ready in time; with the end of its log.
    """
    console = free_port(but={workspace.ingest_port, workspace.destination_port})
    options = {
        "--pipes": workspace.data / "pipes",
        "--data": workspace.data / "mesh",
        "--port": workspace.ingest_port,
        "--console-port": console,
        "--trigger": "real-time",
    }
    argv = [
        sys.executable,
        "-m",
        "hifi_cli",
        "up",
        *(str(argument) for pair in options.items() for argument in pair),
    ]
    log = workspace.data / "up.log"
    log.unlink(missing_ok=True)
    process = Process(
        "hifi up", argv, log=log, env=os.environ | workspace.secrets | dict(env) | {"COLUMNS": "200"}
    )
    began_s = time.monotonic()
    await process.start()
    try:
        while READY not in (log.read_text(errors="replace") if log.exists() else ""):
            if not process.running or time.monotonic() - began_s > READY_S:
                state = "is not ready in time" if process.running else "ended"
                raise Retryable(f"hifi up {state}:\n{process.tail()}")
            await asyncio.sleep(0.05)
        seconds = time.monotonic() - began_s
        code = await process.stop(GRACE_S)
        if code != 0:
            raise Retryable(f"hifi up ended with {code}:\n{process.tail()}")
        return seconds
    finally:
        if process.running:
            await process.kill()
