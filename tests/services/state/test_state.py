"""The service state on a real Kafka and Spark: each result is in `raw` once, whatever process dies."""

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord
from tests.support.service_process import WITHIN_S, ServiceProcess
from tests.support.state.stamped_log import START_MS, Entry, StampedLog, disordered
from tests.support.state.step_bench import (
    FLIGHTS,
    KEEPING_SOURCE,
    OTHERS,
    joined_place,
    shown,
    step_pipe,
    time_ms,
)
from tests.support.state.window_oracle import Outcome, outcome
from tests.support.stream_process import PARTITIONS, create_stream, read_all

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.registry import publish
from hifi.pipe.revision import pipe_record
from hifi.record.fields import fields
from hifi.record.headers import REASON
from hifi.record.identity import identity
from hifi.record.source_position import source_position
from hifi_normalize.idempotency.source_positions import SourcePositions

pytestmark = pytest.mark.timeout(600)
WINDOW: dict[str, Any] = {"size": "20s", "every": "10s"}
EACH: dict[str, Any] = {"each": {"trailing": "20s"}}
LIMITED_EACH: dict[str, Any] = {**EACH, "limit": 2}
JOIN: dict[str, Any] = KEEPING_SOURCE
PROGRAMS = Path(__file__).parents[2] / "support/programs"
TAKEN_OVER = "step-taken-over"


class StateStream:
    """A stream with the pipes `flights` and `other`, the step `carrier-delays`, and instances of the service."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.marker = folder / "interrupted"
        self._services: dict[str, ServiceProcess] = {}

    async def create(self, window: dict[str, Any] = WINDOW) -> None:
        self.topics = Topics(await create_stream(self.kafka))
        pipes = [pipe_record(pipe, 1) for pipe in (FLIGHTS, OTHERS, step_pipe(window))]
        await publish(self.kafka, self.topics, pipes)

    def start(
        self, interrupt_at: str | None = None, sent: signal.Signals = signal.SIGKILL, name: str = "one"
    ) -> ServiceProcess:
        """Start an instance; `interrupt_at`: where it sends itself a signal once, see `interrupted_state`."""
        arguments: list[object] = ["-m", "hifi_state"]
        if interrupt_at is not None:
            arguments = [PROGRAMS / "interrupted_state.py", interrupt_at, sent.name, self.marker]
        return self._start(name, arguments)

    def start_eager(self, name: str) -> ServiceProcess:
        """Start an instance that does not rest between the rehearsals of a standby."""
        return self._start(name, [PROGRAMS / "eager_state.py"])

    def _start(self, name: str, arguments: list[object]) -> ServiceProcess:
        service = self._services.setdefault(name, ServiceProcess(self.folder / f"{name}.log"))
        service.start(
            arguments,
            self.kafka,
            self.topics.stream,
            state_interval_s=0.3,
            state_master="local[1]",
            state_data=self.data(name),
            session_timeout_s=6,
        )
        return service

    def data(self, name: str = "one") -> Path:
        """Folder of an instance."""
        return self.folder / name

    def stop(self) -> None:
        """End all instances in order."""
        for service in self._services.values():
            service.stop()

    def logs(self) -> str:
        """The last lines of all logs."""
        return "\n".join(service.log_end() for service in self._services.values())

    async def enrich(self, partitions: Sequence[Sequence[Entry]]) -> None:
        producer = Producer(self.kafka, "test")
        await producer.start()
        try:
            for partition, entries in enumerate(partitions):
                if records := [entry.record() for entry in entries]:
                    await producer.send_and_wait(self.topics.enriched, partition, records)
        finally:
            await producer.stop()

    async def results(self) -> dict[tuple[int, str], list[dict[str, Any]]]:
        """The results that normalize would let pass."""
        positions = [SourcePositions() for _ in range(PARTITIONS)]
        results_by_place: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for record in await read_all(self.kafka, self.topics.raw):
            position = source_position(record.headers)
            assert position is not None
            if not positions[record.partition].is_copy("carrier-delays", position, record.offset):
                body = orjson.loads(record.value)
                if "with" in body:
                    end_ms = time_ms(dict(record.headers)["ce_time"].decode())
                    place = joined_place(end_ms * 1000, body)
                else:
                    place = time_ms(body["window_end"]), body.get("event", body["carrier"])
                results_by_place.setdefault(place, []).append(body)
        return results_by_place

    async def until_results(self, count: int) -> dict[tuple[int, str], list[dict[str, Any]]]:
        end_s = time.monotonic() + WITHIN_S
        while len(results := await self.results()) < count:
            assert time.monotonic() < end_s, f"{len(results)} of {count}\n{self.logs()}"
            await asyncio.sleep(0.3)
        return results


def complete_log(*, joined: bool = False) -> StampedLog:
    """A log whose partitions all begin at once, and all of whose windows close at the end."""
    stamped_log = disordered(4 if joined else 3, PARTITIONS, 300, joined=joined)
    for partition in range(PARTITIONS):
        stamped_log.heartbeat(partition, 300_000)
    return stamped_log


def halves(stamped_log: StampedLog) -> list[list[list[Entry]]]:
    """The first and the second half of each partition."""
    first = [entries[: len(entries) // 2] for entries in stamped_log.partitions]
    second = [entries[len(entries) // 2 :] for entries in stamped_log.partitions]
    return [first, second]


def expected(stamped_log: StampedLog, window: dict[str, Any] = WINDOW) -> Outcome:
    """Results and refused events."""
    return outcome(
        stamped_log,
        [stamped_log.ends()],
        20_000,
        10_000,
        5_000,
        trailing_ms=20_000 if "each" in window else None,
        within_ms=2_000 if window == JOIN else None,
        keeps_unmatched=window == JOIN,
        limit=window.get("limit"),
    )


def letter(record: ConsumerRecord) -> tuple[int, str]:
    """Number of the event and reason of a dead letter."""
    return int(identity(record.headers).seq.rpartition(b":")[2]), fields(record.headers)[REASON].decode()


@pytest.mark.parametrize(
    ("point", "is_lost", "window"),
    [
        ("before folds", False, WINDOW),
        pytest.param("before the file", True, WINDOW, marks=pytest.mark.more),
        pytest.param("before the file", False, WINDOW, marks=pytest.mark.more),
        pytest.param("before the offset", True, WINDOW, marks=pytest.mark.more),
        pytest.param("before the file", True, EACH, marks=pytest.mark.more),
        pytest.param("before the file", True, LIMITED_EACH, marks=pytest.mark.more),
        pytest.param("before the results", False, JOIN, marks=pytest.mark.more),
        pytest.param("before folds", True, JOIN, marks=pytest.mark.more),
        pytest.param("before the file", True, JOIN, marks=pytest.mark.more),
        pytest.param("before the offset", False, JOIN, marks=pytest.mark.more),
    ],
)
async def test_a_killed_service_leaves_each_result_once(
    kafka: str, tmp_path: Path, point: str, is_lost: bool, window: dict[str, Any]
) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create(window)
    stamped_log = complete_log(joined=window == JOIN)
    first_half, second_half = halves(stamped_log)
    service = stream.start(point)
    try:
        await service.until_logged(TAKEN_OVER)
        await stream.enrich(first_half)
        await service.killed()
        if is_lost:
            shutil.rmtree(stream.data())
        await stream.enrich(second_half)
        oracle = expected(stamped_log, window)
        stream.start()
        results = await stream.until_results(len(oracle.results))
    finally:
        stream.stop()
    assert shown(results) == oracle.results
    letters = Counter(map(letter, await read_all(kafka, stream.topics.dead_letter)))
    assert letters.keys() == oracle.refused.keys()
    assert ("limit" in window) == any(reason == "key-limit" for _, reason in letters)
    assert len(oracle.results) > 20
    assert min(end_ms for end_ms, _ in oracle.results) < START_MS + 30_000


@pytest.mark.more
@pytest.mark.parametrize("point", ["before the results", "before folds"])
async def test_an_instance_that_wakes_after_another_has_taken_over_adds_no_result(
    kafka: str, tmp_path: Path, point: str
) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()
    stamped_log = complete_log()
    oracle = expected(stamped_log)
    frozen = stream.start(point, signal.SIGSTOP)
    try:
        await frozen.until_logged(TAKEN_OVER)
        await stream.enrich(stamped_log.partitions)
        async with asyncio.timeout(WITHIN_S):
            while not stream.marker.exists():
                frozen.require_running()
                await asyncio.sleep(0.1)
        other = stream.start(name="other")
        await other.until_logged(TAKEN_OVER)
        assert shown(await stream.until_results(len(oracle.results))) == oracle.results
        frozen.wake()
        await frozen.until_logged("step-turn-ended")
        assert shown(await stream.results()) == oracle.results
        assert len(await read_all(kafka, stream.topics.raw)) > len(oracle.results), "normalize drops copies"
        if point == "before folds":
            assert "the progress of the step was not written" in frozen.log.read_text()
    finally:
        stream.stop()


@pytest.mark.more
async def test_a_standby_folds_without_effect_until_it_is_warm_and_takes_over(
    kafka: str, tmp_path: Path
) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()
    stamped_log = complete_log()
    oracle = expected(stamped_log)
    first_half, second_half = halves(stamped_log)
    leader = stream.start()
    try:
        await leader.until_logged(TAKEN_OVER)
        await stream.enrich(first_half)
        standby = stream.start_eager("standby")
        await standby.until_logged("step-warm")
        assert TAKEN_OVER not in standby.log.read_text()
        leader.kill()
        await stream.enrich(second_half)
        assert shown(await stream.until_results(len(oracle.results))) == oracle.results
        assert TAKEN_OVER in standby.log.read_text()
        assert "rehearsal-failed" not in standby.log.read_text()
    finally:
        stream.stop()


async def test_a_step_of_an_undeclared_pipe_does_not_run_and_says_why(kafka: str, tmp_path: Path) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()
    orphan = step_pipe(WINDOW, **{"from": "trains"})
    await publish(kafka, stream.topics, [pipe_record(orphan, 2)])
    service = stream.start()
    try:
        end_s = time.monotonic() + WITHIN_S
        while "trains" not in str(service.ready()[1]):
            assert time.monotonic() < end_s, stream.logs()
            await asyncio.sleep(0.2)
    finally:
        stream.stop()
