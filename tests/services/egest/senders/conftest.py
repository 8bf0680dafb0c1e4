"""The kinds of destinations that the contract suite runs on, each of them real."""

import asyncio
import sys
import tomllib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "retrier"))

from event_logs import KeyedTopic, Webhook
from fake_destination import destination
from kind_tables import PostgresTable, SqliteTable
from object_stores import ObjectBucket, ObjectFolder
from postgres_server import PROGRAMS, PostgresServer
from s3_server import ACCESS_KEY, PROGRAM, SECRET_KEY, S3Server

from hifi_infra.kafka.cluster import KafkaCluster

ROOT = Path(__file__).parents[4]
SQLITE = ROOT / "examples/destinations/sqlite"


@pytest.fixture
def sqlite_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of the example, as if it were installed; returns the folder of the installed metadata."""
    project = tomllib.loads((SQLITE / "pyproject.toml").read_text("utf-8"))["project"]
    site = tmp_path / "site"
    metadata = site / f"sqlite_destination-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(SQLITE))
    return site


@pytest.fixture
async def http() -> AsyncIterator[Webhook]:
    async with destination() as server:
        yield Webhook(server)


@pytest.fixture(scope="session")
def destination_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A Kafka of this session that may be frozen."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("destination"))
    with asyncio.Runner() as runner:
        runner.run(cluster.start())
        try:
            yield cluster
        finally:
            runner.run(cluster.kill())


@pytest.fixture
async def kafka_topic(destination_cluster: KafkaCluster) -> KeyedTopic:
    topic = KeyedTopic(destination_cluster, "out." + uuid.uuid4().hex[:12])
    await topic.create()
    return topic


@pytest.fixture
def sqlite(sqlite_kind: Path, tmp_path: Path) -> SqliteTable:
    return SqliteTable(tmp_path)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this session."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresTable:
    monkeypatch.setenv(PostgresTable.VARIABLE, postgres_server.url)
    return PostgresTable(postgres_server.url)


@pytest.fixture
def object_folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path / "objects")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of this session."""
    if not PROGRAM.is_file():
        pytest.skip(f"{PROGRAM} is not installed; `make s3-server` installs it")
    with S3Server() as server:
        yield server


@pytest.fixture
def object_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectBucket:
    monkeypatch.setenv(ObjectBucket.ACCESS, ACCESS_KEY)
    monkeypatch.setenv(ObjectBucket.SECRET, SECRET_KEY)
    return ObjectBucket(s3_server)
