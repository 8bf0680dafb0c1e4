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
    main_workspace = load_test.workspace
    used_ports = {
        main_workspace.ingest_port,
        main_workspace.destination_port,
        load_test.mesh.plan.console_port,
    }
    second_workspace = Workspace(
        main_workspace.data / folder, main_workspace.ingest_port, free_port(but=used_ports)
    )
    second_workspace.data.mkdir()
    process = second_workspace.destination()
    await process.start()
    try:
        await second_workspace.wait_for_destination()
        yield second_workspace, process
    finally:
        if process.running:
            await process.kill()
