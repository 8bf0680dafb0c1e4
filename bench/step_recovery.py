"""Recovery of state after SIGKILL: with another instance standing by, and with millions of keys in open windows."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import orjson
from step_events import FLIGHTS, PARTITIONS, StepEvents, step_pipe
from step_process import STREAM, TAKEN_OVER, state_process, until_logged
from step_results import StepResults

from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import Topics
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import FLOW, Plan
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

_TOPICS: Final = Topics(STREAM)
_SETTINGS: Final = {"HIFI_STATE_INTERVAL_S": "1"}
_WARM: Final = "step-warm"
_KEYS: Final = 1000
_READY_S: Final = 180.0
_WARM_S: Final = 900.0
_NEXT_RESULT_S: Final = 60.0
_BEFORE_S: Final = 5.0
_LONGEST_S: Final = 3600.0
_DAY_S: Final = 86_400
_POLL_S: Final = 0.1
_SAMPLE_S: Final = 0.5


async def recovery(folder: Path, rate: float, rounds: int) -> dict[str, Any]:
    """Seconds from SIGKILL of the instance that runs a step to its next result, with a warm one standing by.

    A mesh on a Kafka that others may use leaves it to Kafka's session time-out (10 s) to notice the death; on its own
    Kafka it says so at once. Windows of a second, so that there are results all the time.
    """
    async with KafkaCluster(folder / "kafka") as cluster:
        by_time_out = await _recoveries(folder / "joined", rate, rounds, cluster.bootstrap)
    return {
        "by_session_time_out": by_time_out,
        "seen_by_mesh": await _recoveries(folder / "own", rate, rounds),
    }


async def _recoveries(folder: Path, rate: float, rounds: int, kafka: str | None = None) -> dict[str, Any]:
    scale = {**dict.fromkeys(FLOW, 0), "state": 2}
    mesh = Mesh(
        Plan(
            folder,
            stream=STREAM,
            kafka=kafka,
            partitions=PARTITIONS,
            port=free_port(),
            scale=scale,
            env=_SETTINGS,
        )
    )
    mesh.prepare()
    try:
        await mesh.start([FLIGHTS, step_pipe(1, 1)])
        await mesh.wait_ready(_READY_S)
        await _until_leader(mesh)
        producer = Producer(mesh.bootstrap, "bench")
        await producer.start()
        events = StepEvents(producer, _TOPICS.enriched, _KEYS, 1, 1)
        results = StepResults(mesh.bootstrap, _TOPICS.raw)
        await results.start()
        load = asyncio.create_task(events.run(rate, _LONGEST_S))
        times_s: list[float] = []
        for _ in range(rounds):
            await _until_warm(mesh, 1 + len(times_s))
            await asyncio.sleep(_BEFORE_S)
            await results.first_after(events.closed_us, time.time_ns() // 1000, _NEXT_RESULT_S)
            leader = await _until_leader(mesh)
            killed_us = time.time_ns() // 1000
            await processes(mesh)[leader].kill()
            next_us = await results.first_after(events.closed_us, killed_us, _NEXT_RESULT_S)
            times_s.append(round((next_us - killed_us) / 1e6, 2))
            print(leader, times_s, flush=True)
            await asyncio.sleep(_BEFORE_S)
            await mesh.wait_ready(_READY_S)
        events.stopping = True
        await load
        await events.close()
        expected = events.expected()
        copies = await results.until_complete(expected, _READY_S)
        await results.stop()
        await producer.stop()
        return {"times_s": times_s, "results": len(expected), "copies": copies}
    finally:
        await mesh.kill()


async def _until_warm(mesh: Mesh, count: int) -> None:
    """Wait until `count` instances have rehearsed the step, one that was started again each time."""
    async with asyncio.timeout(_WARM_S):
        while len(_logged(mesh, _WARM)) < count:
            await asyncio.sleep(_POLL_S)


async def _until_leader(mesh: Mesh) -> str:
    """Name of the instance that has taken the step over last; waits until one has."""
    async with asyncio.timeout(_READY_S):
        while not (lines := _logged(mesh, TAKEN_OVER)):
            await asyncio.sleep(_POLL_S)
    return max(lines)[1]


def _logged(mesh: Mesh, text: str) -> list[tuple[str, str]]:
    """Time and instance of each whole line with a text."""
    return [
        (orjson.loads(line)["timestamp"], instance.name)
        for instance in mesh.all()
        for line in instance.log.read_text().splitlines(keepends=True)
        if text in line and line.endswith("\n")
    ]


async def day(folder: Path, kafka: str, keys: int) -> dict[str, Any]:
    """Keep a window of a day with many keys; seconds, memory and disk until state goes on after SIGKILL."""
    await prepare(kafka, _TOPICS, PARTITIONS)
    await put_in_force(kafka, _TOPICS, [FLIGHTS, step_pipe(_DAY_S, 1)])
    process = state_process(folder, kafka)
    data = folder / "state"
    figures: dict[str, Any] = {"keys": keys}
    try:
        await process.start()
        await until_logged(process, TAKEN_OVER, _READY_S)
        producer = Producer(kafka, "bench")
        await producer.start()
        events = StepEvents(producer, _TOPICS.enriched, keys, _DAY_S, 1)
        began_s = time.monotonic()
        await events.write_each_key(time.time_ns() // 1000 - keys)
        figures["written_s"] = _since(began_s)
        await producer.stop()
        figures["folded"] = await _measured(process, data, _until_folded(kafka, keys), began_s)
        for name, is_lost in (("with_file", False), ("without_file", True)):
            await process.kill()
            if is_lost:
                shutil.rmtree(data)
            process.log.unlink()
            began_s = time.monotonic()
            await process.start()
            recovered = until_logged(process, TAKEN_OVER, _LONGEST_S)
            figures[name] = await _measured(process, data, recovered, began_s)
            for line in process.log.read_text().splitlines():  # none where the file is as of the progress
                if "step-recovered" in line:
                    figures[name] |= {field: orjson.loads(line)[field] for field in ("records", "windows")}
            print(orjson.dumps(figures).decode(), flush=True)
        return figures
    finally:
        if process.running:
            await process.kill()


async def _measured(
    process: Process, data: Path, until: Coroutine[Any, Any, None], began_s: float
) -> dict[str, float]:
    """Wait for something; seconds since a time, and the largest memory and files of state meanwhile."""
    task = asyncio.create_task(until)
    rss_bytes = file_bytes = 0
    while not task.done():
        rss_bytes = max(rss_bytes, process.rss_bytes())
        with contextlib.suppress(FileNotFoundError):
            file_bytes = max(
                file_bytes, sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
            )
        await asyncio.wait([task], timeout=_SAMPLE_S)
    await task
    return {
        "s": _since(began_s),
        "cpu_s": round(process.cpu_seconds()),
        "rss_mb": round(rss_bytes / 1e6),
        "files_mb": round(file_bytes / 1e6),
    }


async def _until_folded(kafka: str, count: int) -> None:
    """Wait until the progress on `folds` has `count` events."""
    folded_count = 0

    def take(_: bytes | None, value: bytes | None, __: int) -> None:
        nonlocal folded_count
        folded_count = orjson.loads(value or b"{}")["folded"]

    follower = TopicFollower(kafka, "bench", {_TOPICS.folds: take})
    await follower.start()
    try:
        async with asyncio.timeout(_LONGEST_S):
            while folded_count < count:
                await asyncio.sleep(_POLL_S)
                await follower.catch_up()
    finally:
        await follower.stop()


def _since(began_s: float) -> float:
    return round(time.monotonic() - began_s, 1)
