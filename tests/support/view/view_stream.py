"""A stream whose topics the test writes and whose groups it commits, as normalize and enrich do, and view on it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.support.egest.egest_stream import EgestStream, until
from tests.support.stream_process import free_port, readyz
from tests.support.view.row_records import headers

from hifi.control.releases.desired_release import INSTALLED
from hifi.pipe.model import Pipe
from hifi.record.cloudevents.timestamps import format_us
from hifi.record.headers import Headers
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.service import Service
from hifi_infra.mesh.release import release_environment
from hifi_view.__main__ import view
from hifi_view.settings import ViewSettings

_COMPLETE_WITHIN_S = 120
KEY = "read-key"
OTHER_KEY = "another-key"
PIPE = {
    "pipe": "flights",
    "source": {"keys": [{"sha256": "0" * 64}], "formats": ["json"], "partition_key": "flight"},
    "destinations": [{"name": "d", "url": "http://127.0.0.1:9/d"}],
}
VIEW = """
view: flights-now
from: {pipe: flights}
key: [flight]
fields: {carrier: text, delay: int, cancelled: bool, speed: double}
keep: 24h
serve: {keys: [{env: TEST_VIEW_KEY}], sql: true}
"""
OTHER_VIEW = """
view: late
from: {pipe: flights}
order: time
key: [carrier, delay]
fields: {delay: int, note: text}
serve: {keys: [{env: TEST_OTHER_VIEW_KEY}]}
"""


class ViewStream(EgestStream):
    """Writes events with the same offsets on `raw`, `normalized` and `enriched`, unless told otherwise."""

    def __init__(self, kafka: str, partitions: int = 2) -> None:
        super().__init__(kafka, partitions)
        self.next_raw = [0] * partitions

    async def create(self) -> None:
        await super().create()
        await self.publish(Pipe.model_validate(PIPE))

    async def events(
        self,
        *events: Mapping[str, Any] | bytes | None,
        partition: int = 0,
        accepted_us: int | None = None,
        **header_fields: Any,
    ) -> None:
        """Accept events, and bring them to `enriched`, committed."""
        await self.put(*events, partition=partition, accepted_us=accepted_us, **header_fields)
        await self.commit()

    async def put(
        self,
        *events: Mapping[str, Any] | bytes | None,
        partition: int = 0,
        accepted_us: int | None = None,
        **header_fields: Any,
    ) -> None:
        """Accept events, and bring them to `enriched`, not committed."""
        records = []
        for event in events:
            value = orjson.dumps(event) if isinstance(event, Mapping) else event
            record_headers = headers(
                self.next_raw[partition],
                accepted_us=now_us() if accepted_us is None else accepted_us,
                **header_fields,
            )
            records.append(Record(b"k", value, record_headers))
            self.next_raw[partition] += 1
        for topic in (self.topics.raw, self.topics.normalized, self.topics.enriched):
            await self.producer.send_and_wait(topic, partition, records)

    async def accept(self, *events: Mapping[str, Any], partition: int = 0) -> None:
        """Write events to `raw` only, as ingest does."""
        records = []
        for event in events:
            number = self.next_raw[partition]
            attributes: Headers = [
                ("ce_specversion", b"1.0"),
                ("ce_id", b"%d" % number),
                ("ce_source", b"/test"),
                ("ce_type", b"made"),
                ("content-type", b"application/json"),
            ]
            record_headers = headers(
                number, accepted_us=now_us(), other_headers=attributes, revision_offset=self.version
            )
            records.append(Record(b"k%d" % number, orjson.dumps(event), record_headers))
            self.next_raw[partition] += 1
        await self.producer.send_and_wait(self.topics.raw, partition, records)

    async def commit(self, only_service: str | None = None) -> None:
        """Commit what is in the topics, as the services do: normalize first."""
        for service, topic in (("normalize", self.topics.raw), ("enrich", self.topics.normalized)):
            if only_service not in (None, service):
                continue
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.kafka, group_id=self.topics.group(service), enable_auto_commit=False
            )
            await consumer.start()
            try:
                tps = [TopicPartition(topic, number) for number in range(self.partitions)]
                consumer.assign(tps)
                await consumer.commit(await consumer.end_offsets(tps))
            finally:
                await consumer.stop()


class ViewClient:
    """Asks a view over HTTP."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._session = session

    async def ask(
        self, path: str, key: str | None = KEY, *, method: str = "GET", **options: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, body and headers of an answer."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with self._session.request(
            method, f"{self.url}{path}", headers=headers | options.pop("headers", {}), **options
        ) as answer:
            body = await answer.read()
            return answer.status, orjson.loads(body) if body else None, answer.headers

    async def ask_status(self, method: str, path: str) -> int:
        """Status of an answer whose body is no JSON."""
        async with self._session.request(
            method, self.url + path, headers={"authorization": f"Bearer {KEY}"}
        ) as answer:
            return answer.status

    async def sql(self, sql: str, view: str = "flights-now") -> tuple[int, Any]:
        status, body, _ = await self.ask(f"/v1/views/{view}/sql", method="POST", json={"sql": sql})
        return status, body

    async def rows(self, path: str = "flights-now", **parameters: str) -> list[dict[str, Any]]:
        """All rows, once everything that is accepted now is in the view."""
        now_text = format_us(now_us()).decode()
        status, body = 503, dict[str, Any]()
        async with asyncio.timeout(_COMPLETE_WITHIN_S):
            while status == 503:  # it is not complete until then yet; an answer waits some seconds for that
                status, body, _ = await self.ask(
                    f"/v1/views/{path}/rows", params={"at_least": now_text, "limit": "10000", **parameters}
                )
        assert status == 200, body
        rows: list[dict[str, Any]] = body["rows"]
        return rows


@contextlib.asynccontextmanager
async def viewing(
    stream: ViewStream, folder: Path, declared: str = VIEW, *, ready: bool = True, **changes: Any
) -> AsyncIterator[tuple[ViewClient, Service]]:
    """view on a stream, in this process, while the block runs."""
    declarations = folder / "pipes"
    declarations.mkdir(exist_ok=True)
    for number, text in enumerate(declared.split("---")):
        (declarations / f"{number}.yaml").write_text(text)
    port = free_port()
    declared_settings = ViewSettings(
        **{
            "kafka": stream.kafka,
            "stream": stream.topics.stream,
            "view_declarations": declarations,
            "view_data": folder / "views",
            "view_port": port,
            "view_complete_interval_s": 0.05,
            **changes,
        }
    )
    service = Service("view", declared_settings)
    task = asyncio.create_task(view(service, declared_settings))
    await asyncio.sleep(0)
    await until(lambda: task.done() or (service.health.ready if ready else service.health.state == "running"))
    try:
        async with aiohttp.ClientSession() as session:
            yield ViewClient(port, session), service
    finally:
        service.stop()
        async with asyncio.timeout(20):
            await task


class ViewProcess:
    """view as a process, of a release."""

    def __init__(self, stream: ViewStream, folder: Path, log: Path, release: str = INSTALLED) -> None:
        self.admin, self.port = free_port(), free_port()
        self._log = log
        variables = {
            "HIFI_KAFKA": stream.kafka,
            "HIFI_STREAM": stream.topics.stream,
            "HIFI_PORT": str(self.admin),
            "HIFI_LOG_FORMAT": "json",
            "HIFI_VIEW_PORT": str(self.port),
            "HIFI_VIEW_DECLARATIONS": str(folder / "pipes"),
            "HIFI_VIEW_DATA": str(folder / "views"),
            "HIFI_VIEW_COMPLETE_INTERVAL_S": "0.05",
        }
        self._environment = release_environment(release, os.environ | variables)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("hifi-view")],
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)


@contextlib.asynccontextmanager
async def viewing_process(process: ViewProcess) -> AsyncIterator[ViewClient]:
    """Ask a process once it is ready."""
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(readyz, process.admin))[0] != 200:
            await asyncio.sleep(0.05)
    async with aiohttp.ClientSession() as session:
        yield ViewClient(process.port, session)


def summed(ranges: list[dict[str, Any]]) -> dict[str, int]:
    """The account of all ranges, each of which must be balanced."""
    totals: dict[str, int] = defaultdict(int)
    for range_counts in ranges:
        outcomes = ("other", "no_data", "applied", "older", "expired", "refused")
        assert range_counts["read"] == sum(range_counts[name] for name in outcomes), range_counts
        assert (
            range_counts["read"] + range_counts["absent"] == range_counts["next"] - range_counts["first"]
        ), range_counts
        for name in ("read", "absent", "unfit", *outcomes):
            totals[name] += range_counts[name]
    return dict(totals)
