"""A follower reads everything, in order, and no record keeps it from those that come after."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError, KafkaError
from prometheus_client import REGISTRY
from tests.support.kafka.raw_batches import batch_of, send_batch

from hifi.control.action_right import ActionLog
from hifi.control.declaration_log import DeclarationLog
from hifi.delivery.destination_state import DestinationName, DestinationState, DestinationStates
from hifi.kafka import topic_follower
from hifi.kafka.foreign_records import UnreadRecord
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import PartitionFollower, TopicFollower, TopicRecreated, unreadable_records
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import pipe_record
from hifi.record.record import Record
from hifi.runtime.health import Health

PARKED = b'{"state": "parked", "by": "egest", "reason": "", "at_us": 1}'


def unreadable(topic: str) -> float:
    return REGISTRY.get_sample_value("hifi_unreadable_records_total", {"topic": topic}) or 0.0


def records(topic: str, *contents: tuple[bytes | None, bytes | None]) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(topic, 0, offset, 1000, 1, key, value, None, 0, 0, ())
        for offset, (key, value) in enumerate(contents)
    ]


@pytest.mark.parametrize(
    ("key", "value"), [(b"p/d", b"{}"), (b"p/d/0", b"{}"), (b"p/d", b"[]"), (None, b"{}"), (b"p/d", b"\xff")]
)
def test_a_record_of_destinations_that_cannot_be_read_is_skipped_and_counted(
    key: bytes | None, value: bytes | None
) -> None:
    states, topic, count_before = DestinationStates(), "s.destinations", unreadable("s.destinations")
    follower = TopicFollower("nowhere:1", "test", {topic: states.take})
    follower._take(records(topic, (key, value), (b"p/d", PARKED)))
    assert states.get(DestinationName("p", "d")).state is DestinationState.PARKED
    assert unreadable(topic) == count_before + 1


@pytest.mark.parametrize("value", [b"{}", b"[]", b'{"partitions": "many"}', None, b"\xff"])
def test_a_record_of_the_stream_that_cannot_be_read_is_skipped_and_counted(value: bytes | None) -> None:
    registry = PipeRegistry("nowhere:1", Topics("s"), Health("test", "test-1"))
    count_before = unreadable("s.pipes")
    registry._follower._take(
        records("s.pipes", (b"__stream__", b'{"partitions": 3}'), (b"__stream__", value), (b"p", None))
    )
    assert (registry.partitions, registry.offset) == (3, 2)
    assert unreadable("s.pipes") == count_before + 1


def unreadable_of(topic: str) -> list[tuple[bytes | None, int]]:
    return [(record.key, record.offset) for record in unreadable_records() if record.topic == topic]


def test_an_unreadable_record_is_told_until_a_readable_one_of_its_key_follows() -> None:
    states, topic = DestinationStates(), "told.destinations"
    follower = TopicFollower("nowhere:1", "test", {topic: states.take})
    follower._take(records(topic, (b"p/d", b"{}"), (b"p/e", b"{}"), (b"p/f", PARKED), (b"p/d", b"[]")))
    assert sorted(unreadable_of(topic)) == [(b"p/d", 3), (b"p/e", 1)]
    follower._take(records(topic, (b"p/d", PARKED)))
    assert unreadable_of(topic) == [(b"p/e", 1)]
    follower._take(records(topic, (b"p/e", None)))
    assert unreadable_of(topic) == []


def test_a_pipe_that_cannot_be_read_is_told_and_the_version_before_stays() -> None:
    registry = PipeRegistry("nowhere:1", Topics("told"), Health("test", "test-1"))
    registry._follower._take(records("told.pipes", (b"p", b'{"pipe": {"pipe": "p"}}'), (b"q", None)))
    assert unreadable_of("told.pipes") == [(b"p", 0)]
    assert registry.offset == 1
    registry._follower._take(records("told.pipes", (b"p", None)))
    assert unreadable_of("told.pipes") == []


def test_a_pipe_of_a_revision_that_its_topic_has_not_reached_is_held() -> None:
    """A copy of the topic has other offsets: events of the revision would wait for ever."""
    source = {"keys": [{"env": "KEY"}]}
    destinations = [{"name": "there", "url": "http://127.0.0.1:9/"}]
    topics, pipe = (
        Topics("copied"),
        Pipe.model_validate({"pipe": "p", "source": source, "destinations": destinations}),
    )
    registry = PipeRegistry("nowhere:1", topics, Health("test", "test-1"))
    for since, is_held in ((7, True), (1, False), (3, True), (2, False)):
        record = pipe_record(pipe, since=since)
        registry._follower._take(
            records(topics.pipes, (b"q", None), (b"q", None), (record.key, record.value))
        )
        assert ("p" in registry.all_held()) is is_held
        assert registry.offset == 2
    revision = registry.get("p")
    assert revision is not None
    assert revision.offset == 2
    held = PipeRegistry("nowhere:1", topics, Health("test", "test-1"))
    record = pipe_record(pipe, since=1)
    held._follower._take(records(topics.pipes, (record.key, record.value)))
    assert "published at offset 1" in held.all_held()["p"]


def test_a_record_that_cannot_be_read_at_all_is_skipped_and_counted() -> None:
    values: list[bytes] = []
    follower = TopicFollower("nowhere:1", "test", {"broken.topic": collect(values)})
    lost = UnreadRecord("broken.topic", 0, 0, 0, 0, None, None, None, -1, -1, (), "unreadable-record", "why")
    follower._take([lost, *records("broken.topic", (None, b"1"), (b"k", b"2"))[1:]])
    assert values == [b"2"]
    assert unreadable("broken.topic") == 1


async def write(kafka: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    producer = Producer(kafka, "test")
    await producer.start()
    await producer.send_and_wait(topic, partition, [Record(b"k", value, []) for value in values])
    await producer.stop()


def collect(values: list[bytes]) -> Callable[[bytes | None, bytes | None, int], None]:
    """Takes numbers alone."""

    def take(_key: bytes | None, value: bytes | None, _offset: int) -> None:
        int(value or b"")
        values.append(value or b"")

    return take


async def test_a_follower_reads_what_was_written_before_and_what_comes(kafka, topic) -> None:
    name = await topic()
    values: list[Any] = []
    await write(kafka, name, [b"1", b"not a number", b"2"])
    follower = TopicFollower(kafka, "test", {name: collect(values)})
    try:
        await follower.start()
        assert values == [b"1", b"2"]
        await write(kafka, name, [b"", b"3"])
        await asyncio.gather(follower.catch_up(), follower.catch_up())
        assert values == [b"1", b"2", b"3"]
    finally:
        await follower.stop()


async def test_a_header_name_that_is_not_utf8_hides_no_record_from_a_follower(kafka, topic) -> None:
    name, values = await topic(), list[bytes]()
    bad_batch = batch_of(
        [b"2", b"3"], header="HEADER", change=lambda raw: raw.replace(b"HEADER", b"H\xe4\xf6\xfcER")
    )
    await write(kafka, name, [b"1"])
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    await send_batch(producer, name, bad_batch)
    await producer.stop()
    await write(kafka, name, [b"4"])
    async with asyncio.timeout(20):
        await TopicFollower(kafka, "test", {name: collect(values)}).read_once()
    assert values == [b"1", b"2", b"3", b"4"]


async def test_a_follower_of_several_partitions_is_told_of_each_record_once(kafka, topic) -> None:
    name, seen_records, has_read = await topic(partitions=3), [], asyncio.Event()

    def take(record: ConsumerRecord) -> None:
        seen_records.append((record.partition, record.value))

    async def on_records() -> None:
        if len(seen_records) == 6:
            has_read.set()

    for partition in range(3):
        await write(kafka, name, [b"before"], partition)
    follower = PartitionFollower(kafka, "test", {TopicPartition(name, number): take for number in range(3)})
    await follower.start()
    following = asyncio.create_task(follower.follow(on_records))
    try:
        assert sorted(seen_records) == [(number, b"before") for number in range(3)]
        for partition in range(3):
            await write(kafka, name, [b"after"], partition)
        await asyncio.wait_for(has_read.wait(), 20)
        assert sorted(seen_records[3:]) == [(number, b"after") for number in range(3)]
    finally:
        following.cancel()
        await asyncio.wait({following})
        await follower.stop()


class FakeConsumer:
    """Reads the values that a topic has, as long as its brokers answer."""

    def __init__(self, values: Sequence[bytes], state: str = "") -> None:
        self.values, self.state = values, state
        self._position = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        self.state = "closed"

    def assign(self, tps: Collection[TopicPartition]) -> None:
        pass

    def pause(self, *_: TopicPartition) -> None:
        pass

    resume = pause

    def seek(self, _: TopicPartition, offset: int) -> None:
        self._position = offset

    async def position(self, _: TopicPartition) -> int:
        return self._position

    async def beginning_offsets(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def end_offsets(self, tps: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.state == "failing":
            raise KafkaConnectionError
        if self.state == "hanging":
            await asyncio.Event().wait()
        assert not self.state
        return dict.fromkeys(tps, len(self.values))

    async def getmany(self, tp: TopicPartition, **_: Any) -> dict[TopicPartition, list[ConsumerRecord]]:
        contents = [(b"k", value) for value in self.values]
        unread, self._position = records(tp.topic, *contents)[self._position :], len(contents)
        return {tp: unread}


class FakeKafka:
    """Makes the consumers of a topic, each with what the topic has at that time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: list[bytes] = []
        self.clients: list[FakeConsumer] = []
        self.now_s = 0.0
        monkeypatch.setattr(topic_follower, "assigned_consumer", self._connect)
        monkeypatch.setattr(topic_follower, "monotonic_s", lambda: self.now_s)

    def _connect(self, *_: Any, **__: Any) -> FakeConsumer:
        self.clients.append(FakeConsumer(self.values))
        return self.clients[-1]


@pytest.fixture
def fake_kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    return FakeKafka(monkeypatch)


@pytest.mark.parametrize("state", ["failing", "hanging"])
async def test_a_client_whose_brokers_are_gone_is_replaced(fake_kafka: FakeKafka, state: str) -> None:
    values: list[bytes] = []
    fake_kafka.values = [b"1"]
    follower = TopicFollower("nowhere:1", "test", {"t": collect(values)})
    await follower.start()
    fake_kafka.values = [b"1", b"2"]
    fake_kafka.clients[0].state = state
    with contextlib.suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(0.01):
            await follower.catch_up()
    assert values == [b"1"]
    await follower.catch_up()
    await follower.catch_up()
    assert values == [b"1", b"2"]
    assert [client.state for client in fake_kafka.clients] == ["closed", ""]


async def test_an_end_that_is_too_low_for_a_moment_makes_nothing_read_again(fake_kafka: FakeKafka) -> None:
    values: list[bytes] = []
    fake_kafka.values = [b"1", b"2"]
    follower = TopicFollower("nowhere:1", "test", {"t": collect(values)})
    await follower.start()
    for now_s in (100.0, 200.0):
        fake_kafka.now_s = now_s
        fake_kafka.clients[-1].values = [b"1"]
        with pytest.raises(KafkaError, match="ends before"):
            await follower.catch_up()
        await follower.catch_up()
    assert values == [b"1", b"2"]


@pytest.mark.parametrize(
    "follower",
    [
        ActionLog("nowhere:1", "t", "test"),
        DeclarationLog("nowhere:1", "t", "test")._follower,
        TopicFollower("nowhere:1", "test", {"t": lambda *_: None}, rereads=False),
    ],
)
async def test_a_log_whose_offsets_are_numbers_cannot_be_created_again(
    fake_kafka: FakeKafka, follower: TopicFollower
) -> None:
    fake_kafka.values = [b"{}", b"{}"]
    await follower.start()
    fake_kafka.values = fake_kafka.clients[-1].values = [b"{}"]
    with pytest.raises(KafkaError):
        await follower.catch_up()
    fake_kafka.now_s = 10
    for _ in range(2):
        with pytest.raises(TopicRecreated):
            await follower.catch_up()


async def test_a_topic_that_was_created_again_is_read_from_its_beginning(kafka, topic, monkeypatch) -> None:
    monkeypatch.setattr(topic_follower, "_LAG_S", 0)
    name = await topic()
    values: list[bytes] = []
    has_read = asyncio.Event()

    def take(_: bytes | None, value: bytes | None, __: int) -> None:
        values.append(value or b"")
        if values[-1] == b"new":
            has_read.set()

    await write(kafka, name, [b"1", b"2", b"3"])
    follower = TopicFollower(kafka, "test", {name: take})
    await follower.start()
    polling = asyncio.create_task(follower.poll(0.1))
    try:
        await recreate(kafka, name)
        await write(kafka, name, [b"new"])
        await asyncio.wait_for(has_read.wait(), 60)
        assert values == [b"1", b"2", b"3", b"new"]
    finally:
        polling.cancel()
        await asyncio.wait({polling})
        await follower.stop()


async def recreate(kafka: str, topic: str) -> None:
    """Delete a topic, and create it again as soon as it is gone."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.delete_topics([topic])
        while (await admin.create_topics([NewTopic(topic, 1, 1)])).topic_errors[0][1]:
            await asyncio.sleep(0.1)
    finally:
        await admin.close()
