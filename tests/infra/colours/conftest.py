"""Two colours for the tests of this folder."""

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.colours.coloured_kafka import ColoursUnderTest

from hifi.delivery.colours import NAMES
from hifi.kafka.admin import create_topics
from hifi.kafka.topics import ControlTopics
from hifi_infra.colours.colour_mesh import colour_topics
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningInstance, RunningMesh


@pytest.fixture
async def colours(kafka: str, tmp_path: Path) -> AsyncIterator[ColoursUnderTest]:
    under_test = ColoursUnderTest(
        kafka, f"s{uuid.uuid4().hex[:8]}", {name: tmp_path / name for name in NAMES}
    )
    for topics in (
        ControlTopics(f"{under_test.stream}-control"),
        *(colour_topics(under_test.stream, n) for n in NAMES),
    ):
        await create_topics(kafka, topics, partitions=1, replication=1, create=True)
    await under_test.write()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            status = b"200 OK" if under_test.ready else b"503 Service Unavailable"
            body = b'{"state": "starting", "waiting": {"kafka": "Kafka is away"}}'
            writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    own_pid = os.getpid()
    with contextlib.ExitStack() as stack:
        for name, folder in under_test.folders.items():
            stack.enter_context(running.lock(folder))
            instance = RunningInstance(
                service="ingest", number=1, pid=own_pid, created=1, port=port, log=folder / "log"
            )
            mesh = RunningMesh(
                pid=own_pid,
                created=running.created(own_pid),
                stream=under_test.stream,
                kafka="",
                brokers=1,
                url=name,
                trigger="auto",
                instances=[instance],
            )
            running.write(folder, mesh)
        yield under_test
    server.close()
