"""CPU per message of services that only pass events on, compared with aiokafka and Spark alone.

`python bench/pass_through.py [SERVICE...]` prints the results of one run. Each service is a process with topics of its
own; one runs at a time, with the same broker and the same events. It gets a steady flow first, then a backlog after a
pause. Every message must come out once. `bench/peers/bare` describes the programs with aiokafka and Spark alone.
"""

import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import orjson
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from markdown_tables import count, goal, median, table, times

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import read_registry
from hifi.record.hop import write_hop
from hifi.record.identity import identity_prefix, identity_stem, write_identity
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_cli.demo import flights
from hifi_cli.log_file import log_to
from hifi_infra.java.jdk import find_java
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh.plan import InstanceSpec, Plan, Trigger, command, environment
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

ROOT: Final = Path(__file__).parent.parent
BARE: Final = ROOT / "bench/peers/bare"
PARTITIONS: Final = 4
RATE: Final = 2000
"""Messages a second of the flow; a mesh on two cores sustains it."""
WARM_UP_S, FLOW_S = 20.0, 12.0
AT_ONCE: Final = 60_000
"""Backlog of a paused service, in messages."""
TURN_S: Final = 0.005
LIMIT_S: Final = 180.0
PIPE: Final = Pipe.model_validate(
    {
        "pipe": "passing",
        "source": {"keys": [{"sha256": "0" * 64}]},
        "destinations": [{"name": "nowhere", "url": "http://nowhere.invalid/"}],
    }
)


@dataclass(frozen=True)
class PassingService:
    """`service` of the mesh with its trigger, or else a `script`. `over`: the entry that it is compared with."""

    reads: str
    writes: str
    service: str = ""
    script: str = ""
    trigger: Trigger = "micro-batch"
    over: str = ""


SERVICES: Final = {
    "aiokafka alone": PassingService("raw", "normalized", script="aiokafka_service.py"),
    "normalize": PassingService("raw", "normalized", "normalize", over="aiokafka alone"),
    "Spark alone, micro-batch": PassingService("normalized", "enriched", script="spark_service.py"),
    "enrich, micro-batch": PassingService(
        "normalized", "enriched", "enrich", over="Spark alone, micro-batch"
    ),
    "Spark alone, real-time": PassingService(
        "normalized", "enriched", script="spark_service.py", trigger="real-time"
    ),
    "enrich, real-time": PassingService(
        "normalized", "enriched", "enrich", trigger="real-time", over="Spark alone, real-time"
    ),
}
MOST: Final = 2.0
"""Goal: CPU of an asyncio service as a multiple of aiokafka alone."""


class Feed:
    """Writes events to the input topic, and counts messages on the output topic."""

    def __init__(self, kafka: str, source: str, target: str, version: int) -> None:
        self.sent = 0
        self._source = source
        self._targets = [TopicPartition(target, number) for number in range(PARTITIONS)]
        self._producer = AIOKafkaProducer(
            bootstrap_servers=kafka, acks="all", enable_idempotence=True, linger_ms=5
        )
        self._looker = AIOKafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
        self._bodies = [orjson.dumps(flights.event(*row)) for row in flights.rows(1000)]
        self._version = version

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._looker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._looker.stop()
        await self._producer.stop()

    async def put(self, number: int) -> None:
        """Send a number of events and wait for their acknowledgement."""
        futures = []
        for _ in range(number):
            record, partition = self._event(self.sent), self.sent % PARTITIONS
            self.sent += 1
            futures.append(
                await self._producer.send(
                    self._source, record.value, key=record.key, headers=record.headers, partition=partition
                )
            )
            if len(futures) == 2000:
                await asyncio.gather(*futures)
                futures = []
        await asyncio.gather(*futures)

    async def flow(self, rate: float, seconds: float) -> None:
        """Send at a fixed rate, without waiting for acknowledgements."""
        began_s, tasks, sent_count = time.monotonic(), set(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            due_count = int(rate * passed_s) - sent_count
            tasks.add(task := asyncio.create_task(self.put(due_count)))
            task.add_done_callback(tasks.discard)
            sent_count += due_count
            await asyncio.sleep(TURN_S)
        await asyncio.gather(*tasks)

    async def all_out(self) -> None:
        """Wait until as many messages came out as went in.

        Raises:
            RuntimeError: more did.
            TimeoutError: fewer did.
        """
        async with asyncio.timeout(LIMIT_S):
            while (received_count := await self._received_count()) < self.sent:
                await asyncio.sleep(0.02)
        if received_count > self.sent:
            raise RuntimeError(f"{received_count:,} messages came out, {self.sent:,} went in")

    async def _received_count(self) -> int:
        return sum((await self._looker.end_offsets(self._targets)).values())

    def _event(self, number: int) -> Record:
        """A record as ingest writes it for plain JSON, with the headers of normalize."""
        time_us = now_us()
        event_id = uuid.UUID(int=(time_us // 1000 << 80) | (0x7 << 76) | (0b10 << 62) | number)
        version = self._version
        stem = identity_stem(identity_prefix("passing", version, version, time_us), time_us // 60_000_000, 1)
        headers = [
            write_identity(stem, number),
            write_hop(time_us, number // PARTITIONS),
            ("ce_id", str(event_id).encode()),
            ("ce_source", b"/v1/pipes/passing/events"),
            ("ce_specversion", b"1.0"),
            ("ce_type", b"passing"),
            ("content-type", b"application/json"),
        ]
        return Record(b"%d" % number, self._bodies[number % len(self._bodies)], headers)


def measure(names: Sequence[str] = tuple(SERVICES)) -> dict[str, Any]:
    """CPU-seconds of a million messages in the flow and at once, for each service, as JSON."""
    with tempfile.TemporaryDirectory(prefix="hifi-passing-", ignore_cleanup_errors=True) as folder:
        log_to(Path(folder) / "own.log")
        return uvloop.run(_measure(Path(folder), names))


async def _measure(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    cluster = KafkaCluster(folder / "kafka")
    await cluster.start()
    try:
        return {name: await _measure_service(folder, cluster, name) for name in names}
    finally:
        await cluster.kill()


async def _measure_service(folder: Path, cluster: KafkaCluster, name: str) -> dict[str, Any]:
    service = SERVICES[name]
    stream = "".join(letter if letter.isalnum() else "-" for letter in name.lower())
    topics = Topics(stream)
    await prepare(cluster.bootstrap, topics, PARTITIONS)
    await put_in_force(cluster.bootstrap, topics, [PIPE])
    version = (await read_registry(cluster.bootstrap, topics)).pipes[PIPE.pipe].offset
    source, target = getattr(topics, service.reads), getattr(topics, service.writes)
    process = _process(folder, cluster.bootstrap, stream, service, [source, target])
    await process.start()
    try:
        async with Feed(cluster.bootstrap, source, target, version) as feed:
            await feed.put(PARTITIONS)
            await feed.all_out()
            await feed.flow(RATE, WARM_UP_S)
            await feed.all_out()
            flow, sent_before = Cost(process, cluster), feed.sent
            await feed.flow(RATE, FLOW_S)
            await feed.all_out()
            costs = {"flow": flow.per_million(feed.sent - sent_before)}
            process.pause()
            await feed.put(AT_ONCE)
            at_once = Cost(process, cluster)
            process.resume()
            await feed.all_out()
            costs["at_once"] = at_once.per_million(AT_ONCE)
    except BaseException:
        print(process.tail(20), file=sys.stderr)
        raise
    finally:
        await process.kill()
    print(f"  {name}: {orjson.dumps(costs).decode()}", flush=True)
    return costs


def _process(
    folder: Path, kafka: str, stream: str, service: PassingService, topics: Sequence[str]
) -> Process:
    plan = Plan(folder, stream=stream, trigger=service.trigger, env={"HIFI_ENRICH_COMPILE": "throughput"})
    java = find_java().home
    env = environment(plan, InstanceSpec(service.service, 1, free_port()), kafka, java)
    argv = command(service.service)
    if service.script:
        env["JAVA_HOME"] = str(java)
        argv = [sys.executable, str(BARE / service.script), kafka, *topics]
        argv += [service.trigger] if "spark" in service.script else []
    return Process(stream, argv, env=env, log=folder / f"{stream}.log", cwd=folder)


class Cost:
    """CPU of a service and of the broker from now on."""

    def __init__(self, process: Process, cluster: KafkaCluster) -> None:
        self._process, self._broker = process, cluster.processes[1]
        self._start = self._now()

    def per_million(self, messages: int) -> dict[str, float]:
        """CPU since then, per million messages."""
        seconds, own_s, broker_s = (end - start for end, start in zip(self._now(), self._start, strict=True))
        return {
            "per_second": round(messages / seconds),
            "cpu_seconds_per_million": round(own_s / messages * 1e6, 1),
            "broker_cpu_seconds_per_million": round(broker_s / messages * 1e6, 1),
        }

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), self._process.cpu_seconds(), self._broker.cpu_seconds()


def section(results: Iterable[Mapping[str, Any]]) -> str:
    """The section of bench/notes/benchmarks.md for these runs."""
    results = list(results)
    rows = []
    text = ""
    for name, service in SERVICES.items():
        cells: list[str] = []
        for load_kind in ("flow", "at_once"):
            costs = [result[name][load_kind]["cpu_seconds_per_million"] for result in results]
            broker = median(result[name][load_kind]["broker_cpu_seconds_per_million"] for result in results)
            ratio = (
                median(
                    cost / result[service.over][load_kind]["cpu_seconds_per_million"]
                    for cost, result in zip(costs, results, strict=True)
                )
                if service.over
                else None
            )
            if load_kind == "at_once":
                cells.append(count(median(result[name][load_kind]["per_second"] for result in results)))
            cells += [count(median(costs)), times(ratio), count(broker)]
            if service.service == "normalize":
                load_text = (
                    f"at {RATE:,} messages/s" if load_kind == "flow" else f"{AT_ONCE:,} messages at once"
                )
                text += "\n" + goal(
                    f"normalize's CPU per message, relative to aiokafka, {load_text},", ratio, MOST
                )
        rows.append([name, len(results), *cells])
    head = ["service", "runs"]
    head += ["flow: CPU-s a million", "times its libraries alone", "broker's CPU-s a million"]
    head += [
        "at once: messages/s",
        "CPU-s a million",
        "times its libraries alone",
        "broker's CPU-s a million",
    ]
    return (
        "\n## Services that only pass events on, compared with their libraries alone\n\n"
        f"The pipe has no rules; the events are flights, on {PARTITIONS} partitions. Each service runs alone "
        f"with the "
        f"broker: {RATE:,} messages/s for {FLOW_S:.0f} s after {WARM_UP_S:.0f} s of them, then a backlog of "
        f"{AT_ONCE:,}. `bench/peers/bare` describes the programs with the libraries alone; Java's second compiler "
        "is on in all four with Spark.\n\n" + table(head, rows) + text
    )


if __name__ == "__main__":
    measure(sys.argv[1:] or tuple(SERVICES))
