"""A destination of its own beside that of a load test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process


@asynccontextmanager
async def second_destination(load_test: LoadTest, folder: str) -> AsyncIterator[tuple[Workspace, Process]]:
    """A running destination in a folder of the load test's data, and its process; killed at the end of the block."""
    stage = load_test.workspace
    used_ports = {stage.ingest_port, stage.destination_port, load_test.mesh.plan.console_port}
    workspace = Workspace(stage.data / folder, stage.ingest_port, free_port(but=used_ports))
    workspace.data.mkdir()
    process = workspace.destination()
    await process.start()
    try:
        await workspace.wait_for_destination()
        yield workspace, process
    finally:
        if process.running:
            await process.kill()
