"""Speed of the service lake, beside Spark's Parquet writer with `add_files` alone (`bench/peers/bare/spark_lake.py`).

`python bench/lake.py [ROUNDS]` prints the rates of each round and the median of their ratios, and fails below 0.7.
Both read the same records of `enriched`, one after the other, in batches of the same size. The rate is that between
the first and the last commit, by the times of the snapshots.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop
from enriched_events import write_enriched
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi_infra.java.jdk import find_java
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh.plan import InstanceSpec, Plan, command, environment
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

ROOT: Final = Path(__file__).parent.parent
PARTITIONS: Final = 4
EVENTS: Final = 800_000
BATCH: Final = 100_000
LIMIT_S: Final = 300.0
GOAL: Final = 0.7


def pipe(warehouse: Path) -> Pipe:
    """The pipe of the events."""
    settings = {"warehouse": str(warehouse), "table": "bench.orders"}
    return Pipe.model_validate(
        {
            "pipe": "orders",
            "source": {"keys": [{"sha256": "0" * 64}]},
            "enrich": {"fields": {"id": "int", "total": "double", "note": "string"}},
            "destinations": [{"name": "lake", "kind": "iceberg", "settings": settings}],
        }
    )


async def rate(warehouse: Path, program: list[str], env: dict[str, str], log: Path) -> float:
    """Run a program until all events are in the table; rows a second between its first and its last commit."""
    process = Process("lake", program, env=env, log=log)
    await process.start()
    try:
        until_s = time.monotonic() + LIMIT_S
        while (table := _table(warehouse)) is None or _rows(table) < EVENTS:
            if time.monotonic() > until_s:
                raise TimeoutError(f"not all events are in the table after {LIMIT_S:g} s: {log}")
            await asyncio.sleep(1)
    finally:
        await process.stop()
    commits = [snapshot for snapshot in table.snapshots() if _added(snapshot)]
    first_commit, last_commit = commits[0], commits[-1]
    return (EVENTS - _added(first_commit)) / ((last_commit.timestamp_ms - first_commit.timestamp_ms) / 1000)


def _table(warehouse: Path) -> Table | None:
    try:
        catalog = SqlCatalog("hifi", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri())
        return catalog.load_table("bench.orders")
    except (NoSuchTableError, OperationalError):
        return None


def _rows(table: Table) -> int:
    return sum(_added(snapshot) for snapshot in table.snapshots())


def _added(snapshot: Snapshot) -> int:
    return int(snapshot.summary.additional_properties.get("added-records", 0)) if snapshot.summary else 0


async def measure(rounds: int) -> list[float]:
    """The ratio of each round: the rate of lake over that of Spark and `add_files` alone."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="hifi-bench-lake-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        cluster = KafkaCluster(folder / "kafka")
        await cluster.start()
        try:
            for number in range(1, rounds + 1):
                lake_rate, bare_rate = await _round(folder / str(number), cluster.bootstrap, f"bench{number}")
                ratios.append(lake_rate / bare_rate)
                print(
                    f"round {number}: lake {lake_rate:,.0f} events/s, Spark and add_files alone {bare_rate:,.0f} "
                    f"events/s, ratio {ratios[-1]:.2f}",
                    flush=True,
                )
        finally:
            await cluster.kill()
    return ratios


async def _round(folder: Path, kafka: str, stream: str) -> tuple[float, float]:
    """The rates of lake, and of Spark and `add_files` alone, with the events of a new stream."""
    topics = Topics(stream)
    await prepare(kafka, topics, PARTITIONS)
    await put_in_force(kafka, topics, [pipe(folder / "lake")])
    await write_enriched(kafka, topics, EVENTS, PARTITIONS, "lake")
    java = find_java().home
    settings = {"HIFI_LAKE_MAX_OFFSETS_PER_COMMIT": str(BATCH), "HIFI_LAKE_INTERVAL_S": "0.1"}
    env = environment(
        Plan(folder, stream=stream, env=settings), InstanceSpec("lake", 1, free_port()), kafka, java
    )
    bare_command = [sys.executable, str(ROOT / "bench/peers/bare/spark_lake.py"), kafka, topics.enriched]
    return (
        await rate(folder / "lake", command("lake"), env, folder / "lake.log"),
        await rate(
            folder / "bare", [*bare_command, str(folder / "bare"), str(BATCH)], env, folder / "bare.log"
        ),
    )


def main(rounds: str = "3") -> None:
    """Print the result; exit with 1 if the median ratio is below the goal."""
    ratios = uvloop.run(measure(int(rounds)))
    median = statistics.median(ratios)
    print(f"median ratio {median:.2f}, goal {GOAL}")
    if median < GOAL:
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
