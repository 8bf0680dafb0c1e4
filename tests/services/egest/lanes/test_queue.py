"""The queue sends one delivery of a key at a time, in order, and loses none."""

import itertools
from typing import Any

from aiokafka import ConsumerRecord, TopicPartition
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.pipe.model import BatchPolicy
from hifi_egest.delivery.delivery import (
    Delivery,
    DeliveryState,
    EarlierAttempts,
    EventRecord,
    SourcePartition,
)
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.lanes.queue import DeliveryQueue, RequestQueue

_numbers = itertools.count()
EACH_BYTES = 258
"""Estimated size of one delivery of these tests in a batch: its data and its attributes."""


def partition() -> SourcePartition:
    assigned = AssignedPartition(TopicPartition("enriched", 0))
    return SourcePartition(assigned, "enriched", InFlightBudget(10**6, 10**9))


def delivery(source: SourcePartition, key: bytes | None = None, passes: int = 0) -> Delivery:
    number = next(_numbers)
    record: Any = ConsumerRecord("enriched", 0, number, 0, 0, key, b"{}", None, 0, 2, ())
    return Delivery(
        EventRecord(record, source, b"", [], "flights", b"%d" % number, 0, 0),
        b"d",
        EarlierAttempts(passes=passes),
    )


def number(delivery: Delivery) -> int:
    return int(delivery.event.record.offset)


def test_of_a_key_the_next_one_waits_until_the_first_is_done() -> None:
    queue, source = DeliveryQueue(ordered=True), partition()
    first, second, other_key = delivery(source, b"a"), delivery(source, b"a"), delivery(source, b"b")
    for queued in (first, second, other_key):
        queue.add(queued, 0.0)
    assert [queue.take(), queue.take(), queue.take()] == [first, other_key, None]
    queue.release(b"a")
    assert queue.take() is second


def test_a_request_of_the_order_before_releases_no_key_of_the_new_one() -> None:
    queue, source = RequestQueue(PartitionLease(lambda: None, 10.0), ordered=False), partition()
    queue.add(delivery(source, b"k"), 0.0)
    earlier_request = queue.next_request(None)
    first, second = delivery(source, b"k"), delivery(source, b"k")
    for queued in (first, second):
        queue.add(queued, 0.0)
    queue.reorder(0.0, ordered=True)
    queue.finish(earlier_request)
    request = queue.next_request(None)
    assert request.deliveries == [first]
    assert not queue.has_request, "one of a key at a time"
    queue.finish(request)
    assert queue.next_request(None).deliveries == [second]


def test_without_order_keys_do_not_matter() -> None:
    queue, source = DeliveryQueue(ordered=False), partition()
    deliveries = [delivery(source, b"a"), delivery(source, b"a")]
    for queued in deliveries:
        queue.add(queued, 0.0)
    assert [queue.take(), queue.take()] == deliveries


def test_a_batch_takes_those_of_one_key_in_their_order() -> None:
    queue, source = DeliveryQueue(ordered=True), partition()
    deliveries = [delivery(source, b"a") for _ in range(3)]
    for queued in deliveries:
        queue.add(queued, 0.0)
    assert queue.take_batch(10, 10**6) == (deliveries, [b"a"])
    queue.release(b"a")
    assert not queue.ready


def test_a_batch_is_bounded_in_number_and_bytes() -> None:
    queue, source = DeliveryQueue(ordered=True), partition()
    deliveries = [
        delivery(source, b"a"),
        delivery(source, b"a"),
        delivery(source, b"b"),
        delivery(source, b"c"),
    ]
    for queued in deliveries:
        queue.add(queued, 0.0)
    assert queue.take_batch(3, 10**6) == (deliveries[:3], [b"a", b"b"])
    assert queue.take_batch(3, 1) == (deliveries[3:], [b"c"])
    assert queue.take_batch(3, 1) == ([], [])


def test_a_batch_does_not_wait_once_it_is_full_by_number_or_bytes_also_of_one_key() -> None:
    source = partition()
    queue = RequestQueue(PartitionLease(lambda: None, 30), ordered=True)

    def waits(size: int, max_bytes: int) -> bool:
        return queue.batch_wait_s(BatchPolicy(size=size, bytes=max_bytes, wait=5), now_s=1.0) > 0

    for _ in range(4):
        queue.add(delivery(source, b"a"), 0.0)
    assert waits(5, 10_000)
    assert not waits(4, 10_000)
    assert waits(100, 4 * EACH_BYTES + 1)
    assert not waits(100, 4 * EACH_BYTES)


def test_what_follows_a_delivery_in_flight_does_not_end_the_wait_of_a_batch() -> None:
    queue, source = DeliveryQueue(ordered=True), partition()
    for key in (b"a", b"a", b"a", b"b"):
        queue.add(delivery(source, key), 0.0)
    assert queue.take() is not None
    queue.add(delivery(source, b"a"), 0.0)
    assert (queue.ready_count, queue.ready_bytes) == (1, EACH_BYTES)
    queue.release(b"a")
    assert (queue.ready_count, queue.ready_bytes) == (4, 4 * EACH_BYTES)


def test_one_that_waits_for_its_key_releases_nothing_when_it_is_removed_though_it_was_ready_in_another_queue() -> (
    None
):
    """As after a destination's declared order changed: what was queued is added to another queue."""
    source = partition()
    deliveries = [delivery(source, b"a") for _ in range(3)]
    unordered_queue, queue = DeliveryQueue(ordered=False), DeliveryQueue(ordered=True)
    for queued in deliveries:
        unordered_queue.add(queued, 0.0)
    for number, queued in enumerate(unordered_queue.remove_all()):
        queued.state = DeliveryState.QUEUED
        queue.add(queued, float(number))
    assert queue.take() is deliveries[0]
    assert queue.remove_late(1.5) == [deliveries[1]]
    assert not queue.ready, "the first one of the key is under way"
    queue.release(b"a")
    assert queue.take() is deliveries[2]


def test_fresh_ones_come_first_and_retried_ones_still_get_their_turn() -> None:
    queue, source = DeliveryQueue(ordered=True), partition()
    for _ in range(40):
        queue.add(delivery(source, passes=0), 0.0)
        queue.add(delivery(source, passes=1), 0.0)
    taken_deliveries = [queue.take() for _ in range(40)]
    retried_count = sum(delivery.passes for delivery in taken_deliveries if delivery is not None)
    assert 8 <= retried_count <= 12


class Traffic(RuleBasedStateMachine):
    """The queue against a model of plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DeliveryQueue(ordered=True)
        self.sources = [partition(), partition()]
        self.now_s = 0.0
        self.queued: list[Delivery] = []
        self.busy: list[tuple[list[Delivery], list[bytes]]] = []

    @rule(
        key=st.sampled_from([b"a", b"b", b"c", None]),
        source_index=st.integers(0, 1),
        passes=st.integers(0, 1),
    )
    def add(self, key: bytes | None, source_index: int, passes: int) -> None:
        self.now_s += 1
        queued = delivery(self.sources[source_index], key, passes)
        self.queue.add(queued, self.now_s)
        self.queued.append(queued)

    def check_taken(self, delivery: Delivery) -> None:
        assert delivery in self.queued
        if delivery.key is not None:
            busy_of_key = {
                candidate for job, _ in self.busy for candidate in job if candidate.key == delivery.key
            }
            assert not busy_of_key, "one of a key at a time"
            queued_of_key = [
                candidate
                for candidate in self.queued
                if candidate.key == delivery.key and candidate is not delivery
            ]
            assert all(number(candidate) > number(delivery) for candidate in queued_of_key), "in their order"
        self.queued.remove(delivery)

    @rule(size=st.integers(1, 4))
    def take(self, size: int) -> None:
        free_count = len(self.free())
        job, keys = self.queue.take_batch(size, 10**6)
        assert len(job) == min(size, free_count)
        for delivery in job:
            self.check_taken(delivery)
        assert keys == [key for key in dict.fromkeys(delivery.key for delivery in job) if key is not None]
        if job:
            self.busy.append((job, keys))

    @rule(index=st.integers(0, 50))
    def done(self, index: int) -> None:
        if self.busy:
            _, keys = self.busy.pop(index % len(self.busy))
            for key in keys:
                self.queue.release(key)

    @rule(age=st.integers(0, 20))
    def late(self, age: int) -> None:
        self.check_removed(
            self.queue.remove_late(self.now_s - age),
            [delivery for delivery in self.queued if delivery.queued_s < self.now_s - age],
        )

    @rule(source_index=st.integers(0, 1))
    def give_up(self, source_index: int) -> None:
        expected = [
            delivery for delivery in self.queued if delivery.event.partition is self.sources[source_index]
        ]
        self.check_removed(self.queue.remove_partition(self.sources[source_index]), expected)

    @rule()
    def all(self) -> None:
        self.check_removed(self.queue.remove_all(), list(self.queued))

    def check_removed(self, removed: list[Delivery], expected: list[Delivery]) -> None:
        assert sorted(map(number, removed)) == sorted(map(number, expected))
        assert all(delivery.state is DeliveryState.REMOVED for delivery in removed)
        self.queued = [delivery for delivery in self.queued if delivery not in removed]

    def free(self) -> list[Delivery]:
        busy_keys = {delivery.key for job, _ in self.busy for delivery in job if delivery.key is not None}
        return [delivery for delivery in self.queued if delivery.key not in busy_keys]

    @invariant()
    def counts(self) -> None:
        assert len(self.queue) == len(self.queued)
        assert self.queue.retried == sum(delivery.passes > 0 for delivery in self.queued)
        assert self.queue.ready == bool(self.free())
        assert self.queue.ready_count == len(self.free())
        assert self.queue.ready_bytes == len(self.free()) * EACH_BYTES


TestTraffic = Traffic.TestCase
