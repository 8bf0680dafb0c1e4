"""A batch goes on past an event that cannot be processed; without Kafka, in one process."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaConnectionError
from tests.support.normalize.normalize_harness import Stream, pipe

from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.offset_tracker import OffsetTracker
from hifi.kafka.producer import Producer
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.pipe.model import Pipe
from hifi.pipe.pipes_end import PipesEnd
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import pipe_record
from hifi.record.fields import fields
from hifi.record.identity import identity
from hifi.record.record import Record
from hifi.runtime.health import Health
from hifi_normalize import step
from hifi_normalize.compiled_pipes import CompiledPipes
from hifi_normalize.functions.function_runner import FunctionLimits, FunctionRunner
from hifi_normalize.idempotency.idempotency_cache import IdempotencyCache
from hifi_normalize.stamps.partition_watermarks import PartitionWatermarks
from hifi_normalize.stamps.stamps import Stamps
from hifi_normalize.step import Normalizer

TOPICS = Topics("t")
APPENDED_MS = 1_800_000_000_000


class WrittenTopics:
    """Replaces the producer."""

    bootstrap = "nowhere:1"

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.sent_bytes: list[int] = []
        self.held: dict[str, asyncio.Event] = {}
        """What acknowledges the records of a topic; without it they are acknowledged at once."""

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> Any:
        acknowledged = asyncio.get_running_loop().create_future()
        acknowledged.set_result(None)
        self.records[topic] += records
        self.sent_bytes.append(sum(len(record.value or b"") for record in records))
        return SimpleNamespace(acknowledged=acknowledged, topic=topic, partition=partition)

    async def send_when_room(self, topic: str, partition: int, records: Sequence[Record]) -> Any:
        return self.send(topic, partition, records)

    async def send_and_wait(self, topic: str, partition: int, records: Sequence[Record], **_: bool) -> None:
        self.send(topic, partition, records)
        if topic in self.held:
            await self.held[topic].wait()

    def reasons(self) -> list[bytes]:
        return [fields(letter.headers)["hifi_reason"] for letter in self.records[TOPICS.dead_letter]]


class CacheOfNothing(IdempotencyCache):
    """Nobody has written fingerprints or source positions."""

    async def _read(self, *_: Any) -> None:
        """There is nothing to read."""


class Normalized:
    """A normalizer of some pipes, and what it wrote for one partition."""

    def __init__(self, *pipes: Pipe, window_s: float = 0) -> None:
        self.topics, self.health = WrittenTopics(), Health("normalize", "test")
        producer = cast(Producer, self.topics)
        self.registry = PipeRegistry("nowhere:1", TOPICS, self.health)
        for offset, declared in enumerate(pipes, 1):
            record = pipe_record(declared)
            self.registry._apply(
                SimpleNamespace(key=record.key, value=record.value, offset=offset, timestamp=0)
            )
        runner = FunctionRunner(FunctionLimits(0.5, 1.0, 2**28), self.health)
        stamps = Stamps(self.registry, producer, TOPICS.normalized, self.health)
        self.pipes = CompiledPipes(self.registry, self.health, 60, runner)
        self.normalizer = Normalizer(
            self.registry,
            self.pipes,
            runner,
            producer,
            CacheOfNothing(
                "nowhere:1",
                "i",
                "ids",
                "positions",
                producer,
                self.health,
                window_s=window_s,
                max_fingerprints=1000,
            ),
            stamps,
            TOPICS,
            self.health,
            pipe_wait_s=0.01,
        )
        self.assigned = AssignedPartition(TopicPartition(TOPICS.raw, 0))
        stamps.begin(self.assigned)
        self.next_offset = 0

    async def step(self, *events: Record) -> None:
        """Normalize a batch."""
        first_offset, self.next_offset = self.next_offset, self.next_offset + len(events)
        batch = [
            ConsumerRecord(
                TOPICS.raw,
                0,
                offset,
                APPENDED_MS,
                1,
                event.key,
                event.value,
                None,
                0,
                0,
                tuple(event.headers),
            )
            for offset, event in enumerate(events, first_offset)
        ]
        for offset in range(first_offset, self.next_offset):
            self.assigned.offsets.start(offset)
        waiting = self.normalizer.step(self.assigned, batch)
        if waiting is not None:
            async with asyncio.timeout(20):
                await waiting
        await asyncio.sleep(0)  # what is acknowledged is completed


def event_of(name: str, data: object = None, *, version: int = 1) -> Record:
    return Stream("nowhere:1", "t").event(name, {} if data is None else data, version=version)


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "_REVISION_POLL_S", 0.01)
    monkeypatch.setattr(step, "_END_POLL_S", 0.05)


@pytest.mark.usefixtures("_fast")
async def test_an_event_of_a_revision_that_was_never_published_is_a_dead_letter_without_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Exception | PipesEnd] = [
        KafkaConnectionError("away"),
        PipesEnd(2, APPENDED_MS),  # the event may have been accepted since
        PipesEnd(2, APPENDED_MS + 1),
    ]

    async def read_pipes_end(*_: Any) -> PipesEnd:
        answer = told.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(step, "read_pipes_end", read_pipes_end)
    normalized = Normalized(pipe("p"))
    unknown_event = event_of("p", {"secret": 1}, version=10**17)
    await normalized.step(event_of("p"), unknown_event, event_of("p"), unknown_event, event_of("p"))
    assert told == []
    assert len(normalized.topics.records[TOPICS.normalized]) == 3
    assert normalized.topics.reasons() == [b"pipe-unreadable"] * 2
    letter = normalized.topics.records[TOPICS.dead_letter][0]
    assert (letter.key, letter.value, fields(letter.headers)["hifi_raw"]) == (None, None, b"1")
    assert normalized.health.warnings == {}
    assert normalized.assigned.offsets.committable == 5


@pytest.mark.usefixtures("_fast")
async def test_a_wait_for_a_revision_that_is_cancelled_leaves_no_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read_pipes_end(*_: Any) -> PipesEnd:
        return PipesEnd(2, APPENDED_MS)

    monkeypatch.setattr(step, "read_pipes_end", read_pipes_end)
    normalized = Normalized(pipe("p"))
    handling = asyncio.create_task(normalized.step(event_of("p", version=3)))
    async with asyncio.timeout(20):
        while not normalized.health.warnings:
            await asyncio.sleep(0.005)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert normalized.health.warnings == {}


async def test_an_event_on_which_the_code_fails_is_a_dead_letter_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    normalized = Normalized(pipe("p"), pipe("q"))
    plain_program = normalized.pipes.get("p", 1)

    def fail(_: bytes) -> bytes:
        raise ZeroDivisionError

    programs = {"p": plain_program, "q": replace(plain_program, steps=(fail,))}
    monkeypatch.setattr(normalized.pipes, "get", lambda name, _: programs[name])
    await normalized.step(event_of("p"), event_of("q"), event_of("p"))
    assert normalized.topics.reasons() == [b"normalize-failed"]
    assert len(normalized.topics.records[TOPICS.normalized]) == 2


async def test_an_output_above_the_limit_of_a_record_is_a_dead_letter_and_many_large_ones_are_written_in_parts() -> (
    None
):
    copies = {f"f{number}": {"from": "text"} for number in range(40)}
    normalized = Normalized(pipe("p", fields=copies))
    grows_too_large = event_of("p", {"text": "x" * (MAX_RECORD_BYTES // 39)})
    grows = event_of("p", {"text": "x" * (MAX_RECORD_BYTES // 80)})
    await normalized.step(grows_too_large, *[grows] * 20, grows_too_large, *[grows] * 20)
    assert normalized.topics.reasons() == [b"too-large"] * 2
    assert (
        b"the data that the pipe makes of the event has 4,"
        in fields(normalized.topics.records[TOPICS.dead_letter][0].headers)["hifi_detail"]
    )
    assert len(normalized.topics.records[TOPICS.normalized]) == 40
    assert max(normalized.topics.sent_bytes) < 20 * 2**20
    assert normalized.assigned.offsets.committable == 42


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside others"])
@pytest.mark.parametrize("is_repeated", [False, True], ids=["dead letter", "receipt"])
async def test_nothing_follows_on_normalized_before_the_end_of_an_earlier_event_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, is_repeated: bool, others: int
) -> None:
    normalized = Normalized(pipe("p"))
    written = normalized.topics.records[TOPICS.normalized]
    await normalized.step(event_of("p"))
    if is_repeated:
        monkeypatch.setattr(
            normalized.normalizer, "_first_copy", lambda _, record, __: b"0" if record.offset == 1 else None
        )
    topic = TOPICS.receipts if is_repeated else TOPICS.dead_letter
    acknowledged = normalized.topics.held[topic] = asyncio.Event()
    ended_event = event_of("p" if is_repeated else "unknown")
    handling = asyncio.create_task(normalized.step(ended_event, *[event_of("p")] * others))
    async with asyncio.timeout(20):
        while not normalized.topics.records[topic]:
            await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not handling.done(), "the next batch waits"
    assert (len(written), normalized.assigned.offsets.committable) == (1, 1)
    acknowledged.set()
    await handling
    await normalized.step(event_of("p"))
    assert len(written) == 2 + others
    assert normalized.assigned.offsets.committable == 3 + others


async def test_an_event_that_raw_has_twice_goes_on_once_however_often_it_is_read() -> None:
    normalized = Normalized(pipe("p"), window_s=600)
    written_twice = event_of("p")
    replayed = Record(written_twice.key, written_twice.value, [*written_twice.headers, ("hifi_replay", b"1")])
    for times in (1, 2):  # a batch whose handler failed is read again
        normalized.next_offset, normalized.assigned.offsets = 0, OffsetTracker()
        await normalized.step(written_twice, written_twice, replayed)
        hops = [fields(record.headers)["hifi_raw"] for record in normalized.topics.records[TOPICS.normalized]]
        assert hops == [b"0", b"2"] * times
    await normalized.step(written_twice)  # there is nothing to write for the whole batch
    async with asyncio.timeout(20):
        while normalized.assigned.offsets.committable != 4:
            await asyncio.sleep(0.01)
    assert len(normalized.topics.records[TOPICS.normalized]) == 4
    assert normalized.topics.records[TOPICS.receipts] == [], (
        "the outcomes of the first copy are its only ones"
    )
    assert normalized.topics.records[TOPICS.dead_letter] == []


@pytest.mark.parametrize("by_clock", [False, True])
def test_an_event_of_an_ingest_whose_clock_is_ahead_makes_no_later_one_late(by_clock: bool) -> None:
    watermarks = PartitionWatermarks(f'{{"pipes":1,"marks":{{"p":{APPENDED_MS}}}}}', 0.0, by_clock=by_clock)
    watermarks.go_to(0)
    stamps = []
    for offset, (accepted_ms, appended_ms) in enumerate([(3_600_000, 0), (1_000, 1_000), (2_000, 2_000)]):
        accepted_us = b"%d" % ((APPENDED_MS + accepted_ms) * 1000)
        headers = tuple(
            (name, value.replace(b"1800000000000000", accepted_us)) for name, value in event_of("p").headers
        )
        record = ConsumerRecord(
            TOPICS.raw, 0, offset, APPENDED_MS + appended_ms, 1, None, b"{}", None, 0, 0, headers
        )
        stamps.append(step._stamp(watermarks, record, identity(headers), 0.0))
    assert [(stamp or 0) - APPENDED_MS for stamp in stamps] == (
        [0, 1_000, 2_000] if by_clock else [0, 0, 1_000]
    )
