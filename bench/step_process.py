"""Instances of state for measurements."""

import asyncio
from pathlib import Path
from typing import Final

from hifi_infra.java.jdk import find_java
from hifi_infra.mesh.plan import InstanceSpec, Plan, command, environment
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

STREAM: Final = "bench"
TAKEN_OVER: Final = "step-taken-over"
_POLL_S: Final = 0.1


def state_process(folder: Path, kafka: str) -> Process:
    """An instance of state as `hifi up` runs it."""
    spec = InstanceSpec("state", 1, free_port())
    variables = environment(Plan(folder, stream=STREAM), spec, kafka, find_java().home)
    return Process(spec.name, command("state"), env=variables, log=folder / "state.log")


async def until_logged(process: Process, text: str, limit_s: float) -> None:
    """Wait until the log of a process has a text.

    Raises:
        RuntimeError: the process has ended.
        TimeoutError: it takes too long.
    """
    async with asyncio.timeout(limit_s):
        while not process.log.exists() or text not in process.log.read_text():
            if not process.running:
                raise RuntimeError(f"{process.name} has ended:\n{process.tail()}")
            await asyncio.sleep(_POLL_S)
