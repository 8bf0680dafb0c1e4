"""Records become deliveries exactly once, also when a batch fails half-way or a record is poison."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import EPOCH, attributes, pipe_to, until
from tests.support.egest.fake_destination import destination

from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    DESTINATION,
    IN,
    MINUTE,
    OUTCOME,
    PIPE,
    RAW,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    SOURCE,
    TO,
)
from hifi.record.identity import seq_text
from hifi.record.record import Record
from hifi.runtime.health import Health
from hifi_egest.dedup.commit_metadata import CommitMetadata
from hifi_egest.dedup.outcome_reader import RecordedOutcomes
from hifi_egest.delivery.delivery import Delivery, EventRecord, complete_all
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.intake import DeliveryIntake
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.outcomes.recorder import OutcomeRecorder
from hifi_egest.settings import EgestSettings

TOPICS = Topics("s")


class FakeReader:
    """No earlier outcomes; the ends of the outcome topics grow with every look."""

    def __init__(self) -> None:
        self.looks = 0

    def floors(self, _: int) -> dict[str, int]:
        self.looks += 1
        return {TOPICS.receipts: self.looks}

    async def read(self, *_: Any) -> RecordedOutcomes:
        return RecordedOutcomes()


class FakeLog:
    """Has an identity; notes what it is told and asked."""

    def __init__(self) -> None:
        self.identity = "a"
        self.calls: list[str] = []

    async def identity_at(self, _: AssignedPartition) -> str:
        self.calls.append("asked")
        return self.identity

    def read_anew(self) -> None:
        self.calls.append("anew")


class FakeLane:
    """Keeps deliveries, or fails."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.failures = 0

    def offer(self, record: EventRecord, name: bytes) -> bool:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not now")
        self.deliveries.append(Delivery(record, name, record.earlier))
        return True

    @property
    def offsets(self) -> list[int]:
        return [delivery.event.record.offset for delivery in self.deliveries]


class AcknowledgingOutbox:
    """Acknowledges at once."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def send(
        self, _: str, __: int, records: Sequence[Record], acknowledged: Callable[[], None], *___: object
    ) -> None:
        self.records += records
        asyncio.get_running_loop().call_soon(acknowledged)


class Beating:
    last_heartbeat_monotonic_s = float("inf")


class IntakeBench:
    """The intake between doubles."""

    def __init__(self) -> None:
        self.lanes = {b"one": FakeLane(), b"two": FakeLane()}
        self.reader, self.outbox = FakeReader(), AcknowledgingOutbox()
        self.assigned = AssignedPartition(TopicPartition(TOPICS.enriched, 0))
        lanes: Any = SimpleNamespace(get=lambda _, name: self.lanes[name], revoke=lambda _: None)
        registry: Any = SimpleNamespace(offset=1, holds_pipes=False)
        reader: Any = self.reader
        outbox: Any = self.outbox
        recorder = OutcomeRecorder(TOPICS, outbox, PartitionLease(Beating, 10.0))
        budget = InFlightBudget(1000, 10**7)
        health = Health("egest", "i")
        self.log = FakeLog()
        log: Any = self.log
        self.intake = DeliveryIntake(TOPICS, registry, lanes, recorder, reader, budget, health, 1, log)

    def records(self, count: int, destinations: bytes = b"one", keys: int = 1) -> list[ConsumerRecord]:
        records = []
        for offset in range(count):
            self.assigned.offsets.start(offset)
            headers = packed(
                {
                    **dict(attributes(offset)),
                    PIPE: b"flights",
                    REVISION: b"1",
                    REVISION_OFFSET: b"1",
                    SEQ: seq_text(EPOCH, offset),
                    ACCEPTED: b"%d" % offset,
                    MINUTE: b"0",
                    IN: b"0",
                    RAW: b"%d" % offset,
                    TO: destinations,
                }
            )
            records.append(
                ConsumerRecord(
                    TOPICS.enriched,
                    0,
                    offset,
                    0,
                    0,
                    b"%d" % (offset % keys),
                    b"{}",
                    None,
                    0,
                    2,
                    tuple(headers),
                )
            )
        return records


class OnePipe:
    """A registry with one pipe."""

    offset = 1
    partitions = 1
    holds_pipes = False

    def __init__(self, pipe: Pipe) -> None:
        self._known = SimpleNamespace(pipe=pipe, number=1, current=True)

    def get(self, _: str) -> Any:
        return self._known

    def all(self) -> list[Any]:
        return [self._known]

    def in_use(self) -> list[Any]:
        return [self._known]

    def unreadable(self, _: str) -> None:
        return None

    def on_change(self, _: Callable[[], None]) -> None:
        pass


def nothing(*_: Any) -> None:
    pass


async def handle(bench: IntakeBench, assigned: AssignedPartition, records: Sequence[ConsumerRecord]) -> None:
    """Handle records as the consumer does."""
    pending = bench.intake.handle(assigned, records)
    if pending is not None:
        await pending


@pytest.fixture
def bench() -> IntakeBench:
    return IntakeBench()


async def test_a_batch_that_fails_half_way_gives_each_delivery_once_when_it_is_repeated(
    bench: IntakeBench,
) -> None:
    records = bench.records(120)
    bench.lanes[b"one"].failures = 1
    with pytest.raises(RuntimeError):
        await handle(bench, bench.assigned, records)
    for record in records:  # as the consumer repeats a failed batch
        await handle(bench, bench.assigned, [record])
    assert bench.lanes[b"one"].offsets == list(range(120))


async def test_a_repeated_batch_keeps_the_floors_of_its_first_try(bench: IntakeBench) -> None:
    """An outcome that was written between the two tries must be found by the next owner."""
    (record,) = bench.records(1, b"one,two")
    bench.lanes[b"two"].failures = 1
    with pytest.raises(RuntimeError):
        await handle(bench, bench.assigned, [record])
    await handle(bench, bench.assigned, [record])
    metadata = CommitMetadata.parse(bench.assigned.metadata_at(0))
    assert metadata is not None
    assert metadata.floors == {TOPICS.receipts: 1}


async def test_the_offset_of_a_poison_record_waits_for_its_deliveries_in_lanes(bench: IntakeBench) -> None:
    (record,) = bench.records(1, b"one,two")
    bench.lanes[b"two"].failures = 3
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await handle(bench, bench.assigned, [record])
    await bench.intake.poisoned(bench.assigned, record, RuntimeError("never"))
    (letter,) = bench.outbox.records
    assert fields(letter.headers)[DESTINATION] == b"two"
    assert bench.assigned.offsets.committable is None, "the delivery for `one` is in flight"
    (delivery,) = bench.lanes[b"one"].deliveries
    complete_all([delivery])
    await until(lambda: bench.assigned.offsets.committable == 1, 1)


async def test_a_poison_record_that_no_lane_holds_is_complete_with_its_dead_letters(
    bench: IntakeBench,
) -> None:
    (record,) = bench.records(1, b"one,two")
    await bench.intake.poisoned(bench.assigned, record, RuntimeError("never"))
    assert [fields(letter.headers)[DESTINATION] for letter in bench.outbox.records] == [
        b"one",
        b"two",
    ]
    assert bench.assigned.offsets.committable == 1


async def test_the_log_is_asked_for_at_each_assignment_and_before_the_first_event_is_offered(
    bench: IntakeBench,
) -> None:
    """Without committed offsets, or where none is lower, no offset tells that the topics were created again."""
    records = bench.records(2)
    handling = bench.intake.handle(bench.assigned, records[:1])
    assert handling is not None
    assert bench.lanes[b"one"].offsets == []
    await handling
    assert (bench.log.calls, bench.lanes[b"one"].offsets) == (["asked"], [0])
    assert bench.intake.handle(bench.assigned, records[1:]) is None
    assert bench.log.calls == ["asked"], "once an assignment"


async def test_the_highest_offset_in_a_log_that_is_gone_makes_no_copies(bench: IntakeBench) -> None:
    """Not even of events whose accepted time does not tell it, because clocks differ."""
    metadata = CommitMetadata({"raw": 1000}, 10**18, {}, "before")
    bench.assigned.committed, bench.assigned.metadata = 0, metadata.serialize()
    records = bench.records(3)
    await handle(bench, bench.assigned, records)
    assert bench.lanes[b"one"].offsets == [0, 1, 2]
    restored = CommitMetadata.parse(bench.assigned.metadata_at(3))
    assert restored is not None
    assert (restored.highest_offsets, restored.log_identity) == ({"raw": 2}, "a")


@pytest.mark.parametrize("log_identity", ["a", ""])
async def test_the_highest_offset_in_the_same_log_or_one_that_is_not_known_makes_copies(
    bench: IntakeBench, log_identity: str
) -> None:
    metadata = CommitMetadata({"raw": 1}, 10**18, {}, log_identity)
    bench.assigned.committed, bench.assigned.metadata = 0, metadata.serialize()
    await handle(bench, bench.assigned, bench.records(3))
    assert bench.lanes[b"one"].offsets == [2]


async def test_copies_in_a_batch_are_complete_without_a_delivery(bench: IntakeBench) -> None:
    first_record, *_ = bench.records(3)
    copies = [
        ConsumerRecord(TOPICS.enriched, 0, offset, 0, 0, b"k", b"{}", None, 0, 2, first_record.headers)
        for offset in (1, 2)
    ]
    await handle(bench, bench.assigned, [first_record, *copies])
    assert bench.lanes[b"one"].offsets == [0]
    assert bench.assigned.offsets.committable is None
    complete_all(bench.lanes[b"one"].deliveries[:1])
    assert bench.assigned.offsets.committable == 3


@pytest.mark.parametrize("batch", [None, {"size": 7, "wait": "10ms"}])
async def test_a_batch_that_is_larger_than_its_lane_is_given_as_there_is_room_in_order(
    bench: IntakeBench, batch: dict[str, Any] | None
) -> None:
    """With lanes, requests and receipts as in egest; only Kafka is missing."""
    outbox: Any = bench.outbox
    lease = PartitionLease(Beating, 10.0)
    budget = InFlightBudget(40, 10**6)
    settings = EgestSettings(kafka="127.0.0.1:1", stream="s", egest_lane_events=10)
    health = Health("egest", "i")
    async with destination() as receiver:
        options = {"url": receiver.url, "concurrency": 3} | ({"batch": batch} if batch else {})
        pipes: Any = OnePipe(pipe_to("flights", {"name": "one", **options}, {"name": "two", **options}))
        recorder = OutcomeRecorder(TOPICS, outbox, lease)
        lanes = Lanes(
            pipes,
            LaneResources(
                settings,
                TOPICS.tiers,
                recorder,
                lease,
                budget,
                health,
                DestinationStates(),
                nothing,
                lambda: False,
                lambda: "",
            ),
            lambda: 1.0,
        )
        await lanes.start()
        reader: Any = bench.reader
        log: Any = bench.log
        intake = DeliveryIntake(TOPICS, pipes, lanes, recorder, reader, budget, health, 1, log)
        pending = intake.handle(bench.assigned, bench.records(200, b"one,two", keys=5))
        assert pending is not None
        await pending
        await until(lambda: bench.assigned.offsets.committable == 200, 20)
        await lanes.stop()
        ids = receiver.ids
    receipts = [fields(receipt.headers) for receipt in bench.outbox.records]
    assert Counter(receipt[OUTCOME] for receipt in receipts) == {b"delivered": 400}
    assert Counter(ids) == {str(number): 2 for number in range(200)}
    for name in (b"one", b"two"):
        for key in range(5):
            offsets = [
                int(receipt[SOURCE].split(b":")[1]) for receipt in receipts if receipt[DESTINATION] == name
            ]
            offsets_of_key = [offset for offset in offsets if offset % 5 == key]
            assert offsets_of_key == sorted(offsets_of_key)
    assert (budget.events, budget.size_bytes) == (0, 0)
