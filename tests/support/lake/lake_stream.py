"""A stream with records of `enriched`, the service lake as a process, and its tables."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from aiokafka.admin import NewTopic
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError
from tests.support.service_process import ServiceProcess
from tests.support.stream_process import PARTITIONS, create_stream, read_all

from hifi.kafka.clients import started_admin
from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.pipe.revision import pipe_record
from hifi.record.fields import fields
from hifi.record.headers import OUTCOME
from hifi.record.hop import write_enriched_hop
from hifi.record.identity import identity, identity_prefix, identity_stem, write_identity
from hifi.record.record import Record
from hifi.runtime.clock import now_us

WITHIN_S = 300
EPOCH = 0x1234


class LakeStream:
    """A stream with one pipe `p` that has the destination `lake`."""

    def __init__(self, kafka: str, folder: Path, warehouse: Path | None = None, **settings: Any) -> None:
        """Settings of the destination, beside warehouse and table."""
        self.kafka = kafka
        self.folder = folder
        self.warehouse = warehouse or folder / "warehouse"
        self.settings = {"warehouse": str(self.warehouse), "table": "shop.orders"} | settings
        self.log = folder / "log"
        self._raw = Counter[int]()
        self._revision = 1
        self._service = ServiceProcess(self.log)

    async def create(self, fields: Mapping[str, str]) -> "LakeStream":
        """Create topics and pipe."""
        self.topics = Topics(await create_stream(self.kafka))
        await self.declare(fields)
        return self

    async def declare(self, fields: Mapping[str, str]) -> None:
        """Publish the pipe with these fields."""
        await publish(self.kafka, self.topics, [pipe_record(self.pipe(fields), self._revision)])
        self._revision += 1

    def pipe(self, fields: Mapping[str, str], name: str = "p", **settings: Any) -> Pipe:
        """A pipe with these fields; further settings of its destination."""
        return Pipe.model_validate(
            {
                "pipe": name,
                "source": {"keys": [{"env": "KEY"}]},
                "enrich": {"fields": dict(fields)},
                "destinations": [{"name": "lake", "kind": "iceberg", "settings": self.settings | settings}],
            }
        )

    def record(
        self,
        number: int,
        data: bytes,
        *,
        raw: int | None = None,
        row: int | None = None,
        pipe: str = "p",
        revision_offset: int = 1,
        destination: str = "lake",
        **other_headers: bytes,
    ) -> tuple[int, Record]:
        """An event as enrich writes it, and its partition.

        Args:
            number: identity of the event.
            data: of the event.
            raw: offset in `raw`; default: above that of all before it.
            row: of the table, which decides the partition; default: the same number.
            pipe: name.
            revision_offset: in the topic `pipes`, which the service must have read.
            destination: name.
            other_headers: of the record.
        """
        partition = (number if row is None else row) % PARTITIONS
        if raw is None:
            raw = self._raw[partition]
            self._raw[partition] += 1
        stem = identity_stem(
            identity_prefix(pipe, 1, revision_offset, now_us()), now_us() // 60_000_000, EPOCH
        )
        hop = write_enriched_hop(now_us(), raw, destination.encode())
        headers = [write_identity(stem, number), hop, ("ce_id", b"%d" % number), *other_headers.items()]
        return partition, Record(b"k%d" % number, data, headers)

    async def enrich(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records to `enriched`."""
        producer = Producer(self.kafka, "test")
        await producer.start()
        try:
            for partition in range(PARTITIONS):
                partition_records = [record for number, record in records if number == partition]
                if partition_records:
                    await producer.send_and_wait(self.topics.enriched, partition, partition_records)
        finally:
            await producer.stop()

    async def make_enriched_again(self) -> None:
        """Delete the topic `enriched`, and create it as soon as it is gone."""
        async with started_admin(self.kafka, "test") as admin:
            await admin.delete_topics([self.topics.enriched])
            new_topic = NewTopic(self.topics.enriched, PARTITIONS, 1)
            while (await admin.create_topics([new_topic])).topic_errors[0][1]:
                await asyncio.sleep(0.1)

    def start(self, kill_at: str | None = None, **settings: object) -> None:
        """Start the service; `kill_at`: where it kills itself once, see `killed_lake`."""
        names = {
            "lake_interval_s": 0.5,
            "lake_master": "local[1]",
            "session_timeout_s": 6,
        } | settings
        program: list[object] = ["-m", "hifi_lake"]
        if kill_at is not None:
            killed_lake = Path(__file__).parents[1] / "programs" / "killed_lake.py"
            program = [killed_lake, kill_at, self.folder / "killed"]
        self._service.start(program, self.kafka, self.topics.stream, **names)

    async def killed(self) -> None:
        """Wait until the process has killed itself."""
        await self._service.killed()

    def stop(self) -> None:
        """End the process in order."""
        self._service.stop()

    def ready(self) -> tuple[int, dict[str, Any]]:
        """Status and body of /readyz."""
        return self._service.ready()

    def table(self) -> Table:
        """The table as it is now."""
        if not (self.warehouse / "catalog.db").exists():
            raise NoSuchTableError("there is no catalog yet")
        catalog = SqlCatalog(
            "hifi", uri=f"sqlite:///{self.warehouse}/catalog.db", warehouse=self.warehouse.as_uri()
        )
        return catalog.load_table(str(self.settings["table"]))

    def rows(self) -> pa.Table:
        """All rows of the table, as pyiceberg reads them; none while there is no table."""
        try:
            return self.table().scan().to_arrow()
        except (NoSuchTableError, OperationalError):
            return pa.table({"id": []})

    async def until(self, condition: Callable[[pa.Table], bool]) -> pa.Table:
        """The rows of the table once they meet a condition."""
        end_s = time.monotonic() + WITHIN_S
        while not condition(rows := self.rows()):
            assert time.monotonic() < end_s, f"{rows.to_pylist()[:20]}\n{self.log.read_text()[-6000:]}"
            self._service.require_running()
            await asyncio.sleep(0.2)
        return rows

    async def receipts(self) -> Counter[tuple[int, str]]:
        """How many receipts there are by number of the event and outcome."""
        counts = Counter[tuple[int, str]]()
        for record in await read_all(self.kafka, self.topics.receipts):
            receipt_fields = fields(record.headers)
            number = int(identity(record.headers).seq.rpartition(b":")[2])
            counts[number, receipt_fields[OUTCOME].decode()] += 1
        return counts

    async def until_receipts(self, count: int) -> Counter[tuple[int, str]]:
        """Wait for `count` receipts; returns all of them."""
        end_s = time.monotonic() + WITHIN_S
        while (counts := await self.receipts()).total() < count:
            assert time.monotonic() < end_s, f"{counts}\n{self.log.read_text()[-6000:]}"
            await asyncio.sleep(0.3)
        return counts

    async def until_caught_up(self) -> None:
        """Wait until the group has committed everything in `enriched`."""
        group = GroupOffsets(self.kafka, "test", self.topics.group("lake"), self.topics.enriched, PARTITIONS)
        end_s = time.monotonic() + WITHIN_S
        async with group:
            while (start := await group.start()).offsets != await group.end():
                assert time.monotonic() < end_s, f"{start}\n{self.log.read_text()[-6000:]}"
                await asyncio.sleep(0.3)

    def log_lines(self) -> list[str]:
        """The log of the service so far."""
        return self.log.read_text().splitlines()

    def unreferenced_files(self) -> list[str]:
        """Data files that no snapshot of the table refers to."""
        table = self.table()
        referenced = set(table.inspect.all_files()["file_path"].to_pylist())
        urls = (f"file://{path}" for path in (self.warehouse / "shop/orders/data").rglob("*.parquet"))
        return [url for url in urls if url not in referenced]


def order(number: int, total: float) -> bytes:
    """Data of an event."""
    return orjson.dumps({"id": number, "total": total, "extra": "not a column"})
