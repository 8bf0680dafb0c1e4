"""A parked record that cannot be brought back is a dead letter, and keeps no other one from its way."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from hifi.delivery.destination_state import EGEST, DestinationName, DestinationState, StateChange
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.record.fields import fields, packed
from hifi.record.headers import DESTINATION, PASS, PIPE, REASON, SEQ
from hifi.record.identity import IDENTITY_FIELDS, seq_text
from hifi.record.record import Record
from hifi_retrier.parked import ParkedDeliveries

TOPICS = Topics("s")
LARGEST = b" " * (MAX_RECORD_BYTES - 64 * 1024 - 50)


class KeptStates:
    """Destinations, all in one state."""

    def __init__(self, state: DestinationState) -> None:
        change = StateChange(state, EGEST, "test", 0)
        self.states = SimpleNamespace(get=lambda _: change, positions=lambda _: {})

    async def refresh(self) -> None:
        pass


class NotingProducer:
    """Notes what it writes, once it does not fail."""

    def __init__(self) -> None:
        self.fails = False
        self.written: list[tuple[str, Record]] = []

    async def send_and_wait(self, topic: str, _: int, records: Sequence[Record]) -> None:
        if self.fails:
            raise ConnectionError
        self.written += [(topic, record) for record in records]

    @property
    def topics(self) -> list[str]:
        return [topic for topic, _ in self.written]


def delivery(offset: int, name: bytes, passes: bytes = b"1", value: bytes = b"{}") -> ConsumerRecord:
    names = {PIPE: b"flights", DESTINATION: name, PASS: passes, SEQ: seq_text(7, offset)}
    headers = tuple(packed(dict.fromkeys(IDENTITY_FIELDS, b"1") | names))
    return ConsumerRecord(TOPICS.parked, 0, offset, 0, 0, b"k", value, None, 0, 2, headers)


def parked(state: DestinationState, producer: NotingProducer) -> tuple[Any, AssignedPartition]:
    assigned = AssignedPartition(TopicPartition(TOPICS.parked, 0))
    assigned.offsets.start(0)
    destinations: Any = KeptStates(state)
    doubles: Any = producer
    return ParkedDeliveries("nowhere:1", "test", TOPICS, destinations, doubles, 60.0), assigned


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
    name = DestinationName("flights", "a")
    partition.first_offsets[name] = 0
    partition.handled_end = 2

    async def read(*_: object) -> tuple[list[ConsumerRecord], int]:
        return [delivery(0, b"a", b"x"), delivery(1, b"a")], 2

    monkeypatch.setattr(deliveries, "_read", read)
    monkeypatch.setattr(deliveries, "_wait_for_egest", lambda _: asyncio.sleep(0))
    await deliveries._drain(partition, name, deliveries._destinations.states.get(name))
    assert producer.topics == [TOPICS.retry_out, TOPICS.dead_letter, TOPICS.destinations]
    assert partition.first_offsets == {}
