"""A record on which the code of a kind fails is refused alone, with its id; one whose schema was displaced is read."""

import asyncio
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from aiokafka import TopicPartition

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import TopicEvents
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi.runtime.clock import now_us
from hifi_collect.topic.topic_reader import KafkaTopicReader, _PartitionState


class Reader(KafkaTopicReader):
    """A reader without a topic, which makes events of the records of a test."""

    def __init__(self, failures: dict[int, int]) -> None:
        self._pipe, self._cluster = "orders", "cluster"
        self._work_lock = asyncio.Lock()
        self._max_bytes = 100
        self.failures = failures
        """Offset to how often it fails."""
        self.prepared: list[int] = []
        self._event = self.make

    def make(self, record: Any) -> SourceEvent:
        if self.failures.get(record.offset, 0):
            self.failures[record.offset] -= 1
            raise KeyError(record.offset)
        return SourceEvent(record.offset, b"k", record.value, [("ce_id", b"%d" % record.offset)], None)

    async def _prepare(self, _: Any, batch: Any) -> None:
        self.prepared += [record.offset for record in batch]


async def events(reader: Reader) -> list[SourceEvent]:
    records: Any = [
        SimpleNamespace(topic="t", partition=1, offset=offset, value=b"{}" if offset else b"x" * 101)
        for offset in range(1000)
    ]
    return await reader._events(None, records)  # type: ignore[arg-type]


async def test_a_record_on_which_the_reader_fails_again_is_refused_alone_with_its_id() -> None:
    reader = Reader({500: 99})
    source_events = await events(reader)
    assert [event.position for event in source_events] == [*range(1000)]
    assert [event.position for event in source_events if REFUSED in dict(event.headers)] == [500]
    headers = dict(source_events[500].headers)
    assert (headers["ce_id"], headers["ce_source"]) == (b"cluster/t/1/500", b"kafka://cluster/t")
    assert parse_refusal(headers[REFUSED]).reason == "collect-failed"
    assert "KeyError" in parse_refusal(headers[REFUSED]).detail
    assert source_events[500].data == b"{}"
    large_event, *_ = await events(Reader({0: 99}))
    assert (dict(large_event.headers)["ce_id"], large_event.data) == (b"cluster/t/1/0", None)


async def test_a_record_on_which_the_reader_fails_once_is_prepared_again_and_read() -> None:
    reader = Reader({0: 1, 999: 1})
    source_events = await events(reader)
    assert [event for event in source_events if REFUSED in dict(event.headers)] == []
    assert reader.prepared == [0, 999]


class Written(KafkaTopicReader):
    """A reader that writes to lists: batches of positions with the source partition, and remembered events."""

    def __init__(self, events: list[SourceEvent], topic_events: TopicEvents) -> None:
        self.written_batches: list[Any] = []
        self._source_events = events
        source: Any = None
        self._pipe, self._source = "orders", source
        self._work_lock = asyncio.Lock()
        self._topic_events = topic_events
        revision = SimpleNamespace(pipe=SimpleNamespace(source=None))
        self._registry: Any = SimpleNamespace(get=lambda _: revision)
        self._writer: Any = SimpleNamespace(begin=self.begin)
        self._pace: Any = SimpleNamespace(progress=SimpleNamespace(advance=lambda *_: None))
        self._deleted: Any = SimpleNamespace(report=lambda *_: None)
        self._states = WeakKeyDictionary()

    async def begin(self, _: Any, events: Any, times_us: Any, source: bytes, *__: Any, **___: Any) -> Any:
        self.written_batches.append((source, [event.position for event in events], set(times_us)))
        written = asyncio.get_running_loop().create_future()
        written.set_result(None)
        return written

    async def _prepare(self, *_: Any) -> None:
        pass

    async def _events(self, *_: Any) -> list[SourceEvent]:
        return self._source_events

    async def _keep_times(self, _: Any, partition_state: Any, batch: Any, accepted_us: int) -> None:
        if partition_state.times.at(batch[-1].offset) is None:
            partition_state.times.extend(batch[-1].offset + 1, accepted_us)

    def _end_offset(self, _: Any) -> int:
        return 0


class Following(TopicEvents):
    def __init__(self) -> None:
        self.remembered: list[int] = []
        self.writes = 0

    def event_reader(self, cluster: str) -> Any:
        raise NotImplementedError

    def remember(self, events: Any) -> Any:
        async def write() -> None:
            self.remembered += [event.position for event in events]

        return write()

    async def following(self, _: Any, event: SourceEvent) -> Any:
        assert self.remembered == list(range(event.position))
        following = [[("swept/1", [source_event(1), source_event(2)])], [("swept/5", [source_event(0)])], []]
        return following[self.writes]

    async def following_written(self) -> None:
        self.writes += 1


def source_event(position: int) -> SourceEvent:
    return SourceEvent(position, b"k", b"{}", [], None)


async def test_what_follows_a_record_is_written_after_all_before_it_and_before_all_after_it() -> None:
    events = [source_event(position) for position in range(6)]
    events[2].skipped = events[2].followed = True
    events[5].skipped = True
    topic_events = Following()
    reader = Written(events, topic_events)
    assigned = AssignedPartition(TopicPartition("t", 0))
    reader._states[assigned] = _PartitionState(assigned, b"kafka/c/t/i/0", 60.0)
    batch: Any = [SimpleNamespace(offset=offset, timestamp=now_us() // 1000) for offset in range(6)]
    for offset in range(6):
        assigned.offsets.start(offset)
    await reader._handle(assigned, batch)
    await assigned.outputs_acknowledged()
    batches = [(source, positions) for source, positions, _ in reader.written_batches]
    assert batches == [
        (b"kafka/c/t/i/0", [0, 1]),
        (b"kafka/c/t/i/0/swept/1", [1, 2]),
        (b"kafka/c/t/i/0/swept/5", [0]),
        (b"kafka/c/t/i/0", [3, 4]),
    ]
    assert topic_events.remembered == list(range(6))
    assert topic_events.writes == 2, "what was written is noted before the next is asked for"
    assert assigned.offsets.committable == 6


async def test_what_follows_is_of_another_run_where_it_is_not_known_that_all_was_noted() -> None:
    class Forgetful(Following):
        async def following_written(self) -> None:
            raise ConnectionError("Kafka is away")

    events = [source_event(0)]
    events[0].skipped = events[0].followed = True
    reader = Written(events, Forgetful())
    assigned = AssignedPartition(TopicPartition("t", 0))
    state = reader._states[assigned] = _PartitionState(assigned, b"kafka/c/t/i/0", 60.0)
    run_before = state.reader_run
    record: Any = SimpleNamespace(offset=0, timestamp=now_us() // 1000)
    assigned.offsets.start(0)
    with pytest.raises(ConnectionError):
        await reader._handle(assigned, [record])
    assert state.reader_run != run_before
