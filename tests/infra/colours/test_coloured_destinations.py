"""Two real meshes write to every kind of connector: each event arrives once, and the last value of a key stands."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psycopg
import pytest
from tests.conftest import MakeTopic
from tests.support.colours.coloured_meshes import coloured_meshes, operations_of, until
from tests.support.written_events import Rows, in_folder, in_lake, in_table, in_topic

from hifi.control.action import ActionKind
from hifi.delivery.colours import WHOLE_SHARE
from hifi_infra.postgres.server import PostgresServer

UPDATES_IN_A_SECOND = {"busy": 100, "calm": 10}
"""Of each key, where the machine is fast enough: a request waits for the answer to the one before."""
IN_A_REQUEST = 10
SECONDS = 12
"""Between two shifts."""
WITHIN_S = 900
PARTITIONS = 2
TABLES = """
    CREATE TABLE newest (key text PRIMARY KEY, number integer, hifi_log uuid, hifi_partition integer,
      hifi_offset bigint, hifi_accepted timestamptz);
    CREATE TABLE appended (key text, number integer, hifi_log uuid, hifi_partition integer, hifi_offset bigint,
      UNIQUE (hifi_log, hifi_partition, hifi_offset));
"""


def declared(url: Path, folder: Path, bootstrap: str, topic: str) -> str:
    """The pipe as JSON, which is YAML."""
    columns = {"key": "key", "number": "number"}
    table = {"url": {"file": str(url)}, "columns": columns}
    lake = {"warehouse": str(folder / "lake"), "table": "shop.updates"}
    types = {"key": "string", "number": "int"}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "newest": ("postgres", table | {"table": "newest", "key": ["key"]}),
        "appended": ("postgres", table | {"table": "appended", "mode": "append"}),
        "objects": ("objects", {"folder": str(folder / "objects"), "format": "ndjson.gz"}),
        "topic": ("kafka", {"bootstrap": bootstrap, "topic": topic}),
        "lake": ("iceberg", lake | {"columns": types}),
    }
    destinations = [
        {"name": name, "kind": kind, "settings": settings} for name, (kind, settings) in kinds.items()
    ]
    body = {"pipe": "orders", "source": {"keys": [{"env": "HELLO_KEY"}]}, "slo": {"p95": "600s"}}
    return orjson.dumps(body | {"destinations": destinations}).decode()


class Updates:
    """Updates each key again and again, one request at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.accepted: dict[str, list[int]] = {key: [] for key in UPDATES_IN_A_SECOND}
        self.ended = False

    async def send(self) -> None:
        """Send until `ended`."""
        numbers = itertools.count()
        async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as sending:
            for key in UPDATES_IN_A_SECOND:
                sending.create_task(self._update(client, key, numbers))

    async def _update(self, client: aiohttp.ClientSession, key: str, numbers: "itertools.count[int]") -> None:
        headers = {
            "Authorization": "Bearer secret",
            "Content-Type": "application/cloudevents-batch+json",
            "hifi-key": key,
        }
        attributes = {"specversion": "1.0", "source": "/test", "type": "test", "partitionkey": key}
        while not self.ended:
            batch = list(itertools.islice(numbers, IN_A_REQUEST))
            body = orjson.dumps(
                [
                    attributes | {"id": f"e{number}", "data": {"key": key, "number": number}}
                    for number in batch
                ]
            )
            async with client.post(f"{self.url}/v1/events", data=body, headers=headers) as answer:
                assert answer.status == 202, await answer.text()
            self.accepted[key] += batch
            await asyncio.sleep(IN_A_REQUEST / UPDATES_IN_A_SECOND[key])

    def last(self) -> dict[str, int]:
        """The last number of each key."""
        return {key: numbers[-1] for key, numbers in self.accepted.items()}

    def pairs(self) -> Counter[tuple[str, int]]:
        """Key and number of every update, once."""
        return Counter((key, number) for key, numbers in self.accepted.items() for number in numbers)


def pairs(rows: Rows) -> Counter[tuple[str, int]]:
    return Counter((row["key"], row["number"]) for row in rows)


@pytest.mark.more
@pytest.mark.timeout(2400)
async def test_over_shifts_each_event_is_at_each_kind_of_destination_once_and_the_last_value_of_a_key_stands(
    tmp_path: Path, kafka: str, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HIFI_LAKE_INTERVAL_S": "2", "HIFI_LAKE_MASTER": "local[1]"}.items():
        monkeypatch.setenv(name, value)
    target = await topic(PARTITIONS)
    server = await PostgresServer("PostgreSQL", tmp_path / "postgres.log").start()
    try:
        with psycopg.connect(server.url, autocommit=True) as database:
            database.execute(TABLES)
        url = tmp_path / "url"
        url.write_text(server.url)

        def write_pipes(pipes: Path, _: str) -> None:
            (pipes / "orders.yaml").write_text(declared(url, tmp_path, kafka, target))

        columns = ("key", "number")
        readers: dict[str, Callable[[], Awaitable[Rows]]] = {
            "appended": lambda: in_table(server.url, "SELECT key, number FROM appended"),
            "objects": lambda: _data(in_folder(tmp_path / "objects")),
            "topic": lambda: in_topic(kafka, target),
            "lake": lambda: in_lake(tmp_path / "lake", "shop.updates", columns),
        }

        async def newest() -> dict[str, int]:
            return {row["key"]: row["number"] for row in await in_table(server.url, "SELECT * FROM newest")}

        async with coloured_meshes(tmp_path, write_pipes) as (stream, _):
            updates = Updates(stream.fronts[0].url)
            sending = asyncio.create_task(updates.send())
            operations = operations_of(stream)
            for colour, other_colour in (("green", "blue"), ("blue", "green"), ("green", "blue")):
                await asyncio.sleep(SECONDS)
                await operations.shift(
                    {colour: WHOLE_SHARE, other_colour: 0}, "test", kind=ActionKind.RECOVER
                )
            await asyncio.sleep(SECONDS)
            updates.ended = True
            await sending

            async def delivered() -> bool:
                """Whether nothing waits in either colour."""
                waiting = [(await operations.account(colour)).waiting for colour in stream.meshes]
                return all(counts and not any(counts.values()) for counts in waiting)

            await until(delivered, WITHIN_S)
            for name, read_rows in readers.items():

                async def complete(read_rows: Callable[[], Awaitable[Rows]] = read_rows) -> bool:
                    return len(await read_rows()) >= updates.pairs().total()

                await until(complete, WITHIN_S)
                assert pairs(await read_rows()) == updates.pairs(), name
            assert await newest() == updates.last()
            logs = await in_table(server.url, "SELECT hifi_log, count(*) FROM appended GROUP BY 1")
            assert len(logs) == 2, "both colours wrote"
            print(f"{updates.pairs().total()} updates, by log {sorted(row['count'] for row in logs)}")
    finally:
        await server.remove()


async def _data(rows: Awaitable[Rows]) -> Rows:
    return [row["data"] for row in await rows]
