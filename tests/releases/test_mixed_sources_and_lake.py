"""Instances of collect and lake of two neighbouring releases work side by side, there and back.

Under load each record of a topic, which both instances of collect read, and each line of the files of a folder, which
one of them reads, becomes one row of an Iceberg table, which one instance of lake writes.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.releases.neighbours import AFTER, write_release_after, write_release_before
from tests.support.objects.polled_objects import PolledFolder
from tests.support.written_events import in_lake

from hifi.control.releases.desired_release import INSTALLED
from hifi.pipe.model import Pipe
from hifi.record.fields import fields
from hifi.record.headers import OUTCOME, RELEASE
from hifi.runtime.release import VERSION
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.health_probe import get
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

PARTITIONS = 4
TOPIC = "orders-of-others"
MIXED = ("collect", "lake")
"""The other services run the installed release: the older lake reads events of the newer enrich, or the other way."""
FROM_TOPIC, FROM_FILES = "from-topic", "from-files"
RECORDS_PER_S, LINES_PER_FILE = 20, 20
WITHIN_S = 400


class SourcedMesh:
    """A mesh with two pipes that read a topic and a folder, and what was put into both.

    Attributes:
        mesh: with one instance of each of collect and lake, of the older release.
        put: name of a pipe to the numbers of its events.
    """

    def __init__(self, folder: Path, older: str) -> None:
        self._folder = folder
        self._polled = PolledFolder(folder / "polled")
        self.put: dict[str, list[int]] = {FROM_TOPIC: [], FROM_FILES: []}
        self._load: asyncio.Task[None] | None = None
        self._ends = asyncio.Event()
        plan = Plan(
            folder / "mesh",
            port=free_port(),
            partitions=PARTITIONS,
            scale={"collect": 1, "lake": 1, "ingest": 0, "egest": 0, "retrier": 0},
            env={"HIFI_LAKE_INTERVAL_S": "2", "HIFI_LAKE_MASTER": "local[1]"},
        )
        self.mesh = Mesh(plan)
        self._older = older

    async def start(self) -> None:
        """Start the mesh, create the topic of the source, and publish the pipes."""
        for service in MIXED:
            await self.mesh.set_default_release(service, self._older)
        await self.mesh.start()
        await self.mesh.wait_ready(WITHIN_S)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.mesh.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        finally:
            await admin.close()
        topic = {"kind": "kafka", "bootstrap": self.mesh.bootstrap, "topic": TOPIC}
        files = {"kind": "objects", "format": "ndjson", "interval": "500ms", **self._polled.declared()}
        pipes = [self._pipe(FROM_TOPIC, topic), self._pipe(FROM_FILES, files)]
        await put_in_force(self.mesh.bootstrap, self.mesh.topics, pipes, variables=dict(os.environ))

    def _pipe(self, name: str, source: dict[str, Any]) -> Pipe:
        table = {
            "warehouse": str(self._folder / "lake"),
            "table": f"shop.{name.replace('-', '_')}",
            "columns": {"n": "bigint"},
        }
        lake = {"name": "lake", "kind": "iceberg", "settings": table}
        return Pipe.model_validate({"pipe": name, "source": source, "destinations": [lake]})

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Put records and files while the block runs."""
        self._load = asyncio.create_task(self._put())
        try:
            yield
        finally:
            self._ends.set()
            await self._load

    async def _put(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.mesh.bootstrap, acks="all", enable_idempotence=True
        )
        await producer.start()
        try:
            while not self._ends.is_set():
                second = len(self.put[FROM_FILES]) // LINES_PER_FILE
                numbers = range(second * RECORDS_PER_S, (second + 1) * RECORDS_PER_S)
                for number in numbers:
                    self.put[FROM_TOPIC].append(number)
                    await producer.send(TOPIC, b'{"n":%d}' % number, key=b"key-%d" % (number % 50))
                lines = range(second * LINES_PER_FILE, (second + 1) * LINES_PER_FILE)
                self._polled.put(f"{second:06}.ndjson", b"".join(b'{"n":%d}\n' % line for line in lines))
                self.put[FROM_FILES] += lines
                await asyncio.sleep(1)
        finally:
            await producer.stop()

    async def arrived(self) -> dict[str, Counter[int]]:
        """Name of a pipe to how often the table has each number."""
        tables = {name: f"shop.{name.replace('-', '_')}" for name in self.put}
        return {
            name: Counter(row["n"] for row in await in_lake(self._folder / "lake", table, ("n",)))
            for name, table in tables.items()
        }

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for a condition; the load has to go on meanwhile."""
        async with asyncio.timeout(WITHIN_S):
            while not await condition():
                assert self._load is not None
                if self._load.done():
                    await self._load
                    pytest.fail("the load ended too early")
                await asyncio.sleep(0.5)

    async def until_new_rows(self) -> None:
        """Wait until each table has a row that is put from now on."""
        put_counts = {name: len(numbers) for name, numbers in self.put.items()}

        async def arrive() -> bool:
            arrived = await self.arrived()
            return all(max(arrived[name], default=-1) >= count for name, count in put_counts.items())

        await self.until(arrive)

    async def change(self, names: Sequence[str], release: str) -> None:
        """Replace or add instances one after the other; the next begins when all are ready."""
        for name in names:
            await self.mesh.set_release(name, release, "a test of an upgrade")
            await self.mesh.wait_ready(WITHIN_S)

    async def collected(self, name: str, pipe: str) -> float:
        """Events of a pipe that an instance of collect has written, from its metrics."""
        port = next(instance.spec.port for instance in self.mesh.all() if instance.name == name)
        _, page = await get(port, "/metrics", timeout_s=10)
        return sum(
            float(sample.split()[-1])
            for sample in page.decode().splitlines()
            if sample.startswith("hifi_collect_events_total{") and f'pipe="{pipe}"' in sample
        )

    async def collect_releases(self) -> set[str]:
        """The releases of collect that wrote events, as its reports tell; empty text: one before 0.1.0rc2."""
        reports = [orjson.loads(record.value) for record in await self.records(self.mesh.topics.accepted)]
        return {
            report.get("release", "")
            for report in reports
            if report["service"] == "collect" and report["pipes"]
        }

    async def lake_releases(self) -> set[str]:
        """The releases that wrote rows, as receipts tell; empty text: one before 0.1.0rc2."""
        receipts = [fields(record.headers) for record in await self.records(self.mesh.topics.receipts)]
        return {
            receipt.get(RELEASE, b"").decode() for receipt in receipts if receipt[OUTCOME] == b"delivered"
        }

    async def records(self, topic: str) -> list[Any]:
        """All records of a topic of the stream."""
        async with AIOKafkaConsumer(
            bootstrap_servers=self.mesh.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            consumer.assign(tps)
            end_offsets = await consumer.end_offsets(tps)
            records: list[Any] = []
            for tp in tps:
                while await consumer.position(tp) < end_offsets[tp]:
                    for batch in (await consumer.getmany(tp, timeout_ms=500)).values():
                        records += batch
            return records


@pytest.mark.more
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("write", [write_release_before, write_release_after])
async def test_collect_and_lake_of_two_releases_write_every_row_once_side_by_side_and_there_and_back(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    neighbour = str(tmp_path / "neighbour")
    write(Path(neighbour))
    older, newer = (neighbour, INSTALLED) if write is write_release_before else (INSTALLED, neighbour)
    releases = {VERSION, "" if write is write_release_before else AFTER}
    sourced = SourcedMesh(tmp_path, older)
    mesh = sourced.mesh
    mesh.prepare()

    async def both_read_the_topic() -> bool:
        return all([await sourced.collected(name, FROM_TOPIC) for name in ("collect-1", "collect-2")])

    async def newer_reads_the_files() -> bool:
        return await sourced.collected("collect-2", FROM_FILES) > 0

    async def both_wrote_events_and_rows() -> bool:
        return releases == await sourced.collect_releases() == await sourced.lake_releases()

    try:
        await sourced.start()
        async with sourced.load():
            await sourced.until_new_rows()
            await sourced.change(("collect-2", "lake-2"), newer)
            await sourced.until(both_read_the_topic)
            for name in ("collect-1", "lake-1"):  # the newer one takes over what only one does
                await processes(mesh)[name].kill()
            await sourced.until(newer_reads_the_files)
            await sourced.until(both_wrote_events_and_rows)
            await sourced.change(("collect-1", "lake-1"), newer)
            await sourced.until_new_rows()
            await sourced.change(("lake-1", "collect-1"), older)
            for name in ("lake-2", "collect-2"):  # the older one takes over
                await mesh.remove(name, "a test of the way back")
            await sourced.until_new_rows()
        expected = {name: Counter(numbers) for name, numbers in sourced.put.items()}
        async with asyncio.timeout(WITHIN_S):
            while any(expected[name] - rows for name, rows in (await sourced.arrived()).items()):
                await asyncio.sleep(1)
        assert await sourced.records(mesh.topics.dead_letter) == []
        await mesh.stop()
    finally:
        await mesh.kill()
    assert await sourced.arrived() == expected, "a row was lost or written twice"
