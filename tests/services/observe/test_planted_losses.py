"""An event that the writer of a destination forgets is named by observe, for each kind, and no other is."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psycopg
import pytest
from aiohttp import web
from tests.conftest import MakeTopic
from tests.support.closed_minutes import closed_minutes
from tests.support.observe_principal import signed
from tests.support.written_events import Rows, in_folder, in_lake, in_table, in_topic

from hifi.pipe.model import Pipe
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port
from hifi_infra.postgres.server import PostgresServer

EVENTS = 40
WITHIN_S = 300
DESTINATIONS = ("http", "topic", "table", "newest", "files", "lake", "lakenewest")
SENT = {*(f"e{number}" for number in range(EVENTS)), *(f"lost-{name}" for name in DESTINATIONS)}
PLANTED = {(name, f"lost-{name}") for name in DESTINATIONS}
POSITION = "hifi_log uuid, hifi_partition integer, hifi_offset bigint"


def planted_pipe(folder: Path, url: str, database: str, bootstrap: str, topic: str) -> Pipe:
    table = {"url": {"env": database}, "columns": {"id": "id"}}
    lake = {"warehouse": str(folder / "lake"), "columns": {"id": "string"}}
    upsert = {"key": ["id"]}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "topic": ("kafka", {"bootstrap": bootstrap, "topic": topic}),
        "table": ("postgres", table | {"table": "appended", "mode": "append"}),
        "newest": ("postgres", table | {"table": "newest"} | upsert),
        "files": ("objects", {"folder": str(folder / "objects")}),
        "lake": ("iceberg", lake | {"table": "shop.appended"}),
        "lakenewest": ("iceberg", lake | {"table": "shop.newest", "mode": "upsert"} | upsert),
    }
    destinations: list[dict[str, Any]] = [{"name": "http", "url": url, "format": "json"}]
    destinations += [
        {"name": name, "kind": kind, "settings": settings} for name, (kind, settings) in kinds.items()
    ]
    source = {"keys": [{"env": "PLANTED_KEY"}], "id": "id", "partition_key": "id"}
    return Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})


@pytest.mark.more
@pytest.mark.timeout(1200)
async def test_an_event_that_a_writer_forgets_is_named_for_each_kind_of_destination(
    tmp_path: Path, kafka: str, topic: MakeTopic
) -> None:
    target = await topic(2)
    arrived_rows: Rows = []

    async def take(request: web.Request) -> web.Response:
        arrived_rows.append(orjson.loads(await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    port, console_port, destination_port = free_port(), free_port(), free_port()
    await web.TCPSite(runner, "127.0.0.1", destination_port).start()
    database = await PostgresServer("PostgreSQL", tmp_path / "postgres.log").start()
    forgetful_env = {"PYTHONPATH": str(Path(__file__).parents[2] / "support" / "programs" / "planted_loss")}
    env = {"HIFI_OBSERVE_SETTLE_S": "20", "HIFI_LAKE_INTERVAL_S": "2", "HIFI_LAKE_MASTER": "local[1]"}
    plan = Plan(
        tmp_path / "data",
        port=port,
        console_port=console_port,
        partitions=2,
        scale={"observe": 1, "lake": 1},
        env=env | {"PLANTED_KEY": "secret", "PLANTED_URL": database.url},
        own_env={"egest-1": forgetful_env, "lake-1": forgetful_env},
    )
    mesh = Mesh(plan)
    mesh.prepare()
    try:
        with psycopg.connect(database.url, autocommit=True) as connection:
            unique_constraint = "UNIQUE (hifi_log, hifi_partition, hifi_offset)"
            connection.execute(f"CREATE TABLE appended (id text, {POSITION}, {unique_constraint})".encode())
            connection.execute(
                f"CREATE TABLE newest (id text PRIMARY KEY, {POSITION}, hifi_accepted timestamptz)".encode()
            )
        await mesh.start()
        pipe = planted_pipe(tmp_path, f"http://127.0.0.1:{destination_port}/", "PLANTED_URL", kafka, target)
        await put_in_force(mesh.bootstrap, mesh.topics, [pipe], variables=dict(plan.env))
        await mesh.wait_ready(WITHIN_S)
        headers = {"Authorization": "Bearer secret"}
        async with aiohttp.ClientSession(headers=headers) as client:
            for name in sorted(SENT):
                async with client.post(f"{plan.url}/v1/pipes/orders/events", json={"id": name}) as answer:
                    assert answer.status == 202, await answer.text()
        last_minute = int(time.time() // 60)

        async def data() -> Rows:
            return [row["data"] for row in await in_folder(tmp_path / "objects")]

        async def requests() -> Rows:
            return arrived_rows

        readers: dict[str, Callable[[], Awaitable[Rows]]] = {
            "http": requests,
            "topic": lambda: in_topic(kafka, target),
            "table": lambda: in_table(database.url, "SELECT id FROM appended"),
            "newest": lambda: in_table(database.url, "SELECT id FROM newest"),
            "files": data,
            "lake": lambda: in_lake(tmp_path / "lake", "shop.appended", ("id",)),
            "lakenewest": lambda: in_lake(tmp_path / "lake", "shop.newest", ("id",)),
        }
        for name, read_rows in readers.items():
            async with asyncio.timeout(WITHIN_S):
                while len(await read_rows()) < len(SENT) - 1:
                    await asyncio.sleep(1)
            assert sorted(row["id"] for row in await read_rows()) == sorted(SENT - {f"lost-{name}"}), name

        minutes, reason = await asyncio.to_thread(closed_minutes, plan, "orders", last_minute)
        assert reason is None
        assert sum(minute["lost"] for minute in minutes) == len(PLANTED)
        assert sum(minute["in"] for minute in minutes) == len(SENT)
        lost_ids = set()
        async with aiohttp.ClientSession(headers=signed(plan)) as client:
            for minute in minutes:
                url = f"{plan.console}/api/v1/pipes/orders/minutes/{minute['minute']}/lost"
                async with client.get(url) as answer:
                    lost_ids |= {
                        (lost_event["destination"], lost_event["ce_id"])
                        for lost_event in (await answer.json())["lost"]
                    }
        assert lost_ids == PLANTED
    finally:
        await mesh.kill()
        await database.remove()
        await runner.cleanup()
