"""CPU, times and visibility of a view while it gets updates at a constant rate: `python bench/views.py`.

The records are written to `enriched` as enrich writes them, on a broker of this machine, so that `view` alone is
measured. Prints a JSON object: CPU of `view` as a share of a core and for each update, the time from before an update
is written until it is received as a server-sent event, and the times of look-ups and of a scan of all rows.

With `--streams` a table of Kafka Streams (`bench/peers/kafka_streams`) is measured after it, with the same load and
queries. It has no server-sent events.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import orjson
import psutil
from kafka_streams_peer import create_topics as create_peer_topics
from kafka_streams_peer import streams_command
from machine_info import describe

from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, stream_record
from hifi.pipe.revision import pipe_record
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, IN, MINUTE, PIPE, RAW, REVISION, REVISION_OFFSET, SEQ, TO
from hifi.record.identity import seq_text
from hifi.record.record import Record
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.plan import command
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

PARTITIONS: Final = 4
PEER_TOPIC: Final = "peer-flights"
KEY: Final = "bench-key"
BATCHES_A_SECOND: Final = 20
READY_S: Final = 60.0
URL: Final = "/v1/views/flights"
DECLARATION: Final = """
view: flights
from: {pipe: flights}
order: time
key: [flight]
fields: {carrier: text, origin: text, dest: text, delay: int, sent: int}
serve: {keys: [{env: BENCH_VIEW_KEY}], sql: true}
"""
SCAN: Final = {"sql": "SELECT carrier, count(*), avg(delay), max(delay) FROM flights GROUP BY 1"}


class Queries(NamedTuple):
    """What is asked of a table.

    Attributes:
        session: with its address.
        rows: number of its rows.
        look_up: a row by its number.
        scan: of all rows.
        has_changes: whether it sends them.
    """

    session: aiohttp.ClientSession
    rows: Callable[[], Awaitable[int]]
    look_up: Callable[[int], Awaitable[bytes]]
    scan: Callable[[], Awaitable[bytes]]
    has_changes: bool


class Load:
    """Writes updates at a rate; `sent` in an update is the time before it was written."""

    def __init__(self, topic: str, producer: Producer, keys: int) -> None:
        self._topic = topic
        self._producer = producer
        self._keys = keys
        self.count = 0

    async def fill(self) -> None:
        """Write each key once."""
        for first_key in range(0, self._keys, 500):
            await self._write(range(first_key, min(first_key + 500, self._keys)))

    async def run(self, rate: float) -> None:
        """Write until cancelled."""
        began_s, written_count = time.monotonic(), 0
        while True:
            due_count = int((time.monotonic() - began_s) * rate)
            if due_count > written_count:
                await self._write(range(self.count, self.count + due_count - written_count))
                written_count = due_count
            await asyncio.sleep(1 / BATCHES_A_SECOND)

    async def _write(self, numbers: range) -> None:
        batches: dict[int, list[Record]] = {}
        for number in numbers:
            key = number * 7919 % self._keys
            batches.setdefault(key % PARTITIONS, []).append(self._record(key, number))
        await asyncio.gather(
            *(
                self._producer.send_and_wait(self._topic, partition, records)
                for partition, records in batches.items()
            )
        )
        self.count += len(numbers)

    @staticmethod
    def _record(key: int, number: int) -> Record:
        now_us = time.time_ns() // 1000
        data = {
            "flight": f"UA{key}",
            "carrier": f"C{key % 16}",
            "origin": "EWR",
            "dest": f"D{key % 100}",
            "delay": number % 200,
            "sent": now_us,
            "note": "x" * 200,
        }
        headers = packed(
            {
                PIPE: b"flights",
                REVISION: b"1",
                REVISION_OFFSET: b"0",
                ACCEPTED: b"%d" % now_us,
                MINUTE: b"%d" % (now_us // 60_000_000),
                SEQ: seq_text(1, number),
                IN: b"%d" % now_us,
                RAW: b"%d" % number,
                TO: b"d",
            }
        )
        return Record(b"UA%d" % key, orjson.dumps(data), headers)


def _times(seconds: list[float]) -> dict[str, float]:
    ordered_s = sorted(seconds)
    return {
        "count": len(ordered_s),
        "p50_ms": round(ordered_s[len(ordered_s) // 2] * 1000, 2),
        "p95_ms": round(ordered_s[int(len(ordered_s) * 0.95)] * 1000, 2),
        "max_ms": round(ordered_s[-1] * 1000, 2),
    }


async def _repeat(request: Callable[[], Awaitable[Any]], interval_s: float, times_s: list[float]) -> None:
    while True:
        began_s = time.perf_counter()
        await request()
        times_s.append(time.perf_counter() - began_s)
        await asyncio.sleep(interval_s)


async def _changes(session: aiohttp.ClientSession, lags: list[float]) -> None:
    """Note the age of each change that is received."""
    last_id = ""
    while True:
        headers = {"last-event-id": last_id} if last_id else {}
        async with session.get(f"{URL}/changes", headers=headers) as answer:
            async for line in answer.content:
                if line.startswith(b"id: "):
                    last_id = line[4:].strip().decode()
                elif line.startswith(b'data: {"flight"'):
                    lags.append(time.time() - orjson.loads(line[6:])["sent"] / 1e6)


async def _ask(session: aiohttp.ClientSession, path: str, **options: Any) -> bytes:
    async with session.request("POST" if options else "GET", path, **options) as answer:
        body: bytes = await answer.read()
        assert answer.status == 200, body
        return body


async def _measure(
    arguments: argparse.Namespace, process: psutil.Process, queries: Queries, load: Load
) -> dict[str, Any]:
    await _until_filled(queries, arguments.keys)
    lookups: list[float] = []
    scans: list[float] = []
    lags: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(load.run(arguments.rate))]
        await asyncio.sleep(arguments.warm_up)
        result = await _cpu_of_updates(arguments, process, load)
        running += [
            tasks.create_task(_repeat(lambda: queries.look_up(load.count % arguments.keys), 0.02, lookups)),
            tasks.create_task(_repeat(queries.scan, 0.5, scans)),
        ]
        if queries.has_changes:
            running.append(tasks.create_task(_changes(queries.session, lags)))
        await asyncio.sleep(arguments.warm_up)
        for measurements in (lookups, scans, lags):
            measurements.clear()
        result["with_queries"] = await _cpu_of_updates(arguments, process, load)
        times = {"look_up": lookups, "scan": scans, "visible": lags}
        result |= {name: _times(times_s) for name, times_s in times.items() if times_s}
        result["rss_mb"] = round(process.memory_info().rss / 1e6)
        for task in running:
            task.cancel()
    return result


async def _cpu_of_updates(
    arguments: argparse.Namespace, process: psutil.Process, load: Load
) -> dict[str, Any]:
    count_before, cpu_s, began_s = load.count, _cpu_s(process), time.monotonic()
    await asyncio.sleep(arguments.seconds)
    took_s, updates = time.monotonic() - began_s, load.count - count_before
    used_s = _cpu_s(process) - cpu_s
    return {
        "updates_per_s": round(updates / took_s, 1),
        "cpu_percent_of_a_core": round(100 * used_s / took_s, 1),
        "cpu_us_per_update": round(1e6 * used_s / updates, 1),
    }


async def _until_filled(queries: Queries, count: int) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                if await queries.rows() >= count:
                    return
            except (aiohttp.ClientError, AssertionError):
                pass  # it does not answer yet
            await asyncio.sleep(0.2)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _measure_view(
    arguments: argparse.Namespace, folder: Path, kafka: str, topics: Topics, producer: Producer
) -> dict[str, Any]:
    pipe = Pipe.model_validate(
        {
            "pipe": "flights",
            "source": {"keys": [{"sha256": "0" * 64}]},
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/d"}],
        }
    )
    await publish(kafka, topics, [stream_record(PARTITIONS), pipe_record(pipe)])
    load = Load(topics.enriched, producer, arguments.keys)
    await load.fill()
    (folder / "pipes").mkdir()
    (folder / "pipes" / "view.yaml").write_text(DECLARATION)
    port = free_port()
    environment = os.environ | {
        "HIFI_KAFKA": kafka,
        "HIFI_STREAM": "bench",
        "HIFI_VIEW_PORT": str(port),
        "HIFI_VIEW_DECLARATIONS": str(folder / "pipes"),
        "HIFI_VIEW_DATA": str(folder / "views"),
        "HIFI_LOG_LEVEL": "warning",
        "BENCH_VIEW_KEY": KEY,
    }
    view = Process("view", command("view"), log=folder / "view.log", env=environment)
    await view.start()
    try:
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{port}",
            headers={"authorization": f"Bearer {KEY}"},
            timeout=aiohttp.ClientTimeout(total=None),
        ) as session:

            async def rows() -> int:
                return int(orjson.loads(await _ask(session, URL))["rows"])

            queries = Queries(
                session,
                rows,
                lambda key: _ask(session, f"{URL}/rows/UA{key}"),
                lambda: _ask(session, f"{URL}/sql", json=SCAN),
                has_changes=True,
            )
            return await _measure(arguments, psutil.Process(view.pid), queries, load)
    finally:
        await view.stop()


async def _measure_streams(
    arguments: argparse.Namespace, folder: Path, kafka: str, producer: Producer
) -> dict[str, Any]:
    await create_peer_topics(kafka, [PEER_TOPIC], PARTITIONS)
    load = Load(PEER_TOPIC, producer, arguments.keys)
    await load.fill()
    port = free_port()
    command_line = streams_command(
        "KeyedTable", folder, kafka, PEER_TOPIC, folder / "streams", port, arguments.commit_ms
    )
    peer = Process("streams", command_line, log=folder / "streams.log")
    await peer.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def rows() -> int:
                return int(await _ask(session, "/rows"))

            queries = Queries(
                session,
                rows,
                lambda key: _ask(session, f"/rows/UA{key}"),
                lambda: _ask(session, "/scan"),
                has_changes=False,
            )
            return await _measure(arguments, psutil.Process(peer.pid), queries, load)
    finally:
        await peer.stop()


async def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    topics = Topics("bench")
    async with KafkaCluster(folder / "kafka") as cluster:
        kafka = cluster.bootstrap
        await create_topics(kafka, topics, partitions=PARTITIONS, replication=1)
        producer = Producer(kafka, "bench")
        await producer.start()
        try:
            result = {"view": await _measure_view(arguments, folder, kafka, topics, producer)}
            if arguments.streams:
                result["kafka_streams"] = await _measure_streams(arguments, folder, kafka, producer)
            return result
        finally:
            await producer.stop()


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000, help="updates a second")
    parser.add_argument("--keys", type=int, default=20_000, help="rows")
    parser.add_argument("--seconds", type=float, default=20, help="of each of the two phases")
    parser.add_argument("--warm-up", type=float, default=5, help="seconds before each of them")
    parser.add_argument("--streams", action="store_true", help="measure Kafka Streams, too")
    parser.add_argument("--commit-ms", type=int, default=100, help="of Kafka Streams; 100 is its default")
    arguments = parser.parse_args()
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="hifi-bench-views-", ignore_cleanup_errors=True) as folder:
        result = asyncio.run(_run(arguments, Path(folder)))
    machine = {name: machine[name] for name in ("at", "commit", "cores", "load_average", "loop_s")}
    print(orjson.dumps({**machine, **result}, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
