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
from hifi.runtime.errors import Fenced
from hifi_collect.topic import topic_reader
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
        self._deleted: Any = SimpleNamespace(report=lambda *_: [])
        self._lease: Any = SimpleNamespace(held=lambda: True)
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


@pytest.mark.parametrize("reason", ["another source", "a backfill that ends"])
async def test_who_stops_reading_keeps_the_position_of_all_that_was_written(reason: str) -> None:
    class Plain(TopicEvents):
        def event_reader(self, cluster: str) -> Any:
            raise NotImplementedError

    events = [source_event(position) for position in range(4)]
    reader = Written(events[:2], Plain())
    acknowledged = asyncio.get_running_loop().create_future()

    async def begin(*_: Any, **__: Any) -> Any:
        return acknowledged

    reader._writer.begin = begin
    assigned = AssignedPartition(TopicPartition("t", 0))
    reader._states[assigned] = _PartitionState(assigned, b"kafka/c/t/i/0", 60.0)
    batch: Any = [SimpleNamespace(offset=offset, timestamp=now_us() // 1000) for offset in range(4)]
    for offset in range(4):
        assigned.offsets.start(offset)
    await reader._handle(assigned, batch[:2])
    reader._source_events = events[2:]
    if reason == "another source":
        reader._source = object()  # type: ignore[assignment]
    else:
        events[2].backfill = True
        reader._pace.chunks = lambda indexes: [indexes]
        assigned.revoke()
    with pytest.raises(Fenced):
        await reader._handle(assigned, batch[2:])
    draining = asyncio.create_task(assigned.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    acknowledged.set_result(None)
    async with asyncio.timeout(20):
        await draining
    assert assigned.offsets.committable == 2


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


class Committing(Written):
    """A `Written` that commits to a list, of a topic with an id; its writer may never get an acknowledgement."""

    _keep_times = KafkaTopicReader._keep_times  # type: ignore[assignment]

    def __init__(self, topic_id: str, *, acknowledges: bool = True) -> None:
        super().__init__([source_event(position) for position in (50, 51)], Following())
        self.commits: list[tuple[int, str]] = []
        self.reported: list[range] = []
        self.reports: list[asyncio.Future[None]] = []
        self.topic_id, self._acknowledges = topic_id, acknowledges
        self._consumer: Any = SimpleNamespace(member=SimpleNamespace(commit=self.commit), assigned={})
        self._pace: Any = SimpleNamespace(after_s=60.0, progress=SimpleNamespace(advance=lambda *_: None))
        self._deleted: Any = SimpleNamespace(report=self.report)
        self._cluster, source = "c", SimpleNamespace(topic="t")
        self._source: Any = source
        revision = SimpleNamespace(pipe=SimpleNamespace(source=source))
        self._registry: Any = SimpleNamespace(get=lambda _: revision)

    def report(self, _: Any, ranges: list[range]) -> list[asyncio.Future[None]]:
        self.reported.extend(ranges)
        return self.reports

    async def commit(self, commits: Any) -> None:
        self.commits += [(commit.offset, commit.metadata) for commit in commits.values()]

    async def begin(self, *arguments: Any, **options: Any) -> Any:
        written = await super().begin(*arguments, **options)
        return written if self._acknowledges else asyncio.get_running_loop().create_future()

    async def _request_topic_id(self) -> str | None:
        return self.topic_id


def assign(
    reader: Committing, committed: int | None, metadata: str, offsets: tuple[int, ...]
) -> tuple[AssignedPartition, Any]:
    """A partition of the reader, and its first batch."""
    assigned = AssignedPartition(TopicPartition("t", 0), committed, metadata)
    reader._consumer.assigned[assigned.tp] = assigned
    for offset in offsets:
        assigned.offsets.start(offset)
    return assigned, [SimpleNamespace(offset=offset, timestamp=now_us() // 1000) for offset in offsets]


async def test_the_position_before_deleted_records_stays_committed_while_what_follows_them_is_written() -> (
    None
):
    reader = Committing("i", acknowledges=False)
    assigned, batch = assign(reader, 10, "", (50, 51))
    assigned.deleted.append(range(10, 50))
    await reader._handle(assigned, batch)
    assert [offset for offset, _ in reader.commits] == [10]
    assert reader.reported == [range(10, 50)]
    assert reader.written_batches
    assert assigned.offsets.committable is None


async def test_deleted_records_before_a_record_that_others_follow_are_reported() -> None:
    class FollowingAlone(Following):
        async def following(self, *_: Any) -> Any:
            return []

    reader = Committing("i")
    reader._topic_events = FollowingAlone()
    reader._source_events[0].skipped = reader._source_events[0].followed = True
    assigned, batch = assign(reader, 10, "", (50, 51))
    assigned.deleted.append(range(10, 50))
    await reader._handle(assigned, batch)
    assert reader.reported[0] == range(10, 50)


@pytest.mark.parametrize("metadata", ["", "1;50:7", "2;new;50:7", "2;c/new;50:7"])
async def test_a_topic_is_read_on_whose_id_is_that_of_the_commit_or_was_not_known_then(metadata: str) -> None:
    reader = Committing("new")
    assigned, batch = assign(reader, 50, metadata, (50, 51))
    await reader._handle(assigned, batch)
    assert [source for source, *_ in reader.written_batches] == [b"kafka/c/t/new/0"]
    assert [text[:8] for _, text in reader.commits] == ["2;c/new;"]
    assert assigned.metadata_at(50)[:8] == "2;c/new;"


async def test_a_topic_that_another_cluster_has_is_read_on_at_the_offset_that_was_synced() -> None:
    reader = Committing("new")
    assigned, batch = assign(reader, 50, "2;earlier/old;70:7", (50, 51))
    in_us = now_us()
    await reader._handle(assigned, batch)
    [(source, positions, times_us)] = reader.written_batches
    assert (source, positions) == (b"kafka/c/t/new/0", [50, 51])
    assert min(times_us) >= in_us, "the accepted times are of positions in the other cluster"
    [(offset, metadata)] = reader.commits
    assert (offset, metadata[:12]) == (50, "2;c/new;52:1")


@pytest.mark.parametrize("metadata", ["2;old;70:7", "2;c/old;70:7"])
async def test_a_topic_that_was_created_again_is_read_from_its_beginning(metadata: str) -> None:
    reader = Committing("new")
    assigned, batch = assign(reader, 60, metadata, (50, 51))
    with pytest.raises(Fenced, match="created again"):
        await reader._handle(assigned, batch)
    assert reader.commits == [(0, "2;c/new;")]
    assert reader.written_batches == []
    assert assigned.metadata_at(60) == metadata, "so that a later commit of it is noticed, too"


@pytest.mark.parametrize("is_idle", [False, True])
async def test_a_topic_that_was_created_again_during_an_assignment_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    reader = Committing("old")
    assigned, batch = assign(reader, 50, "2;c/old;", (50, 51))
    if not is_idle:
        await reader._handle(assigned, batch)
    reader.commits.clear()
    monkeypatch.setattr(topic_reader, "_LOOK_S", 0)
    watching = asyncio.create_task(reader._watch_topic_id())
    reader.topic_id = "new"
    async with asyncio.timeout(20):
        await assigned.revoked.wait()
    watching.cancel()
    assert reader.commits == [(0, "2;c/new;")]
    assert assigned.void


async def test_the_topic_is_watched_on_after_a_membership_has_ended_or_a_look_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Committing("new")
    assigned, _ = assign(reader, 50, "2;c/old;", (50,))
    member, reader._consumer.member = reader._consumer.member, None
    with pytest.raises(Fenced, match="membership has ended"):
        await reader._refuse_earlier_topic("new")
    looks = 0

    async def look() -> str:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ValueError("the password file is empty")
        if looks == 3:
            reader._consumer.member = member
        return "new"

    monkeypatch.setattr(reader, "_request_topic_id", look)
    monkeypatch.setattr(topic_reader, "_LOOK_S", 0)
    watching = asyncio.create_task(reader._watch_topic_id())
    async with asyncio.timeout(20):
        await assigned.revoked.wait()
    watching.cancel()
    assert (looks, reader.commits) == (3, [(0, "2;c/new;")])


@pytest.mark.parametrize("is_followed", [False, True])
async def test_nothing_is_written_down_by_who_may_have_lost_the_partition(*, is_followed: bool) -> None:
    events = [source_event(0)]
    events[0].skipped = events[0].followed = is_followed
    topic_events = Following()
    reader = Written(events, topic_events)
    reader._lease.held = lambda: False
    assigned = AssignedPartition(TopicPartition("t", 0))
    reader._states[assigned] = _PartitionState(assigned, b"kafka/c/t/i/0", 60.0)
    record: Any = SimpleNamespace(offset=0, timestamp=now_us() // 1000)
    assigned.offsets.start(0)
    with pytest.raises(Fenced, match="may belong to another member"):
        await reader._handle(assigned, [record])
    assert reader.written_batches, "normalize drops what is written twice"
    assert (topic_events.remembered, topic_events.writes) == ([], 0)
    assert assigned.offsets.committable is None


async def test_what_follows_deleted_records_is_complete_only_when_they_are_reported() -> None:
    reader = Committing("i")
    assigned, batch = assign(reader, 10, "", (50, 51))
    report = asyncio.get_running_loop().create_future()
    reader.reports.append(report)
    await reader._handle(assigned, batch)
    await asyncio.sleep(0)
    assert assigned.offsets.committable is None
    report.set_result(None)
    await assigned.outputs_acknowledged()
    assert assigned.offsets.committable == 52
