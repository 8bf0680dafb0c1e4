"""A parked record that cannot be brought back is a dead letter, and keeps no other one from its way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from aiokafka import ConsumerRecord, TopicPartition

from hifi.delivery.destination_state import EGEST, DestinationName, DestinationState, StateChange
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.record.fields import fields, packed
from hifi.record.headers import DESTINATION, PASS, PIPE, REASON, RETRY, SEQ
from hifi.record.identity import IDENTITY_FIELDS, seq_text
from hifi.record.record import Record
from hifi.runtime.clock import monotonic_s
from hifi_retrier.parked import ParkedDeliveries

TOPICS = Topics("s")
LARGEST = b" " * (MAX_RECORD_BYTES - 64 * 1024 - 50)


FLIGHTS_A = DestinationName("flights", "a")


class KeptStates:
    """Destinations, all in one state; `refreshes` has an event for each refresh that waits."""

    def __init__(self, state: DestinationState) -> None:
        change = StateChange(state, EGEST, "test", 0)
        self.positions: dict[DestinationName, int] = {}
        self.states = SimpleNamespace(get=lambda _: change, positions=lambda _: dict(self.positions))
        self.refreshes: list[asyncio.Event] = []

    async def refresh(self) -> None:
        if self.refreshes:
            await self.refreshes.pop(0).wait()


class Member:
    """A member of the group whose last heartbeat is as old as it says, seconds."""

    def __init__(self) -> None:
        self.silent_s = 0.0

    @property
    def last_heartbeat_monotonic_s(self) -> float:
        return monotonic_s() - self.silent_s


class NotingProducer:
    """Notes what it writes, once it does not fail."""

    def __init__(self) -> None:
        self.fails = False
        self.written: list[tuple[str, Record]] = []
        self.member = Member()
        self.unacknowledged: list[asyncio.Future[None]] | None = None
        """What is not acknowledged; None: everything is, at once."""

    async def send_and_wait(self, topic: str, _: int, records: Sequence[Record]) -> None:
        if self.fails:
            raise ConnectionError
        if self.unacknowledged is not None:
            self.unacknowledged.append(asyncio.get_running_loop().create_future())
            await self.unacknowledged[-1]
        self.written += [(topic, record) for record in records]

    @property
    def topics(self) -> list[str]:
        return [topic for topic, _ in self.written]


def delivery(offset: int, name: bytes, passes: bytes = b"1", value: bytes = b"{}") -> ConsumerRecord:
    header_values = {PIPE: b"flights", DESTINATION: name, PASS: passes, SEQ: seq_text(7, offset)}
    headers = tuple(packed(dict.fromkeys(IDENTITY_FIELDS, b"1") | header_values))
    return ConsumerRecord(TOPICS.parked, 0, offset, 0, 0, b"k", value, None, 0, 2, headers)


def parked(state: DestinationState, producer: NotingProducer) -> tuple[Any, AssignedPartition]:
    assigned = AssignedPartition(TopicPartition(TOPICS.parked, 0))
    assigned.offsets.start(0)
    destinations: Any = KeptStates(state)
    doubles: Any = producer
    lease = PartitionLease(lambda: producer.member, 10.0)
    return ParkedDeliveries("nowhere:1", "test", TOPICS, destinations, doubles, lease, 60.0), assigned


async def test_a_record_that_cannot_be_brought_back_is_a_dead_letter_and_others_are_brought_back() -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.ACTIVE, producer)
    await deliveries.handle(
        assigned, [delivery(0, b"a", b"x"), delivery(1, b"a"), delivery(2, b"a", value=LARGEST)]
    )
    assert producer.topics == [TOPICS.retry_out, TOPICS.dead_letter, TOPICS.dead_letter]
    assert [fields(record.headers)[REASON] for _, record in producer.written[1:]] == [
        b"not-an-event",
        b"too-large",
    ]


async def test_positions_that_could_not_be_written_are_written_with_the_repetition_of_the_batch() -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.PARKED, producer)
    producer.fails = True
    batch = [delivery(0, b"a"), delivery(1, b"a"), delivery(2, b"b")]
    with pytest.raises(ConnectionError):
        await deliveries.handle(assigned, batch)
    producer.fails = False
    await deliveries.handle(assigned, batch)
    assert producer.topics == [TOPICS.destinations] * 2
    partition = await deliveries._partition(assigned)
    assert partition.first_offsets == {DestinationName("flights", "a"): 0, DestinationName("flights", "b"): 2}


async def test_a_drain_passes_a_record_that_cannot_be_brought_back(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.ACTIVE, producer)
    partition = await deliveries._partition(assigned)
    name = FLIGHTS_A
    partition.first_offsets[name] = 0
    partition.handled_end = 2

    async def read(*_: object) -> tuple[list[ConsumerRecord], int]:
        return [delivery(0, b"a", b"x"), delivery(1, b"a")], 2

    monkeypatch.setattr(deliveries, "_read", read)
    monkeypatch.setattr(deliveries, "_wait_for_egest", lambda _: asyncio.sleep(0))
    await deliveries._drain(partition, name, deliveries._destinations.states.get(name))
    assert producer.topics == [TOPICS.retry_out, TOPICS.dead_letter, TOPICS.destinations]
    assert partition.first_offsets == {}


async def test_a_partition_has_one_state_whoever_asks_for_it_first() -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.PARKED, producer)
    begun, first, second = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begun.set()
    deliveries._destinations.refreshes = [begun, first, second]
    handled = asyncio.create_task(deliveries.handle(assigned, [delivery(0, b"a")]))
    await asyncio.sleep(0)
    beside = asyncio.create_task(deliveries._partition(assigned))
    await asyncio.sleep(0)
    first.set()
    await handled
    second.set()
    await beside
    await deliveries.handle(assigned, [delivery(1, b"a")])
    positions = [orjson.loads(record.value or b"null") for _, record in producer.written]
    assert positions == [{"first": 0}]
    assert (await beside).first_offsets == {FLIGHTS_A: 0}


async def test_the_state_of_an_ended_assignment_replaces_none() -> None:
    deliveries, ended = parked(DestinationState.PARKED, NotingProducer())
    ended.fence()
    assigned = AssignedPartition(ended.tp)
    partition = await deliveries._partition(assigned)
    await deliveries._partition(ended)
    assert await deliveries._partition(assigned) is partition


async def test_a_chunk_that_is_not_acknowledged_is_not_sent_again_once_the_partition_is_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.ACTIVE, producer)
    partition = await deliveries._partition(assigned)
    partition.first_offsets[FLIGHTS_A], partition.handled_end = 0, 1

    async def read(*_: object) -> tuple[list[ConsumerRecord], int]:
        return [delivery(0, b"a")], 1

    monkeypatch.setattr(deliveries, "_read", read)
    producer.unacknowledged = []
    deliveries._start_drains(partition)
    async with asyncio.timeout(5):
        while not producer.unacknowledged:
            await asyncio.sleep(0)
        assigned.fence()
        await asyncio.gather(*partition.tasks.values(), return_exceptions=True)
    assert producer.unacknowledged[0].cancelled()
    assert producer.written == []


async def test_nothing_is_written_without_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.PARKED, producer)
    partition = await deliveries._partition(assigned)
    partition.first_offsets[FLIGHTS_A], partition.handled_end = 0, 2

    async def read(*_: object) -> tuple[list[ConsumerRecord], int]:
        producer.member.silent_s = 60.0
        return [delivery(0, b"a")], 1

    monkeypatch.setattr(deliveries, "_read", read)
    active = StateChange(DestinationState.ACTIVE, EGEST, "test", 0)
    monkeypatch.setattr(deliveries._destinations.states, "get", lambda _: active)
    deliveries._start_drains(partition)
    handled = asyncio.create_task(deliveries.handle(assigned, [delivery(1, b"b")]))
    async with asyncio.timeout(5):
        while not producer.member.silent_s:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert producer.written == []
        assigned.fence()
        await asyncio.gather(handled, *partition.tasks.values(), return_exceptions=True)
    assert producer.written == []


@pytest.mark.parametrize(
    ("position", "log", "read", "left"),
    [
        (10, range(20), [], {FLIGHTS_A: 10}),
        (60, range(5), [0, 1], {}),
        (10, range(5, 20), [], {FLIGHTS_A: 10}),
        (3, range(30, 30), [], {}),
    ],
    ids=["without a commit", "topic made again", "first records deleted", "all records deleted"],
)
async def test_a_position_that_was_not_read_yet_stays(
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    log: range,
    read: list[int],
    left: dict[DestinationName, int],
) -> None:
    """`parked` is read from its beginning where the group has no commit any more: two records so far."""
    producer = NotingProducer()
    deliveries, assigned = parked(DestinationState.ACTIVE, producer)
    deliveries._destinations.positions = {FLIGHTS_A: position}
    partition = await deliveries._partition(assigned)
    partition.handled_end = 2

    @contextlib.asynccontextmanager
    async def consumer(*_: object) -> AsyncIterator[None]:
        yield

    async def offset_ranges(_: None, tps: Sequence[TopicPartition]) -> dict[TopicPartition, range]:
        return dict.fromkeys(tps, log)

    async def read_ranges(
        _: None, ranges: dict[TopicPartition, range], **__: int
    ) -> AsyncIterator[list[ConsumerRecord]]:
        for offsets in ranges.values():
            yield [delivery(offset, b"a") for offset in offsets]

    for double in (offset_ranges, read_ranges):
        monkeypatch.setattr(f"hifi_retrier.parked.{double.__name__}", double)
    monkeypatch.setattr("hifi_retrier.parked.topic_consumer", consumer)
    monkeypatch.setattr("hifi_retrier.parked._CHECK_S", 0)
    monkeypatch.setattr(deliveries, "_wait_for_egest", lambda _: asyncio.sleep(0))
    await deliveries._drain(partition, FLIGHTS_A, deliveries._destinations.states.get(FLIGHTS_A))
    brought_back = [record for topic, record in producer.written if topic == TOPICS.retry_out]
    assert [int(fields(record.headers)[RETRY].partition(b"/")[2]) for record in brought_back] == read
    assert partition.first_offsets == left
