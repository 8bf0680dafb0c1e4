"""A reader that cannot take what it was given fails, so that another joins anew."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from tests.support.observe.simulated_mesh import Row, identity

from hifi.kafka.topics import Topics
from hifi.record.fields import packed
from hifi.runtime.trusted_clock import TrustedClock, read_clocks
from hifi_observe.kafka import topic_reader
from hifi_observe.kafka.offset_snapshot import OffsetSnapshotReader
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.topic_reader import TopicReader
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.stage import EventStage
from hifi_observe.settings import ObserveSettings

MINUTE = 28_333_333


class Nothing:
    """Stands for a client of Kafka, and answers nothing."""

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("error", [KafkaError("no leader"), TimeoutError(), OSError("gone")])
async def test_a_ledger_that_cannot_be_loaded_ends_the_reader(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def load_ledger(*_: Any) -> None:
        raise error

    monkeypatch.setattr(topic_reader, "load_ledger", load_ledger)
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    topics = Topics("s")
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), TrustedClock())  # type: ignore[arg-type]
    membership = reader._membership

    class Joining(Nothing):
        generation = 1

        async def start(self) -> None:
            with contextlib.suppress(Exception):  # as the group's coordinator, which logs it and goes on
                await membership._changed({0}, set())

    reader._membership, reader._snapshots, reader._consumer = Joining(), Nothing(), Nothing()  # type: ignore[assignment]
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(reader.run(), 5)
    assert raised.value.exceptions == (error,)


async def test_a_ledger_begins_above_the_terms_that_this_process_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known_terms = []

    async def load_ledger(*options: Any) -> PartitionLedger:
        known_terms.append(options[-1])
        return PartitionLedger(0, ClosingRules())

    monkeypatch.setattr(topic_reader, "load_ledger", load_ledger)
    settings, topics = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i"), Topics("s")
    publisher = Publisher(None, topics, lambda: 1)  # type: ignore[arg-type]
    reader = TopicReader(settings, topics, publisher, TrustedClock(), known_term=lambda: 30)
    reader._consumer = RecreatedTopic()
    await reader._change({0}, set())
    assert known_terms == [30]


class IgnoresCancellation(Nothing):
    """Stands for a client whose `stop` swallows a cancellation, as `wait_for` of Python 3.11 can in aiokafka."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def stop(self) -> None:
        """Return only once released."""
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.released.wait()


@pytest.mark.slow
async def test_a_client_that_never_stops_does_not_keep_the_reader_from_ending() -> None:
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    topics = Topics("s")
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), TrustedClock())  # type: ignore[arg-type]
    stuck_client = IgnoresCancellation()
    reader._membership, reader._snapshots, reader._consumer = stuck_client, Nothing(), Nothing()  # type: ignore[assignment]
    reader_task = asyncio.create_task(reader.run())
    await asyncio.sleep(0)
    reader_task.cancel()
    ended_tasks, _ = await asyncio.wait({reader_task}, timeout=30)
    stuck_client.released.set()
    assert ended_tasks == {reader_task}


async def test_minutes_are_closed_by_a_time_that_kafka_has_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, topics, clock = ObserveSettings(kafka="127.0.0.1:9", stream="s"), Topics("s"), TrustedClock()
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), clock)  # type: ignore[arg-type]
    clocks = read_clocks()
    assert reader._time_us() is None, "Kafka has not confirmed it: the wall clock may be ahead"
    clock.confirm(clocks, clocks.wall_us // 1000, clocks.monotonic_us)
    ahead = clocks._replace(wall_us=clocks.wall_us + 3 * 3_600_000_000)
    monkeypatch.setattr(topic_reader, "read_clocks", lambda: ahead)
    assert reader._time_us() == clocks.wall_us


class LeaseDouble(Nothing):
    """Stands for a membership whose lease the test ends."""

    def __init__(self) -> None:
        self.is_held = True

    def held(self) -> bool:
        """Whether the lease goes on."""
        return self.is_held


class PublisherDouble:
    """Keeps what closes."""

    def __init__(self) -> None:
        self.markers: list[dict[str, Any]] = []

    async def closed(self, _number: int, _results: Any, marker: dict[str, Any], *_: Any) -> None:
        """A ledger closed minutes."""
        self.markers.append(marker)


def reader_of(publisher: PublisherDouble, clock: TrustedClock) -> TopicReader:
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    reader = TopicReader(settings, Topics("s"), cast(Publisher, publisher), clock)
    reader._membership, reader._snapshots = LeaseDouble(), SnapshotsDouble()  # type: ignore[assignment]
    return reader


def confirmed_clock() -> TrustedClock:
    clock, clocks = TrustedClock(), read_clocks()
    clock.confirm(clocks, clocks.wall_us // 1000, clocks.monotonic_us)
    return clock


class SnapshotsDouble(OffsetSnapshotReader):
    """Returns the snapshot that the test gives it."""

    def __init__(self) -> None:
        self._topics = Topics("s")
        self.snapshot: OffsetSnapshot | None = None
        self.while_asked: Callable[[], None] = lambda: None

    async def snapshots(self, _consumer: Any, partitions: Any, taken_us: int, *_: Any) -> Any:
        """Of each partition number."""
        self.while_asked()
        return (
            {}
            if self.snapshot is None
            else {number: replace(self.snapshot, taken_us=taken_us) for number in partitions}
        )


async def test_a_member_that_may_have_been_replaced_publishes_nothing() -> None:
    publisher, clock = PublisherDouble(), confirmed_clock()
    reader = reader_of(publisher, clock)
    ledger = reader.ledgers[0] = PartitionLedger(0, ClosingRules())
    ledger.begin(OffsetSnapshot(read_clocks().wall_us, 0, {}, {}))
    lease = cast(LeaseDouble, reader._membership)
    lease.is_held = False
    await reader._close_minutes()
    assert not publisher.markers
    assert ledger.reached, "it closes what is due if Kafka kept the member after all"
    lease.is_held = True
    await reader._close_minutes()
    assert len(publisher.markers) == 1
    lease.is_held, reader._amended_s = False, 0.0
    await reader._close_minutes()
    assert not reader._amended_s, "amendments are due as soon as Kafka answers"


async def test_without_a_confirmed_clock_there_is_no_snapshot() -> None:
    publisher = PublisherDouble()
    reader = reader_of(publisher, TrustedClock())
    ledger = reader.ledgers[0] = PartitionLedger(0, ClosingRules())
    cast(SnapshotsDouble, reader._snapshots).snapshot = OffsetSnapshot(0, 0, {}, {})
    await reader._begin_snapshots()
    await reader._close_minutes()
    assert not ledger.busy
    assert not publisher.markers


def raw_fields(offset: int) -> list[tuple[str, bytes]]:
    """Of an event of `raw`."""
    return packed(identity(b"a" * 16 + b":%d" % offset, MINUTE))


class RecreatedTopic(Nothing):
    """Stands for a consumer of topics that have five records each, and only yields those of `raw`."""

    def __init__(self) -> None:
        self.position = 100

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Zero."""
        return dict.fromkeys(tps, 0)

    def assign(self, _tps: list[TopicPartition]) -> None:
        """Nothing to do."""

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from there."""
        if tp.topic == "s.raw":
            self.position = offset

    async def getmany(self, **_: Any) -> dict[TopicPartition, list[Row]]:
        """The rest of the five records."""
        offsets = range(self.position, 5)
        self.position = max(self.position, 5)
        await asyncio.sleep(0)
        rows = [Row(offset, MINUTE * 60_000, raw_fields(offset), b"{}") for offset in offsets]
        return {TopicPartition("s.raw", 0): rows} if rows else {}


async def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(topic_reader, "monotonic_s", lambda: now_s)
    reader = reader_of(PublisherDouble(), confirmed_clock())
    reader._consumer = RecreatedTopic()
    restart = {"minute": MINUTE - 10, "through": {"raw": 100}, "restart": {"raw": 100}}
    ledger = reader.ledgers[0] = PartitionLedger.resume(0, ClosingRules(), restart, [])
    cast(SnapshotsDouble, reader._snapshots).snapshot = OffsetSnapshot(0, 0, {"raw": 100}, {"raw": 5})
    await reader._assign({0})
    await reader._begin_snapshots()
    assert not ledger.busy, "the records below the position were not read"
    now_s += 5
    await reader._begin_snapshots()
    assert ledger.positions["raw"] == 100
    now_s += 5
    await reader._begin_snapshots()
    reading_task = asyncio.create_task(reader._read_records())
    async with asyncio.timeout(5):
        while ledger.positions["raw"] < 5:
            await asyncio.sleep(0)
    reading_task.cancel()
    await reader._begin_snapshots()
    assert ledger.reached
    pipe_minute = ledger.pipe_minutes["flights", MINUTE]
    assert len(pipe_minute.seen[EventStage("raw")]) == 5
    assert not pipe_minute.passed, "the commit is of the topic before"


async def test_what_is_read_while_kafka_answers_makes_no_topic_short() -> None:
    reader = reader_of(PublisherDouble(), confirmed_clock())
    ledger = reader.ledgers[0] = PartitionLedger(0, ClosingRules())
    snapshots = cast(SnapshotsDouble, reader._snapshots)
    snapshots.snapshot = OffsetSnapshot(0, 0, {}, {"raw": 5})
    snapshots.while_asked = lambda: ledger.take("raw", [Row(7, MINUTE * 60_000, raw_fields(7), b"{}")])
    await reader._begin_snapshots()
    assert ledger.reached
