"""Failures of a query that count as those of a record, and the effect of a record that takes too long."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from hifi.kafka.admin import create_topic
from hifi.kafka.clients import started_admin
from hifi.kafka.group_offsets import StartOffsets
from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.record.fields import fields
from hifi.record.headers import DETAIL
from hifi.record.record import Record
from hifi.runtime.errors import Retryable
from hifi.spark.spark_session import SparkExited
from hifi_enrich.plan.dataframe import NEWER_REVISION, newer_offset
from hifi_enrich.poison import quarantine as quarantine_module
from hifi_enrich.poison.offset_notes import unfinished_trial
from hifi_enrich.poison.quarantine import PoisonQuarantine, is_kafka_failure, trial_limit_s
from hifi_enrich.poison.search import OffsetRange

Write = Callable[[Mapping[int, int], Mapping[int, int], float], Awaitable[None]]


def test_a_failure_of_kafka_is_not_taken_for_a_poison_record() -> None:
    assert is_kafka_failure("Caused by: org.apache.kafka.common.errors.TimeoutException: Expiring 3 records")
    assert not is_kafka_failure("org.apache.kafka.common.errors.RecordTooLargeException: 9 bytes")
    assert not is_kafka_failure(
        "java.lang.StackOverflowError at org.apache.kafka.clients.producer.KafkaProducer.send"
    )


class _Offsets:
    """Offsets of one partition with eight records, or of others; remembers the notes that were committed."""

    def __init__(self, *, kafka_answers: bool = True, records: Mapping[int, int] | None = None) -> None:
        self.notes: list[str] = []
        self._records = dict(records or {0: 8})
        self.end_requests = 0
        self._kafka_answers = kafka_answers

    async def end(self) -> dict[int, int]:
        self.end_requests += 1
        if self.end_requests > 1 and not self._kafka_answers:
            raise OSError("no broker")
        return self._records

    async def commit(self, _: dict[int, int], notes: dict[int, str] | None = None) -> None:
        self.notes += (notes or {}).values()


async def _works(_: float) -> None:
    """Spark writes a made-up record."""


def _quarantine(
    offsets: _Offsets,
    write: Write,
    check: Callable[[float], Awaitable[None]] = _works,
    leading: Callable[[], bool] = lambda: True,
    written_offsets: Collection[int] = (),
    *,
    own_notes: dict[int, str] | None = None,
    last_offset_of_plan: int = -1,
) -> tuple[PoisonQuarantine, list[OffsetRange]]:
    settings: Any = SimpleNamespace(
        enrich_max_offsets_per_trigger=100, enrich_stall_s=120, kafka="", instance="enrich-1"
    )
    engine = SimpleNamespace(write_range=write, check_spark=check)
    quarantine = PoisonQuarantine(
        settings,
        Topics("s"),
        offsets,  # type: ignore[arg-type]
        engine,
        lambda _: False,
        leading,
        {} if own_notes is None else own_notes,
    )
    quarantined_ranges: list[OffsetRange] = []

    async def record_range(offset_range: OffsetRange) -> bool:
        quarantined_ranges.append(offset_range)
        return offset_range.first == last_offset_of_plan

    async def pass_written(offset_range: OffsetRange) -> bool:
        return offset_range.first in written_offsets

    vars(quarantine)["_quarantine"] = record_range  # in place of the methods, which ask Kafka
    vars(quarantine)["_pass_written"] = pass_written
    return quarantine, quarantined_ranges


async def test_an_event_that_takes_too_long_is_found_and_its_neighbours_are_written() -> None:
    limits = []

    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        limits.append(limit_s)
        if start[0] <= 5 < end[0]:
            raise TimeoutError

    quarantine, quarantined_ranges = _quarantine(_Offsets(), write)
    assert await quarantine.run(StartOffsets({0: 0}, {})) == 1
    assert quarantined_ranges == [OffsetRange(0, 5, 6)]
    assert max(limits) < 11


async def test_while_kafka_does_not_answer_no_event_is_blamed_for_the_time() -> None:
    async def write(*_: object) -> None:
        raise TimeoutError

    quarantine, quarantined_ranges = _quarantine(_Offsets(kafka_answers=False), write)
    with pytest.raises(Retryable):
        await quarantine.run(StartOffsets({0: 0}, {}))
    assert quarantined_ranges == []


async def test_while_spark_fails_on_any_record_none_is_blamed() -> None:
    """As without executors, or while Python workers cannot start: the search waits, and starts anew."""

    async def write(*_: object) -> None:
        raise RuntimeError("no executor")

    async def check(_: float) -> None:
        raise TimeoutError

    for note in ("", "trial:1again"):  # such as one of a process that ended twice on the record
        quarantine, quarantined_ranges = _quarantine(_Offsets(), write, check)
        with pytest.raises(Retryable, match="Spark fails on any record"):
            await quarantine.run(StartOffsets({0: 0}, {0: note}))
        assert quarantined_ranges == []


async def test_while_spark_works_every_record_on_which_it_fails_is_quarantined() -> None:
    async def write(*_: object) -> None:
        raise RuntimeError("stack overflow")

    quarantine, quarantined_ranges = _quarantine(_Offsets(), write)
    assert await quarantine.run(StartOffsets({0: 0}, {})) == 8
    assert quarantined_ranges == [OffsetRange(0, offset, offset + 1) for offset in range(8)]


async def test_a_process_whose_spark_has_stopped_ends_and_blames_no_record() -> None:
    async def write(*_: object) -> None:
        raise RuntimeError("Cannot call methods on a stopped SparkContext")

    async def check(_: float) -> None:
        raise SparkExited("Spark has stopped")

    quarantine, quarantined_ranges = _quarantine(_Offsets(), write, check)
    with pytest.raises(SparkExited):
        await quarantine.run(StartOffsets({0: 0}, {}))
    assert quarantined_ranges == []


@pytest.mark.parametrize("error", [TimeoutError(), RuntimeError("the executor was lost")])
async def test_a_record_on_which_spark_fails_once_is_written_at_the_second_trial(error: Exception) -> None:
    """As after the process was frozen during the trial."""
    trials: list[tuple[int, int]] = []

    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        trials.append((start[0], end[0]))
        if start[0] <= 5 < end[0] and trials.count((5, 6)) < 2:
            raise error

    quarantine, quarantined_ranges = _quarantine(_Offsets(), write)
    assert await quarantine.run(StartOffsets({0: 0}, {})) == 0
    assert quarantined_ranges == []
    assert trials.count((5, 6)) == 2


async def test_a_record_whose_output_is_in_kafka_is_not_quarantined() -> None:
    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        if start[0] <= 5 < end[0]:
            raise TimeoutError

    quarantine, quarantined_ranges = _quarantine(_Offsets(), write, written_offsets={5})
    assert await quarantine.run(StartOffsets({0: 0}, {})) == 0
    assert quarantined_ranges == []


@pytest.mark.parametrize("answers", range(9))
async def test_an_instance_that_does_not_lead_any_more_blames_no_record(answers: int) -> None:
    """Whenever it loses the leadership, the next leader writes the records."""
    leading_answers = [True] * answers

    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        raise TimeoutError

    quarantine, quarantined_ranges = _quarantine(
        _Offsets(), write, leading=lambda: bool(leading_answers and leading_answers.pop())
    )
    with pytest.raises(Retryable, match="does not lead"):
        await quarantine.run(StartOffsets({0: 0}, {}))
    assert len(quarantined_ranges) == (answers > 6)


async def test_an_own_note_of_an_interrupted_search_blames_no_record() -> None:
    """The process has survived the trial, which is made again."""
    writes: list[tuple[int, int]] = []
    own_notes: dict[int, str] = {}

    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        writes.append((start[0], end[0]))
        if len(writes) == 1:
            raise OSError("no broker")

    offsets = _Offsets()
    quarantine, quarantined_ranges = _quarantine(offsets, write, own_notes=own_notes)
    with pytest.raises(Retryable):
        await quarantine.run(StartOffsets({0: 5}, {0: "trial:6;poisoned:p@3=1"}))
    assert offsets.notes == ["trial:6again"]
    quarantine, quarantined_ranges = _quarantine(offsets, write, own_notes=own_notes)
    assert await quarantine.run(StartOffsets({0: 5}, {0: "trial:6again;poisoned:p@3=1"})) == 0
    assert writes == [(5, 6), (5, 8)]
    assert quarantined_ranges == []


async def test_the_note_of_a_dead_process_counts_after_an_interruption_too() -> None:
    """As when the executors of a new leader arrive only at the second search: the record is not tried a third time."""
    limits: list[float] = []
    own_notes: dict[int, str] = {}

    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        assert start[0] > 5

    async def check(limit_s: float) -> None:
        limits.append(limit_s)
        if len(limits) == 1:
            raise TimeoutError

    start = StartOffsets({0: 5}, {0: "trial:6again"})
    quarantine, quarantined_ranges = _quarantine(_Offsets(), write, check, own_notes=own_notes)
    with pytest.raises(Retryable, match="Spark fails on any record"):
        await quarantine.run(start)
    assert quarantined_ranges == []
    quarantine, quarantined_ranges = _quarantine(_Offsets(), write, check, own_notes=own_notes)
    assert await quarantine.run(start) == 1
    assert quarantined_ranges == [OffsetRange(0, 5, 6)]
    assert limits == [120, 120]


async def test_a_search_ends_when_the_next_plan_quarantines_the_revision() -> None:
    async def write(*_: object) -> None:
        raise RuntimeError("stack overflow")

    offsets = _Offsets(records={0: 8, 1: 8})
    quarantine, quarantined_ranges = _quarantine(offsets, write, last_offset_of_plan=2)
    assert await quarantine.run(StartOffsets({0: 0, 1: 0}, {})) == 3
    assert quarantined_ranges == [OffsetRange(0, offset, offset + 1) for offset in range(3)]


async def test_a_task_that_does_not_end_leaves_a_note_for_the_next_process() -> None:
    async def write(*_: object) -> None:
        raise SparkExited("a task does not end")

    offsets = _Offsets()
    quarantine, quarantined_ranges = _quarantine(offsets, write)
    with pytest.raises(SparkExited):
        await quarantine.run(StartOffsets({0: 0}, {}))
    assert [unfinished_trial(note) for note in offsets.notes] == [8]
    assert quarantined_ranges == []


@pytest.mark.parametrize(("records", "limit_s"), [(1, 10), (1_000, 20), (50_000, 120)])
def test_a_range_has_time_for_its_records_but_no_more_than_a_batch(records: int, limit_s: float) -> None:
    assert trial_limit_s(records, 120) == pytest.approx(limit_s, rel=0.01)


async def test_a_poison_record_that_kafka_has_deleted_meanwhile_is_passed_without_waiting(kafka: str) -> None:
    topics = Topics(f"s{uuid.uuid4().hex[:8]}")
    topic_partition, commits = TopicPartition(topics.normalized, 0), list[dict[int, int]]()
    producer = Producer(kafka, "test")
    async with started_admin(kafka, "test") as admin:
        await create_topic(admin, topics.normalized, 1, {})
        await producer.start()
        await producer.send_and_wait(topics.normalized, 0, [Record(b"k", b"{}", []) for _ in range(2)])
        await producer.stop()
        await admin.delete_records({topic_partition: RecordsToDelete(before_offset=2)})

    async def commit(offsets: dict[int, int]) -> None:
        commits.append(offsets)

    settings: Any = SimpleNamespace(kafka=kafka, instance="enrich-1")
    quarantine = PoisonQuarantine(
        settings,
        topics,
        SimpleNamespace(commit=commit),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        lambda _: False,
        lambda: True,
        {},
    )
    async with asyncio.timeout(60):
        await quarantine._quarantine(OffsetRange(0, 1, 2))
    assert commits == [{0: 2}]


class _Consumer:
    """Has one record, or fails to parse it."""

    def __init__(self, record: Any) -> None:
        self._record = record

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def assign(self, _: Any) -> None:
        pass

    def seek(self, *_: Any) -> None:
        pass

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def getone(self, _: TopicPartition) -> Any:
        if isinstance(self._record, Exception):
            raise self._record
        return self._record


class _Letters:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Record] = []

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send_and_wait(self, *arguments: Any) -> None:
        self.sent += arguments[-1]


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        (
            SimpleNamespace(offset=7, key=b"k", value=b"x" * MAX_RECORD_BYTES, headers=[("ce_id", None)]),
            "without its data",
        ),
        (
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
            "offset 7 of s.normalized, same partition, cannot be parsed",
        ),
    ],
    ids=["too-large", "unparsed"],
)
async def test_a_poison_record_that_cannot_be_copied_is_a_dead_letter_without_its_data(
    record: Any, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters, commits = _Letters(), list[dict[int, int]]()
    monkeypatch.setattr(quarantine_module, "assigned_consumer", lambda *_, **__: _Consumer(record))
    monkeypatch.setattr(quarantine_module, "Producer", lambda *_: letters)

    async def commit(offsets: dict[int, int]) -> None:
        commits.append(offsets)

    settings: Any = SimpleNamespace(kafka="", instance="enrich-1")
    quarantine = PoisonQuarantine(
        settings,
        Topics("s"),
        SimpleNamespace(commit=commit),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        lambda _: True,
        lambda: True,
        {},
    )
    assert await quarantine._quarantine(OffsetRange(0, 7, 8))  # as the function that counts it says
    [letter] = letters.sent
    assert letter.value is None
    assert is_sendable(letter)
    assert detail in fields(letter.headers)[DETAIL].decode()
    assert commits == [{0: 8}]


async def test_a_search_that_meets_an_event_of_a_later_revision_names_its_offset() -> None:
    async def write(*_: object) -> None:
        raise RuntimeError(f"{'x' * 500} {NEWER_REVISION}=12 in the plan")

    quarantine, _ = _quarantine(_Offsets(), write)
    with pytest.raises(Retryable) as caught:
        await quarantine.run(StartOffsets({0: 0}, {}))
    assert newer_offset(str(caught.value)) == 12


async def test_a_record_whose_trial_was_interrupted_once_is_tried_again() -> None:
    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        pass

    for note, quarantined, notes in (
        ("trial:6", [], ["trial:6again", "trial:8"]),
        ("trial:6again", [OffsetRange(0, 5, 6)], ["trial:8"]),
    ):
        offsets = _Offsets()
        quarantine, quarantined_ranges = _quarantine(offsets, write)
        await quarantine.run(StartOffsets({0: 5}, {0: note}))
        assert quarantined_ranges == quarantined
        assert offsets.notes == notes


async def test_a_note_on_a_partition_without_records_does_not_stay() -> None:
    async def write(start: Mapping[int, int], end: Mapping[int, int], limit_s: float) -> None:
        raise AssertionError("there is nothing to write")

    class EmptyOffsets(_Offsets):
        committed: Mapping[int, int] | None = None

        async def commit(self, offsets: dict[int, int], notes: dict[int, str] | None = None) -> None:
            self.committed = offsets
            await super().commit(offsets, notes)

    offsets = EmptyOffsets()
    quarantine, _ = _quarantine(offsets, write)
    assert await quarantine.run(StartOffsets({0: 8}, {0: "crashes:2"})) == 0
    assert offsets.committed == {0: 8}
    assert offsets.notes == []
