"""Writes events to the sources of a run, one after another, each exactly once, however often it is repeated."""

import asyncio
import io
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp
import fastavro
import obstore
import psycopg
from aiokafka import AIOKafkaProducer
from confluent_kafka.schema_registry import Schema
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store
from tests.chaos.connectors.events import KEYS, Event, as_data, event
from tests.chaos.connectors.systems import PARTITIONS, SCHEMA, Systems
from tests.support.objects.s3_server import BUCKET

OBJECT_S: Final = 1.0
_ANSWER_S: Final = 10.0
_REPEAT_S: Final = 0.5
_AS_LONG_AS_IT_TAKES_MS: Final = 900_000
COLUMNS: Final = "id text, key text, n bigint, amount numeric, text text"
TABLES: Final = (
    f"CREATE TABLE changed ({COLUMNS}, PRIMARY KEY (key))",
    f"CREATE TABLE polled ({COLUMNS}, PRIMARY KEY (n))",
)


class Sources:
    """Writes `rate` events a second to each source until `ended`."""

    def __init__(self, systems: Systems, rate: float) -> None:
        self.ended = False
        self.sent: dict[str, list[Event]] = {}
        """Source to the events that are in it."""
        self.url = ""
        """Of events over HTTP."""
        self._systems = systems
        self._rate = rate

    async def write(self, *names: str) -> None:
        """Write to these sources."""
        async with asyncio.TaskGroup() as writing:
            for name in names:
                writing.create_task(getattr(self, f"_write_{name}")())

    def declared(self, name: str) -> dict[str, Any]:
        """The source as its pipe declares it."""
        systems = self._systems
        database = {
            "host": "127.0.0.1",
            "port": systems.source.port,
            "name": "postgres",
            "user": "postgres",
            "password_file": str(systems.password_file),
        }
        kafka = {"bootstrap": systems.kafka.bootstrap}
        sources: dict[str, dict[str, Any]] = {
            "http": {"keys": [{"env": "CHAOS_KEY"}], "id": "id", "partition_key": "key"},
            "kafka": kafka | {"kind": "kafka", "topic": "in-kafka", "partition_key": "key", "format": "avro"},
            "debezium": kafka
            | {
                "kind": "debezium",
                "topic": "changes",
                "connect": systems.connect.url,
                "database": database,
                "tables": ["public.changed"],
            },
            "sql": {
                "kind": "sql",
                "database": database,
                "table": "polled",
                "column": "n",
                "partition_key": "key",
                "settle": "1s",
                "interval": "500ms",
            },
            "objects": {
                "kind": "objects",
                "s3": systems.bucket("in"),
                "format": "ndjson",
                "partition_key": "key",
                "settle": "0s",
                "interval": "1s",
            },
        }
        declared = sources[name]
        if name == "kafka":
            assert systems.registry is not None
            declared = declared | {"registry": systems.registry.declared}
        return declared

    async def _write_events(self, name: str, write: Callable[[Event], Awaitable[None]]) -> None:
        sent_events = self.sent.setdefault(name, [])
        for n in itertools.count(len(sent_events)):
            if self.ended:
                return
            await write(sent_event := event(name, n))
            sent_events.append(sent_event)
            await asyncio.sleep(1 / self._rate)

    async def _write_http(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        headers = {"Authorization": "Bearer chaos-key", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:

            async def write(event: Event) -> None:
                body = json.dumps(as_data(event))
                while True:
                    try:
                        async with session.post(self.url, data=body) as answer:
                            if answer.status == 202:
                                return
                            assert answer.status == 429 or answer.status >= 500, await answer.text()
                    except (aiohttp.ClientError, TimeoutError, OSError):
                        pass
                    await asyncio.sleep(_REPEAT_S)

            await self._write_events("http", write)

    async def _write_kafka(self) -> None:
        systems = self._systems
        assert systems.registry is not None
        schema = Schema(json.dumps(SCHEMA), "AVRO")
        client = systems.registry.confluent()
        number = await asyncio.to_thread(client.register_schema, "in-kafka-value", schema)
        producer = AIOKafkaProducer(
            bootstrap_servers=systems.kafka.bootstrap,
            enable_idempotence=True,
            request_timeout_ms=_AS_LONG_AS_IT_TAKES_MS,
        )
        async with producer:

            async def write(event: Event) -> None:
                value = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
                value.seek(0, io.SEEK_END)
                fastavro.schemaless_writer(value, SCHEMA, as_data(event))
                # Keys stay in their partitions when the topic grows, so that their order is kept.
                partition = event.n % KEYS % PARTITIONS
                await producer.send_and_wait(
                    "in-kafka", value.getvalue(), event.key.encode(), partition=partition
                )

            await self._write_events("kafka", write)

    async def _write_debezium(self) -> None:
        await self._write_rows(
            "debezium",
            "INSERT INTO changed VALUES (%(id)s, %(key)s, %(n)s, %(amount)s, %(text)s) ON CONFLICT (key) DO UPDATE SET"
            " id = excluded.id, n = excluded.n, amount = excluded.amount, text = excluded.text"
            " WHERE changed.n < excluded.n",
        )

    async def _write_sql(self) -> None:
        await self._write_rows(
            "sql",
            "INSERT INTO polled VALUES (%(id)s, %(key)s, %(n)s, %(amount)s, %(text)s) ON CONFLICT (n) DO NOTHING",
        )

    async def _write_rows(self, name: str, statement: str) -> None:
        url = f"{self._systems.source.url}?connect_timeout=10"
        connection: psycopg.AsyncConnection[Any] | None = None

        async def write(event: Event) -> None:
            nonlocal connection
            while True:
                try:
                    if connection is None or connection.closed:
                        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
                    await connection.execute(statement.encode(), event._asdict())
                except psycopg.OperationalError:
                    await asyncio.sleep(_REPEAT_S)
                else:
                    return

        await self._write_events(name, write)
        if connection is not None:
            await connection.close()

    async def _write_objects(self) -> None:
        store = S3Store(
            BUCKET,
            prefix="in",
            config={
                "endpoint": self._systems.s3_server,
                "region": "us-east-1",
                "access_key_id": self._systems.environment["CHAOS_ACCESS"],
                "secret_access_key": self._systems.environment["CHAOS_SECRET"],
            },
            client_options={"allow_http": True, "timeout": "10s"},
        )
        sent_events = self.sent.setdefault("objects", [])
        numbers = itertools.count()
        for object_number in itertools.count():
            if self.ended:
                return
            rows = [
                event("objects", n) for n in itertools.islice(numbers, max(1, round(self._rate * OBJECT_S)))
            ]
            content = b"".join(json.dumps(as_data(row)).encode() + b"\n" for row in rows)
            while True:
                try:  # an object that is written again would be a new version
                    await obstore.put_async(store, f"{object_number:06}.ndjson", content, mode="create")
                except AlreadyExistsError:
                    break
                except (BaseError, OSError):
                    await asyncio.sleep(_REPEAT_S)
                else:
                    break
            sent_events += rows
            await asyncio.sleep(OBJECT_S)
