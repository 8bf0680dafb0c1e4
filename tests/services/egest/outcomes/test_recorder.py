"""The retry or dead letter is written first, then the receipt, then the offset, so nothing is lost."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import until

from hifi.delivery.attempt import Attempt
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.partition_queue import Sending
from hifi.kafka.producer import is_sendable
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    AMBIGUOUS,
    ATTEMPT,
    DESTINATION,
    DUE,
    HOP,
    IDENTITY,
    IN,
    MINUTE,
    OUTCOME,
    PASS,
    PIPE,
    RAW,
    RECEIPT,
    RELEASE,
    RETRY,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    SOURCE,
    STARTED,
    STATUS,
    TIME,
    TO,
)
from hifi.record.identity import seq_text
from hifi.record.receipt import RECEIPT_FIELDS
from hifi.record.record import Record
from hifi.runtime.errors import Overloaded, Rejected
from hifi.runtime.release import VERSION
from hifi_egest.delivery.delivery import Delivery, EarlierAttempts, EventRecord, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.delivery.parsing import parse
from hifi_egest.outcomes.recorder import Outbox, OutcomeRecorder
from hifi_egest.policy.outcome import DELIVERED, DeadLettered, Filtered, RetryLater

TOPICS = Topics("s")
FIELDS = {
    PIPE: b"flights",
    REVISION: b"3",
    REVISION_OFFSET: b"3",
    ACCEPTED: b"1",
    MINUTE: b"0",
    SEQ: seq_text(0xABC, 1),
    IN: b"4",
    RAW: b"6",
    TO: b"d",
    TIME: b"2026-11-21T12:00:00Z",
    "ce_id": b"1",
    RETRY: b"5s:1",
    DUE: b"1",
}


class FakeOutbox:
    """Kafka acknowledges when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int, Sequence[Record], Callable[[], None]]] = []

    def send(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        on_acknowledged: Callable[[], None],
        *_: object,
    ) -> None:
        self.waiting.append((topic, partition, records, on_acknowledged))

    def acknowledge(self) -> tuple[str, Record]:
        """Acknowledge the oldest record; returns its topic and the record."""
        topic, _, (record,), on_acknowledged = self.waiting.pop(0)
        on_acknowledged()
        return topic, record


class Beating:
    last_heartbeat_monotonic_s = float("inf")


class Heart:
    """Beats when the test says so."""

    last_heartbeat_monotonic_s = float("-inf")


@pytest.fixture
def outbox() -> FakeOutbox:
    return FakeOutbox()


@pytest.fixture
def recorder(outbox: FakeOutbox) -> OutcomeRecorder:
    return OutcomeRecorder(TOPICS, outbox, PartitionLease(Beating, 10.0))  # type: ignore[arg-type]


@pytest.fixture
def delivery() -> Delivery:
    return delivery_of_partition(3)


def delivery_of_partition(number: int) -> Delivery:
    assigned = AssignedPartition(TopicPartition(TOPICS.enriched, number))
    assigned.offsets.start(7)
    partition = SourcePartition(assigned, "enriched", InFlightBudget(10, 10**6))
    headers = tuple(packed(FIELDS))
    record: Any = ConsumerRecord(TOPICS.enriched, number, 7, 0, 0, b"k", b"{}", None, 0, 2, headers)
    (event,) = parse(partition, [record], 5)
    assert isinstance(event, EventRecord)
    event.pending = 1
    return Delivery(event, b"d", EarlierAttempts(attempts=2, started_us=99, passes=1, ambiguous=1))


def finished(delivery: Delivery) -> bool:
    return delivery.event.partition.assigned.offsets.committable == 8


@pytest.mark.parametrize(
    "decision", [RetryLater(TOPICS.tiers[1], "timeout", "no answer"), DeadLettered("gave-up", "too often")]
)
def test_first_the_record_then_the_receipt_then_the_offset(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery, decision: RetryLater | DeadLettered
) -> None:
    recorder.record([delivery], decision, Attempt(5, 503, 6))
    if isinstance(decision, RetryLater):
        expected, outcome = TOPICS.retry_in(TOPICS.tiers[1]), b"retry"
    else:
        expected, outcome = TOPICS.dead_letter, b"dead-letter"
    assert len(outbox.waiting) == 1
    topic, record = outbox.acknowledge()
    headers = fields(record.headers)
    assert (topic, record.key, record.value) == (expected, b"k", b"{}")
    assert headers[SOURCE] == b"enriched:7"
    assert (headers[ATTEMPT], headers[PASS], headers[AMBIGUOUS]) == (b"2", b"1", b"1")
    assert (headers[STARTED], headers[DESTINATION]) == (b"99", b"d")
    assert {RETRY, DUE}.isdisjoint(headers), "they were about the last trip"
    assert not finished(delivery)
    assert len(outbox.waiting) == 1
    topic, receipt = outbox.acknowledge()
    assert topic == TOPICS.receipts
    assert receipt.value is None
    receipt_fields = fields(receipt.headers)
    assert (receipt_fields[OUTCOME], receipt_fields[SOURCE], receipt_fields[STATUS]) == (
        outcome,
        b"enriched:7",
        b"503",
    )
    assert finished(delivery)


def test_the_offset_of_a_delivered_event_waits_for_the_receipt(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    recorder.record([delivery], DELIVERED, Attempt(5, 200, 6))
    assert not finished(delivery)
    assert outbox.acknowledge()[0] == TOPICS.receipts
    assert finished(delivery)


def test_a_receipt_has_the_header_of_its_event_and_its_own_fields_in_order(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    recorder.record([delivery], DELIVERED, Attempt(5, 200, 6), b"closed:one")
    _, receipt = outbox.acknowledge()
    assert receipt.headers == [
        (IDENTITY, b"2;flights;3;3;1;0;0000000000000abc:1"),
        (HOP, b"5;6"),
        (RECEIPT, b"delivered;d;enriched:7;1;2;200;5;6;1;closed:one;;;" + VERSION.encode()),
        (TIME, FIELDS[TIME]),
    ]


def test_the_receipt_of_a_filtered_event_has_no_destination(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    recorder.record([Delivery(delivery.event, b"")], Filtered())
    _, receipt = outbox.acknowledge()
    receipt_fields = fields(receipt.headers)
    assert receipt_fields[OUTCOME] == b"filtered"
    assert set(receipt_fields) & set(RECEIPT_FIELDS) == {OUTCOME, SOURCE, RELEASE}


def test_an_event_is_finished_with_its_last_delivery(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    delivery.event.pending = 2
    recorder.record([delivery], DELIVERED, Attempt(5, 200, 6))
    recorder.record([Delivery(delivery.event, b"e")], DELIVERED, Attempt(5, 200, 6))
    outbox.acknowledge()
    assert not finished(delivery)
    outbox.acknowledge()
    assert finished(delivery)


def test_a_request_with_events_of_two_partitions_has_its_receipts_in_their_partitions(
    recorder: OutcomeRecorder, outbox: FakeOutbox
) -> None:
    deliveries = [delivery_of_partition(3), delivery_of_partition(4)]
    deliveries.append(Delivery(deliveries[0].event, b"e"))
    recorder.record(deliveries, DELIVERED, Attempt(5, 200, 6))
    assert [(partition, len(records)) for _, partition, records, _ in outbox.waiting] == [(3, 2), (4, 1)]
    assert outbox.waiting[0][2][0].headers[0] == deliveries[0].event.record.headers[0]


def test_a_partition_that_is_anothers_gets_the_truth_and_nothing_else(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    """A 2xx stays one; a failure is left to the owner, who reads the event again."""
    delivery.event.partition.assigned.revoke(fenced=True)
    recorder.record([delivery], RetryLater(TOPICS.tiers[0], "timeout", "no answer"))
    assert outbox.waiting == []
    recorder.record([Delivery(delivery.event, b"d")], DELIVERED, Attempt(5, 200, 6))
    assert len(outbox.waiting) == 1


@pytest.mark.slow
async def test_however_much_waits_for_the_lease_one_waits_for_it_and_the_order_stays(
    outbox: FakeOutbox,
) -> None:
    heart = Heart()
    recorder = OutcomeRecorder(TOPICS, outbox, PartitionLease(lambda: heart, 10.0))  # type: ignore[arg-type]
    task_count = len(asyncio.all_tasks())
    for _ in range(1000):
        recorder.record([delivery_of_partition(3)], RetryLater(TOPICS.tiers[0], "timeout", "no answer"))
    for _ in range(1000):
        recorder.record([delivery_of_partition(4)], DeadLettered("gave-up", "too often"))
    assert len(asyncio.all_tasks()) == task_count
    await asyncio.sleep(0.2)
    assert outbox.waiting == []
    heart.last_heartbeat_monotonic_s = float("inf")
    await until(lambda: outbox.waiting, 5)
    assert [partition for _, partition, *_ in outbox.waiting] == [3] * 1000 + [4] * 1000


async def test_what_waits_for_the_lease_is_left_once_its_partition_is_anothers(outbox: FakeOutbox) -> None:
    heart = Heart()
    recorder = OutcomeRecorder(TOPICS, outbox, PartitionLease(lambda: heart, 10.0))  # type: ignore[arg-type]
    revoked_delivery, owned_delivery = delivery_of_partition(3), delivery_of_partition(4)
    for delivery in (revoked_delivery, owned_delivery):
        recorder.record([delivery], RetryLater(TOPICS.tiers[0], "timeout", "no answer"))
    revoked_delivery.event.partition.assigned.revoke(fenced=True)
    async with asyncio.timeout(5):
        await revoked_delivery.event.partition.wait_idle()
    heart.last_heartbeat_monotonic_s = float("inf")
    await until(lambda: outbox.waiting, 5)
    assert [partition for _, partition, *_ in outbox.waiting] == [4]


def test_a_retry_that_no_topic_can_hold_is_a_dead_letter_without_the_data(
    recorder: OutcomeRecorder, outbox: FakeOutbox, delivery: Delivery
) -> None:
    delivery.event.record.value = b" " * (MAX_RECORD_BYTES - 64 * 1024 - 200)
    recorder.record([delivery], RetryLater(TOPICS.tiers[0], "timeout", "no answer " * 50))
    topic, letter = outbox.acknowledge()
    assert topic == TOPICS.dead_letter
    assert (fields(letter.headers)["hifi_reason"], letter.value) == (b"too-large", None)
    assert fields(outbox.acknowledge()[1].headers)[OUTCOME] == b"dead-letter"
    assert finished(delivery)


class SizedProducer:
    """Acknowledges what it can hold, and what it wrote."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def send(self, _: str, __: int, records: Sequence[Record]) -> Any:
        if not all(map(is_sendable, records)):
            raise Rejected("too-large", "a large record")
        self.values += [record.value for record in records]
        acknowledged = asyncio.get_running_loop().create_future()
        acknowledged.set_result(None)
        return SimpleNamespace(acknowledged=acknowledged)

    async def send_when_room(self, topic: str, partition: int, records: Sequence[Record]) -> Any:
        return self.send(topic, partition, records)


LARGE = b"x" * MAX_RECORD_BYTES


@pytest.mark.parametrize("values", [(b"1", LARGE, b"2"), (b"1", b"2")])
async def test_neither_a_record_that_is_refused_nor_a_call_that_fails_keeps_others_from_being_acknowledged(
    values: Sequence[bytes],
) -> None:
    producer = SizedProducer()
    outbox = Outbox(producer, PartitionLease(Beating, 10.0))  # type: ignore[arg-type]
    called: list[bytes] = []

    def acknowledged(value: bytes) -> None:
        called.append(value)
        if value == b"1":
            raise ValueError

    for value in values:
        outbox.send("t", 0, [Record(b"k", value, [])], partial(acknowledged, value))
    await until(lambda: len(called) == len(values), 30)
    assert called == list(values)
    assert producer.values == [b"1", b"2"]
    assert not outbox.failed.done()


async def test_of_the_receipts_of_a_request_only_that_is_left_out_which_no_topic_takes() -> None:
    producer, acknowledged = SizedProducer(), asyncio.Event()
    outbox = Outbox(producer, PartitionLease(Beating, 10.0))  # type: ignore[arg-type]
    outbox.send("t", 0, [Record(b"k", value, []) for value in (b"1", LARGE, b"2")], acknowledged.set)
    async with asyncio.timeout(30):
        await acknowledged.wait()
    assert producer.values == [b"1", b"2"]
    assert not outbox.failed.done()


class HoldingProducer:
    """Acknowledges nothing; has no room before `has_room` is set."""

    def __init__(self) -> None:
        self.sendings: list[Sending] = []
        self.topics: list[str] = []
        self.has_room = asyncio.Event()
        self.has_room.set()

    def send(self, topic: str, _: int, records: Sequence[Record]) -> Sending:
        if not self.has_room.is_set():
            raise Overloaded("full")
        self.topics.append(topic)
        self.sendings.append(Sending(records, 0))
        return self.sendings[-1]

    async def send_when_room(self, topic: str, partition: int, records: Sequence[Record]) -> Sending:
        await self.has_room.wait()
        return self.send(topic, partition, records)


def holding_recorder(heart: Heart) -> tuple[OutcomeRecorder, HoldingProducer]:
    producer, lease = HoldingProducer(), PartitionLease(lambda: heart, 10.0)
    double: Any = producer
    return OutcomeRecorder(TOPICS, Outbox(double, lease), lease), producer


RETRY_LATER = RetryLater(TOPICS.tiers[0], "timeout", "no answer")


async def test_a_hand_over_that_kafka_has_not_got_is_taken_back_when_the_lease_ends(
    delivery: Delivery,
) -> None:
    """Once Kafka is reached again, another instance may have delivered the event."""
    heart = Heart()
    heart.last_heartbeat_monotonic_s = float("inf")
    recorder, producer = holding_recorder(heart)
    recorder.record([delivery], RETRY_LATER)
    recorder.record([delivery_of_partition(3)], DELIVERED, Attempt(5, 200, 6))
    await until(lambda: len(producer.sendings) == 2, 5)
    hand_over, receipt = producer.sendings
    heart.last_heartbeat_monotonic_s = float("-inf")
    await until(hand_over.acknowledged.cancelled, 5)
    heart.last_heartbeat_monotonic_s = float("inf")
    await until(lambda: len(producer.sendings) == 3, 5)
    assert producer.topics == [TOPICS.retry_in(TOPICS.tiers[0]), TOPICS.receipts, producer.topics[0]]
    assert not receipt.acknowledged.done(), "it is true, whoever owns the partition"
    producer.sendings[2].acknowledged.set_result(None)
    await until(lambda: len(producer.sendings) == 4, 5)
    producer.sendings[3].acknowledged.set_result(None)
    await until(lambda: finished(delivery), 5)


@pytest.mark.parametrize("room", [True, False])
async def test_a_hand_over_is_left_to_the_next_owner_of_its_partition_also_while_it_is_written(
    delivery: Delivery, room: bool
) -> None:
    heart = Heart()
    heart.last_heartbeat_monotonic_s = float("inf")
    recorder, producer = holding_recorder(heart)
    other_delivery = delivery_of_partition(4)
    if not room:
        producer.has_room.clear()
    recorder.record([delivery], RETRY_LATER)
    recorder.record([other_delivery], RETRY_LATER)
    await asyncio.sleep(0)
    for sending in producer.sendings:
        sending.handed_over = True
    delivery.event.partition.assigned.revoke(fenced=True)
    producer.has_room.set()
    async with asyncio.timeout(5):
        await delivery.event.partition.wait_idle()
    await until(lambda: len(producer.sendings) == 2, 5)
    assert [sending.acknowledged.cancelled() for sending in producer.sendings] == [True, False]
    assert not finished(delivery)
    producer.sendings[1].acknowledged.set_result(None)
    await until(lambda: producer.topics[2:] == [TOPICS.receipts], 5)


async def test_a_hand_over_that_kafka_has_got_is_not_left_though_its_partition_is_anothers_since(
    delivery: Delivery,
) -> None:
    heart = Heart()
    heart.last_heartbeat_monotonic_s = float("inf")
    recorder, producer = holding_recorder(heart)
    recorder.record([delivery], RETRY_LATER)
    await until(lambda: producer.sendings, 5)
    producer.sendings[0].acknowledged.set_result(None)
    delivery.event.partition.assigned.revoke(fenced=True)
    recorder._outbox._check_owners()
    assert delivery.event.partition._in_flight == 1
    await until(lambda: producer.topics[1:] == [TOPICS.receipts], 5)
    producer.sendings[1].acknowledged.set_result(None)
    async with asyncio.timeout(5):
        await delivery.event.partition.wait_idle()
