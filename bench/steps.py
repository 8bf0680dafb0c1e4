"""Speed of the service state beside Kafka Streams, and its recovery: `python bench/steps.py compare|recovery|day`.

`compare` gives the same load, in turns, to state and to `bench/peers/kafka_streams` with exactly-once, on one broker;
both read records as enrich writes them. It prints CPU for each event and the time from before the first event that
closes a window was written until each result is visible to a `read_committed` reader, and compares all results with a
plain oracle. `recovery` kills the instance that runs the step, with another one standing by. `day` keeps millions of
keys in one window of a day, and kills state with and without its file. Each prints JSON.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from kafka_streams_peer import create_topics, streams_command
from machine_info import describe
from step_events import FLIGHTS, PARTITIONS, StepEvents, step_pipe
from step_process import STREAM, TAKEN_OVER, state_process, until_logged
from step_recovery import day, recovery
from step_results import StepResults

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.process.process import Process

KEYS: Final = 1000
WINDOW_S: Final = 10
LATENESS_S: Final = 2
SETTLE_S: Final = 5.0
LIMIT_S: Final = 120.0


class Engine:
    """One of the two that are compared: its process, its load and its results."""

    def __init__(self, process: Process, events: StepEvents, results: StepResults) -> None:
        self.process = process
        self.events = events
        self.results = results

    async def turn(self, rate: float, seconds: float, broker: Process) -> dict[str, float]:
        """Write events for some time, and measure after the first seconds of it."""
        load = asyncio.create_task(self.events.run(rate, seconds))
        await asyncio.sleep(SETTLE_S)
        before_us, before_count = time.time_ns() // 1000, self.events.count
        before_s, broker_s = self.process.cpu_seconds(), broker.cpu_seconds()
        await load
        end_us, count = time.time_ns() // 1000, self.events.count - before_count
        used_s, broker_used_s = self.process.cpu_seconds() - before_s, broker.cpu_seconds() - broker_s
        await asyncio.sleep(SETTLE_S)  # until the results of the last windows that were closed are there
        delays_s = self.results.delays_s(self.events.closed_us, before_us, end_us)
        return {
            "cpu_us": round(1e6 * used_s / count, 1),
            "broker_cpu_us": round(1e6 * broker_used_s / count, 1),
            "p50_ms": round(1000 * delays_s[len(delays_s) // 2]),
            "p95_ms": round(1000 * delays_s[int(len(delays_s) * 0.95)]),
            "results": len(delays_s),
            "rss_mb": round(self.process.rss_bytes() / 1e6),
        }


async def compare(arguments: argparse.Namespace, folder: Path, cluster: KafkaCluster) -> dict[str, Any]:
    """Turns of both engines, and the medians of their ratios."""
    kafka, topics = cluster.bootstrap, Topics(STREAM)
    await prepare(kafka, topics, PARTITIONS)
    await put_in_force(kafka, topics, [FLIGHTS, step_pipe(WINDOW_S, LATENESS_S)])
    await create_topics(kafka, ["peer-flights", "peer-delays"], PARTITIONS)
    peer = Process(
        "streams",
        streams_command(
            "WindowedDelays",
            folder,
            kafka,
            "peer-flights",
            "peer-delays",
            folder / "streams",
            WINDOW_S * 1000,
            LATENESS_S * 1000,
            arguments.commit_ms,
        ),
        log=folder / "streams.log",
    )
    producer = Producer(kafka, "bench")
    await producer.start()
    engines = {
        "state": _engine(state_process(folder, kafka), producer, kafka, topics.enriched, topics.raw),
        "streams": _engine(peer, producer, kafka, "peer-flights", "peer-delays"),
    }
    try:
        for engine in engines.values():
            await engine.results.start()
            await engine.process.start()
        await until_logged(engines["state"].process, TAKEN_OVER, LIMIT_S)
        await until_logged(engines["streams"].process, "state RUNNING", LIMIT_S)
        for engine in engines.values():  # until their code is compiled
            await engine.events.run(arguments.rate, arguments.warm_up)
        rounds: list[dict[str, dict[str, float]]] = []
        for _ in range(arguments.rounds):
            measured = {
                name: await engine.turn(arguments.rate, arguments.seconds, cluster.processes[1])
                for name, engine in engines.items()
            }
            rounds.append(measured)
            print(orjson.dumps(measured).decode(), flush=True)
        compared = {}
        for name, engine in engines.items():
            await engine.events.close()
            expected = engine.events.expected()
            copies = await engine.results.until_complete(expected, LIMIT_S)
            compared[name] = {"results": len(expected), "copies": copies}
        ratios = {
            f"{figure}_ratio": round(
                statistics.median(turns["state"][figure] / turns["streams"][figure] for turns in rounds), 2
            )
            for figure in ("cpu_us", "p50_ms", "p95_ms")
        }
        medians = {
            name: {
                figure: statistics.median(turns[name][figure] for turns in rounds)
                for figure in rounds[0][name]
            }
            for name in engines
        }
        return {"medians": medians, **ratios, "compared": compared}
    finally:
        for engine in engines.values():
            await engine.results.stop()
            if engine.process.running:
                await engine.process.stop()
        await producer.stop()


def _engine(process: Process, producer: Producer, kafka: str, source: str, target: str) -> Engine:
    events = StepEvents(producer, source, KEYS, WINDOW_S, LATENESS_S)
    return Engine(process, events, StepResults(kafka, target))


async def _run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    match arguments.mode:
        case "compare":
            async with KafkaCluster(folder / "kafka") as cluster:
                return await compare(arguments, folder, cluster)
        case "recovery":
            return await recovery(folder, arguments.rate, arguments.rounds)
        case _:
            async with KafkaCluster(folder / "kafka") as cluster:
                return await day(folder, cluster.bootstrap, arguments.keys)


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("compare", "recovery", "day"))
    parser.add_argument("--rate", type=float, default=500, help="events a second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of a turn of `compare`")
    parser.add_argument(
        "--warm-up", type=float, default=60, help="seconds before the first turn of `compare`"
    )
    parser.add_argument("--commit-ms", type=int, default=100, help="of Kafka Streams; 100 is its default")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of `day`")
    arguments = parser.parse_args()
    os.environ.setdefault("HIFI_EGRESS_ALLOW", "loopback")  # as commands of hifi do
    machine_before = describe()
    with tempfile.TemporaryDirectory(prefix="hifi-bench-steps-", ignore_cleanup_errors=True) as folder:
        result = uvloop.run(_run(arguments, Path(folder)))
    machine = {name: machine_before[name] for name in ("at", "commit", "cores", "load_average", "loop_s")}
    print(orjson.dumps({**machine, **result}, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
