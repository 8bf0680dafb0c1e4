"""Restarts brokers of a mesh's own Kafka cluster when they end."""

import asyncio
import contextlib
from typing import Final

from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import HifiError
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.instance import exit_text
from hifi_infra.mesh.journal import Journal

BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0)


class BrokerSupervisor:
    """Restarts each broker that ends. Call `start` after the cluster has started and `stop` before it stops."""

    def __init__(self, cluster: KafkaCluster, journal: Journal) -> None:
        self._cluster = cluster
        self._journal = journal
        self._tasks: list[asyncio.Task[None]] = []
        self._earlier_cpu_s = 0.0
        self.restarts = 0

    def start(self) -> None:
        """Supervise every broker from now on."""
        self._tasks = [
            asyncio.create_task(self._supervise(number), name=f"supervise broker {number}")
            for number in self._cluster.processes
        ]

    async def stop(self) -> None:
        """End the supervision; the brokers go on."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    def cpu_seconds(self) -> float:
        """CPU time of all brokers so far, in seconds."""
        return self._earlier_cpu_s + sum(
            process.cpu_seconds() for process in self._cluster.processes.values()
        )

    def rss_bytes(self) -> int:
        """Resident memory of all brokers now."""
        return sum(process.rss_bytes() for process in self._cluster.processes.values())

    async def _supervise(self, number: int) -> None:
        process = self._cluster.processes[number]
        failures = 0
        while True:
            code = await process.wait()
            self._earlier_cpu_s += process.cpu_seconds()
            pause_s = backoff_s(failures, BACKOFF_S)
            self._journal.add(
                "broker-died",
                f"Kafka broker {number} ended with {exit_text(code)}; it is started again in {pause_s:g} s",
                bad=True,
                broker=number,
                log=str(process.log),
            )
            await asyncio.sleep(pause_s)
            failures += 1
            if process.running:  # other code has started it meanwhile
                continue
            try:
                await self._cluster.start_broker(number)
            except (HifiError, OSError) as error:
                text = f"Kafka broker {number} does not start: {error}"
                self._journal.add("broker-start-failed", text, bad=True)
                continue
            failures = 0
            self.restarts += 1
            self._journal.add("broker-restarted", f"Kafka broker {number} is back")
