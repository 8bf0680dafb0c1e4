"""Each client that connects for a pipe reaches what is allowed for that pipe, and not what is allowed for another one.

Both pipes are served by one process, the allowed one first, so that nothing which it leaves behind helps the other.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from aiokafka.conn import AIOKafkaConnection
from pydantic import TypeAdapter
from tests.support.bound_names import NAME, BoundName

from hifi.avro.registry_client import RegistryAccess, RegistryClient
from hifi.delivery.kind import WriterContext
from hifi.delivery.sender import SenderContext
from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.model import Lookup
from hifi.pipe.owner import Owner
from hifi.runtime.health import Health
from hifi.spark.lookup_reader import read_rows
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.kept_keys import KeptKeys
from hifi_debezium.source.slot import drop_slot
from hifi_http.declaration import HttpDestination, HttpOauth
from hifi_http.destination import shared
from hifi_http.destination.access_token import fetch_token
from hifi_http.destination.name_resolver import NameResolver
from hifi_http.destination.sender import RequestSender
from hifi_iceberg.destination.restricted_catalog import RestrictedRestCatalog, WarehouseFileIO
from hifi_kafka.declaration import KafkaDestinationSettings, KafkaSource
from hifi_kafka.destination.avro_values import AvroValues
from hifi_kafka.destination.positions import PositionReader
from hifi_kafka.destination.topic_limit import TopicLimit
from hifi_kafka.source.avro_records import AvroRecords
from hifi_objects.bucket import open_bucket
from hifi_objects.declaration import S3Settings
from hifi_objects.destination.s3_store import BucketStore
from hifi_objects.source.bucket import ReadableBucket
from hifi_objects.source.listing import list_bucket
from hifi_observe.alarms.alarm import Alarms
from hifi_observe.alarms.owner_notifier import OwnerNotifier
from hifi_observe.settings import ObserveSettings
from hifi_postgres.declaration import PostgresSettings, SqlSource
from hifi_postgres.destination.writer import PostgresWriter
from hifi_postgres.source.rows import postgres_rows

ALLOWED: Final = "shop-orders"
ANSWER: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Server:
    """Answers the first bytes of each connection with 404, and closes it.

    Attributes:
        port: on loopback.
    """

    def __init__(self) -> None:
        self._accepted = self._asked = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self._accepted += 1
                threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def connections(self) -> int:
        """How many clients have connected until now; one more connection is accepted after all of theirs."""
        self._asked += 1
        with socket.create_connection(("127.0.0.1", self.port)) as last:
            last.sendall(b"?")
            assert last.recv(65536)
        return self._accepted - self._asked

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if connection.recv(65536):
                connection.sendall(ANSWER)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.socket.close()


class Files(NamedTuple):
    """The folder of secrets."""

    password: Path


def _url(port: int) -> str:
    return f"http://{NAME}:{port}"


def _s3(port: int) -> S3Settings:
    key = {"env": "KEY"}
    return S3Settings.model_validate(
        {"bucket": "b", "endpoint": _url(port), "access_key": key, "secret_key": key}
    )


def _debezium(port: int, files: Files) -> DebeziumSource:
    database = {"host": NAME, "port": port, "name": "d", "user": "u", "password_file": str(files.password)}
    return DebeziumSource.model_validate(
        {
            "kind": "debezium",
            "connect": _url(port),
            "bootstrap": f"{NAME}:{port}",
            "topic": "t",
            "database": database,
            "tables": ["public.t"],
        }
    )


def _kafka(port: int) -> KafkaDestinationSettings:
    registry = {"registry": {"url": _url(port)}, "schema": "newest"}
    return KafkaDestinationSettings.model_validate(
        {"bootstrap": f"{NAME}:{port}", "topic": "t", "format": "avro", "avro": registry}
    )


async def _connected(declared: HttpDestination, pipe: str) -> None:
    sender = RequestSender(declared, SenderContext(pipe, Health("egest", "i"), 60, lambda: None))
    try:
        await sender._pool.connect(60)
    finally:
        await sender.stop()


async def http_destination(pipe: str, port: int, _: Files) -> None:
    destination = HttpDestination.model_validate({"name": "d", "url": _url(port)})
    await _connected(destination, pipe)


async def http_proxy(pipe: str, port: int, _: Files) -> None:
    destination = HttpDestination.model_validate(
        {"name": "d", "url": "http://8.8.8.8/", "proxy": {"url": _url(port)}}
    )
    await _connected(destination, pipe)


async def http_token(pipe: str, port: int, _: Files) -> None:
    declared = {"token_url": f"{_url(port)}/", "client_id": "c", "client_secret": {"env": "KEY"}}
    await fetch_token(pipe, HttpOauth.model_validate(declared), "secret")


async def broker(pipe: str, port: int, _: Files) -> None:
    options = client_options(f"{NAME}:{port}", KafkaSecurity(), pipe)
    connection = AIOKafkaConnection(NAME, port, security_protocol=options["security_protocol"])
    await connection.connect()
    connection.close()


async def kafka_source(pipe: str, port: int, _: Files) -> None:
    await topic_identity(f"{NAME}:{port}", "t", KafkaSecurity(), pipe)


async def kafka_destination(pipe: str, port: int, _: Files) -> None:
    await PositionReader(_kafka(port), pipe).require_topic()


async def kafka_limit(pipe: str, port: int, _: Files) -> None:
    await TopicLimit(_kafka(port), pipe).lower(1)


async def kafka_token(pipe: str, port: int, files: Files) -> None:
    security = KafkaSecurity(
        protocol="SASL_PLAINTEXT",
        mechanism="OAUTHBEARER",
        user="u",
        password_file=files.password,
        token_url=f"{_url(port)}/",
    )
    await client_options("a:1", security, pipe)["sasl_oauth_token_provider"].token()


async def registry(pipe: str, port: int, _: Files) -> None:
    await RegistryClient(RegistryAccess(_url(port), pipe=pipe)).newest("s")


async def registry_of_destination(pipe: str, port: int, _: Files) -> None:
    settings = _kafka(port)
    assert settings.avro is not None
    await AvroValues(settings.avro, "t", pipe).ready()


async def registry_of_source(pipe: str, port: int, _: Files) -> None:
    declared = {"kind": "kafka", "bootstrap": "a:1", "topic": "t", "format": "avro"}
    source = KafkaSource.model_validate(declared | {"registry": {"url": _url(port)}})
    await AvroRecords(source, 1000, pipe)._schemas.load([1])


async def bucket(pipe: str, port: int, _: Files) -> None:
    await open_bucket(_s3(port), 60, pipe).get_async("key")


async def bucket_listing(pipe: str, port: int, _: Files) -> None:
    await list_bucket(_s3(port), pipe)


async def bucket_to_write(pipe: str, port: int, _: Files) -> None:
    await BucketStore(_s3(port), 60, pipe).create("key", lambda: b"x")


async def bucket_to_read(pipe: str, port: int, _: Files) -> None:
    await ReadableBucket(_s3(port), pipe, None).listed()


async def catalog(pipe: str, port: int, _: Files) -> None:
    await asyncio.to_thread(RestrictedRestCatalog, pipe, _url(port), "s3://b/w", {})


async def catalog_token(pipe: str, port: int, _: Files) -> None:
    properties = {"oauth2-server-uri": f"{_url(port)}/tokens", "credential": "a:b"}
    await asyncio.to_thread(RestrictedRestCatalog, pipe, "http://8.8.8.8", "s3://b/w", properties)


async def warehouse(pipe: str, port: int, _: Files) -> None:
    keys = {"s3.region": "eu", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    properties = {"warehouse": "s3://b/w", "s3.endpoint": _url(port), **keys}
    files = WarehouseFileIO(properties, pipe)
    await asyncio.to_thread(files.new_input("s3://b/w/data").exists)


async def postgres_destination(pipe: str, port: int, _: Files) -> None:
    declared = {"url": {"env": "DATABASE"}, "table": "t", "columns": {"id": "id"}, "key": ["id"]}
    settings = PostgresSettings.model_validate(declared)
    await PostgresWriter(settings, WriterContext("s", pipe, "d", 1, 60))._connect()


async def sql_source(pipe: str, port: int, _: Files) -> None:
    database = {"host": NAME, "port": port, "name": "d", "user": "u"}
    source = SqlSource.model_validate({"kind": "sql", "database": database, "table": "t", "column": "id"})
    async with postgres_rows(source, "test", 1000, pipe):
        pass


async def lookup(pipe: str, port: int, _: Files) -> None:
    table = {"url": {"env": "LOOKUP"}, "query": "select 1 as code, 2 as name"}
    lookup = Lookup.model_validate({"sql": table, "key": {"a": "code"}, "fields": {"b": "name"}})
    await asyncio.to_thread(read_rows, lookup, pipe)


async def connect(pipe: str, port: int, files: Files) -> None:
    await Connector("s", pipe, _debezium(port, files))._request("GET", "/connectors")


async def slot(pipe: str, port: int, files: Files) -> None:
    await drop_slot(_debezium(port, files), "slot", pipe)


async def keys_topic(pipe: str, port: int, _: Files) -> None:
    await KeptKeys(f"{NAME}:{port}", "t.keys", KafkaSecurity(), pipe).provide()


async def webhook(pipe: str, port: int, _: Files) -> None:
    async def report_nothing(*_: Any) -> None:
        pass

    owner = TypeAdapter(Owner).validate_python({"webhook": _url(port)})
    notifier = OwnerNotifier(
        ObserveSettings(kafka="127.0.0.1:1", stream="s"), lambda _: owner, report_nothing
    )
    alarms = Alarms()
    alarms.step({("credentials", pipe, "crm"): "401"}, 0)
    [alarm] = alarms.active
    await notifier.step([(alarm, [])])


CLIENTS: Final = {
    http_destination: "http",
    http_proxy: "http",
    http_token: "token",
    broker: "kafka",
    kafka_source: "kafka",
    kafka_destination: "kafka",
    kafka_limit: "kafka",
    keys_topic: "kafka",
    kafka_token: "token",
    registry: "registry",
    registry_of_destination: "registry",
    registry_of_source: "registry",
    bucket: "s3",
    bucket_listing: "s3",
    bucket_to_write: "s3",
    bucket_to_read: "s3",
    catalog: "catalog",
    catalog_token: "token",
    warehouse: "s3",
    postgres_destination: "database",
    sql_source: "database",
    lookup: "database",
    slot: "database",
    connect: "connect",
    webhook: "notice",
}


@pytest.mark.slow
@pytest.mark.parametrize(("client", "kind"), CLIENTS.items(), ids=[client.__name__ for client in CLIENTS])
async def test_each_client_reaches_what_its_pipe_may_reach_only(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    server: Server,
    client: Callable[[str, int, Files], Awaitable[None]],
    kind: str,
) -> None:
    BoundName(monkeypatch)
    files = Files(tmp_path / "password")
    files.password.write_text("secret")
    monkeypatch.setenv("KEY", "key")
    monkeypatch.setenv("DATABASE", f"postgresql://u:p@{NAME}:{server.port}/d")
    monkeypatch.setenv("LOOKUP", f"postgresql+psycopg://u:p@{NAME}:{server.port}/d")

    async def reached(pipe: str) -> bool:
        connections_before = server.connections()
        with suppress(Exception):  # the server speaks no protocol of theirs
            await client(pipe, server.port, files)
        return server.connections() > connections_before

    monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"shop-*={kind}=127.0.0.1:{server.port}")
    process_client = shared.SharedClient(ssl.create_default_context(), NameResolver(socket.getaddrinfo))
    shared._OF_LOOP[asyncio.get_running_loop()] = process_client
    assert [await reached(pipe) for pipe in (ALLOWED, "shop", "crm", ALLOWED)] == [True, False, False, True]
