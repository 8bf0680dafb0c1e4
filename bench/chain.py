"""Runs the FastStream chain with the interface of a mesh, so that the same code rates both."""

import asyncio
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hifi.runtime.errors import Retryable
from hifi_cli.demo import flights
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.health_probe import get
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.process.process import Process

ROOT = Path(__file__).parent.parent
PEER = ROOT / "bench/peers/faststream_chain"
PYTHON = ROOT / ".venv-bench/bin/python"
SERVICES = ("ingest", "normalize", "enrich", "egest")
TOPICS = ("raw", "normalized", "enriched")
PARTITIONS = 4


class Chain:
    """The chain with the interface that `LoadTest` and `Rating` use. `form` is `single` or `batch`."""

    def __init__(self, workspace: Workspace, kind: str, batch: int = 1, *, ack: str = "") -> None:
        self.plan = SimpleNamespace(trigger=f"faststream-{kind}")
        self.partitions = PARTITIONS
        self.phase = "not started"
        self.cluster = KafkaCluster(workspace.data / "kafka")
        self.processes: dict[str, Process] = {}
        self._workspace, self._kind, self._batch, self._ack = workspace, kind, batch, ack

    @property
    def instances(self) -> dict[str, list[Process]]:
        return {name: [process] for name, process in self.processes.items()}

    def all(self) -> list[Process]:
        return []

    async def start(self, pipes: object) -> None:  # noqa: ARG002 - as a mesh takes them
        self.phase = "starting the chain"
        await self.cluster.start()
        admin = AIOKafkaAdminClient(bootstrap_servers=self.cluster.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS])
        await admin.close()
        workspace = self._workspace
        env = os.environ | {
            "CHAIN_KAFKA": self.cluster.bootstrap,
            "CHAIN_PORT": str(workspace.ingest_port),
            "CHAIN_DESTINATION": f"http://127.0.0.1:{workspace.destination_port}",
            "CHAIN_BATCH": str(self._batch),
            "CHAIN_ACK": self._ack,
            "FLIGHTS_DATA": str(flights.folder()),
            "FLIGHTS_MASK": workspace.mask_key,
        }
        for name in SERVICES:
            argv = [str(PYTHON), str(PEER / f"{self._kind}.py"), name]
            self.processes[name] = Process(name, argv, log=workspace.data / "logs" / f"{name}.log", env=env)
            await self.processes[name].start()

    async def wait_ready(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while time.monotonic() < end_s:
            try:
                if (await get(self._workspace.ingest_port, "/readyz"))[0] == 200:
                    self.phase = "running"
                    return
            except OSError:
                await asyncio.sleep(0.1)
        raise Retryable("the chain's ingest is not ready")

    async def kill(self) -> None:
        await asyncio.gather(*(process.kill() for process in self.processes.values() if process.running))
        await self.cluster.kill()

    stop = kill

    def cpu_seconds(self) -> dict[str, float]:
        brokers = sum(process.cpu_seconds() for process in self.cluster.processes.values())
        return {name: process.cpu_seconds() for name, process in self.processes.items()} | {"kafka": brokers}

    def rss_bytes(self) -> dict[str, int]:
        brokers = sum(process.rss_bytes() for process in self.cluster.processes.values())
        return {name: process.rss_bytes() for name, process in self.processes.items()} | {"kafka": brokers}


class ChainLoadTest(LoadTest):
    """The chain, its destination and a sender."""

    def __init__(self, workspace: Workspace, chain: Chain) -> None:
        # The chain has what a load test uses of a mesh.
        super().__init__(workspace, cast("Mesh", chain))

    async def waiting(self) -> dict[str, int]:
        return {}


def needed() -> None:
    """Exit when the chain's environment is missing."""
    if not PYTHON.exists():
        sys.exit("the environment of the peers is missing: `make .venv-bench/.installed`")
