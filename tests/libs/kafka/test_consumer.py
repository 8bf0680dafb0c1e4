"""A service's loop loses nothing and repeats nothing while members come and go, and one bad record stops nobody."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaTimeoutError
from aiokafka.protocol.fetch import FetchRequest

from hifi.kafka.adaptive_fetcher import AdaptiveConsumer, AdaptiveFetcher
from hifi.kafka.consumer import AssignedPartition, Batch, Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.kafka.settings import ServiceSettings
from hifi.record.record import Record
from hifi.runtime import metrics
from hifi.runtime.service import Service
from hifi_infra.kafka.cluster import KafkaCluster


async def until(condition: Callable[[], bool], within_s: float = 40) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.02)


class CopyService:
    """Copies a topic to another, as every service does, and keeps a list of what it saw."""

    def __init__(
        self,
        kafka: str,
        source: str,
        target: str,
        group: str,
        name: str,
        bad_value: bytes | None = None,
        stuck_s: float = 60,
        gather_s: float = 0,
        is_plain: bool = False,
    ) -> None:
        self.settings = ServiceSettings(
            kafka=kafka, instance=name, commit_interval_s=0.1, session_timeout_s=6
        )
        self.service = Service("copy", self.settings)
        self.producer = Producer(kafka, name)
        self.seen: list[tuple[int, int]] = []
        self.poisoned: list[bytes] = []
        self.source, self.target, self.bad_value = source, target, bad_value
        consumer_options = ConsumerOptions([source], group, stuck_s=stuck_s, gather_s=gather_s)
        handle = self.plain_step if is_plain else self.step
        self.consumer = Consumer(self.service, self.settings, consumer_options, handle, self.put_away)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> "CopyService":
        await self.producer.start()
        self.task = asyncio.create_task(self.consumer.run())
        await until(lambda: self.service.health.ready)
        return self

    async def stop(self) -> None:
        self.service.stop()
        assert self.task is not None
        await self.task
        await self.producer.stop()

    async def step(self, work: AssignedPartition, records: Batch) -> None:
        if any(record.value == self.bad_value for record in records):
            raise RuntimeError("cannot digest it")
        self.seen += [(work.partition, record.offset) for record in records]
        await self.producer.send_and_wait(
            self.target, work.partition, [Record(r.key, r.value, list(r.headers)) for r in records]
        )
        work.complete_through(records[-1].offset)

    def plain_step(self, work: AssignedPartition, records: Batch) -> None:
        """As `step`, without waiting."""
        self.seen += [(work.partition, record.offset) for record in records]
        copies = [Record(r.key, r.value, list(r.headers)) for r in records]
        sending = self.producer.send(self.target, work.partition, copies)
        work.complete_when(sending.acknowledged, records[-1].offset)

    async def put_away(self, work: AssignedPartition, record: ConsumerRecord, _: Exception) -> None:
        self.poisoned.append(record.value)
        work.complete(record.offset)


@contextlib.asynccontextmanager
async def sender(kafka: str, topic: str, partitions: int, per_second: int) -> AsyncIterator[list[int]]:
    """Sends numbers, round-robin over the partitions, while the block runs; yields the numbers sent so far."""
    producer = Producer(kafka, "sender")
    await producer.start()
    sent_numbers: list[int] = []
    stop = asyncio.Event()

    async def send_records() -> None:
        while not stop.is_set():
            number = len(sent_numbers)
            await producer.send_and_wait(topic, number % partitions, [Record(b"k", b"%d" % number, [])])
            sent_numbers.append(number)
            await asyncio.sleep(1 / per_second)

    task = asyncio.create_task(send_records())
    try:
        yield sent_numbers
    finally:
        stop.set()  # what is on its way is counted too
        await task
        await producer.stop()


async def append(kafka: str, topic: str, *batches: list[Record]) -> None:
    """To partition 0, each batch when the one before is there."""
    producer = Producer(kafka, "sender")
    await producer.start()
    for batch in batches:
        await producer.send_and_wait(topic, 0, batch)
    await producer.stop()


async def stored(kafka: str, topic: str, partitions: int) -> dict[int, list[int]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    tps = [TopicPartition(topic, partition) for partition in range(partitions)]
    try:
        consumer.assign(tps)
        end_offsets = await consumer.end_offsets(tps)
        numbers: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
        while any([await consumer.position(tp) < end_offsets[tp] for tp in tps]):
            for tp, records in (await consumer.getmany(timeout_ms=300)).items():
                numbers[tp.partition] += [int(record.value) for record in records]
        return numbers
    finally:
        await consumer.stop()


# Faster than the plain one: the one with transactions, which also keeps the order.
@pytest.mark.parametrize("is_plain", [False, pytest.param(True, marks=pytest.mark.more)])
async def test_members_come_and_go_and_every_record_passes_once_in_order(
    kafka: str, topic: Any, is_plain: bool
) -> None:
    source, target = await topic(partitions=4), await topic(partitions=4)
    group = "g." + source
    async with sender(kafka, source, 4, 300) as sent_numbers:
        first_service = await CopyService(kafka, source, target, group, "n1", is_plain=is_plain).start()
        await until(lambda: len(first_service.seen) > 100)
        second_service = await CopyService(kafka, source, target, group, "n2", is_plain=is_plain).start()
        await until(lambda: len(second_service.seen) > 50)
        third_service = await CopyService(kafka, source, target, group, "n3", is_plain=is_plain).start()
        await until(lambda: len(third_service.seen) > 50)
        await first_service.stop()
        before = len(second_service.seen)
        await until(lambda: len(second_service.seen) > before + 100)
        await third_service.stop()
        goal = len(sent_numbers) + 100
        await until(lambda: len(sent_numbers) > goal)
    await until(
        lambda: (
            sum(len(service.seen) for service in (first_service, second_service, third_service))
            >= len(sent_numbers)
        )
    )
    await second_service.stop()
    numbers = await stored(kafka, target, 4)
    for partition in range(4):
        assert numbers[partition] == [number for number in sent_numbers if number % 4 == partition]


async def test_a_partition_is_left_behind_by_a_dead_member_and_nothing_is_lost(
    kafka: str, topic: Any
) -> None:
    source, target = await topic(partitions=2), await topic(partitions=2)
    group = "g." + source
    async with sender(kafka, source, 2, 200) as sent_numbers:
        first_service = await CopyService(kafka, source, target, group, "n1").start()
        second_service = await CopyService(kafka, source, target, group, "n2").start()
        await until(lambda: len(first_service.seen) > 20 and len(second_service.seen) > 20)
        assert first_service.task is not None
        # As if killed: no drain, no commit, no leaving; its producer's records may still be under way.
        first_service.consumer._dispatcher.end()
        for work in list(first_service.consumer.assigned.values()):
            if work.task is not None:
                work.task.cancel()
        coordinator = first_service.consumer.member._coordinator
        coordinator._coordination_task.cancel()
        coordinator._heartbeat_task.cancel()
        await until(lambda: len(second_service.consumer.assigned) == 2, within_s=60)
        goal = len(sent_numbers)
        await until(lambda: len(first_service.seen) + len(second_service.seen) >= goal)
    await until(
        lambda: (
            set(sent_numbers)
            <= {
                number
                for stored_numbers in seen_numbers(first_service, second_service)
                for number in stored_numbers
            }
        ),
        within_s=60,
    )
    await second_service.stop()
    first_service.service.stop()
    await first_service.task
    numbers = await stored(kafka, target, 2)
    assert set(sent_numbers) <= set(numbers[0]) | set(numbers[1])


async def test_a_member_that_drains_begins_nothing_that_it_is_given_meanwhile(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(partitions=2), await topic(partitions=2)
    group, gate = "g." + source, asyncio.Event()
    first_service = await CopyService(kafka, source, target, group, "n1").start()
    second_service = await CopyService(kafka, source, target, group, "n2").start()
    step = second_service.consumer._dispatcher.handle

    async def gated_step(work: AssignedPartition, records: Batch) -> None:
        await gate.wait()
        if (handling := step(work, records)) is not None:
            await handling

    monkeypatch.setattr(second_service.consumer._dispatcher, "handle", gated_step)
    await until(lambda: len(first_service.consumer.assigned) == len(second_service.consumer.assigned) == 1)
    [assigned_partition] = second_service.consumer.assigned
    async with sender(kafka, source, 2, 100):
        await until(lambda: not second_service.consumer.assigned[assigned_partition].idle)
        second_service.service.stop()
        await first_service.stop()
        await until(lambda: len(second_service.consumer.member.assignment()) == 2)
        assert set(second_service.consumer.assigned) == {assigned_partition}
        gate.set()
        await second_service.stop()
    assert {partition for partition, _ in second_service.seen} == {assigned_partition.partition}


async def test_no_more_is_begun_than_may_be_incomplete_and_a_full_partition_stops_no_other(
    kafka: str, topic: Any
) -> None:
    source = await topic(partitions=2)
    service = CopyService(kafka, source, source, "g." + source, "n1")
    begun_work: list[AssignedPartition] = []

    def begin(work: AssignedPartition, records: Batch) -> None:
        begun_work.extend([work] * len(records))
        if work.partition == 1:
            work.complete_through(records[-1].offset)

    consumer_options = ConsumerOptions([source], "g." + source, batch_records=5, pending_records=10)
    service.consumer = Consumer(service.service, service.settings, consumer_options, begin, service.put_away)
    await service.start()
    for partition in (0, 1):
        numbers = [Record(b"k", b"%d" % n, []) for n in range(50)]
        await service.producer.send_and_wait(source, partition, numbers)
    await until(lambda: sum(work.partition for work in begun_work) == 50)
    full_partition = [work for work in begun_work if not work.partition]
    assert len(full_partition) == 10
    full_partition[0].complete_through(3)
    await until(lambda: len([work for work in begun_work if not work.partition]) == 15)
    full_partition[0].complete_through(14)
    await until(lambda: len([work for work in begun_work if not work.partition]) == 25)
    full_partition[0].abandon()
    await service.stop()


async def test_records_whose_outputs_are_never_acknowledged_are_read_again(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(), await topic()
    await append(kafka, source, [Record(b"k", b"%d" % number, []) for number in range(10)])
    service = CopyService(kafka, source, target, "g." + source, "n1", is_plain=True)
    refused_numbers: list[int] = []

    def refuse_once(work: AssignedPartition, records: Batch) -> None:
        if refused_numbers:
            service.plain_step(work, records)
            return
        refused_numbers.extend(record.offset for record in records)
        sending = service.producer.send(target, 0, [Record(b"k", b"1", [("header", "no bytes")])])  # type: ignore[list-item]
        work.complete_when(sending.acknowledged, records[-1].offset)

    monkeypatch.setattr(service.consumer._dispatcher, "handle", refuse_once)
    await service.start()
    await until(lambda: len(service.seen) == 10)
    await service.stop()
    assert refused_numbers
    assert (await stored(kafka, target, 1))[0] == list(range(10))


def seen_numbers(*services: CopyService) -> list[list[int]]:
    """The n-th record of partition p is the number 2n + p, as the sender makes them."""
    return [[2 * offset + partition for partition, offset in service.seen] for service in services]


async def test_one_poisoned_record_is_put_away_and_its_neighbours_pass(kafka: str, topic: Any) -> None:
    source, target = await topic(), await topic()
    producer = Producer(kafka, "sender")
    await producer.start()
    await producer.send_and_wait(source, 0, [Record(b"k", b"%d" % n, []) for n in range(100)])
    await producer.stop()
    service = await CopyService(kafka, source, target, "g." + source, "n1", bad_value=b"57").start()
    await until(lambda: len(service.seen) == 99)
    work = next(iter(service.consumer.assigned.values()))
    await until(lambda: work.committed == 100)
    await service.stop()
    assert service.poisoned == [b"57"]
    assert (await stored(kafka, target, 1))[0] == [n for n in range(100) if n != 57]


async def test_a_record_that_cannot_be_put_away_ends_no_service_and_nothing_behind_it_is_committed(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(partitions=2), await topic(partitions=2)
    await append(kafka, source, [Record(b"k", b"%d" % n, []) for n in range(10)])
    service = CopyService(kafka, source, target, "g." + source, "n1", bad_value=b"4")
    put_away, failures = service.put_away, 0

    async def fail(*_: Any) -> None:
        nonlocal failures
        failures += 1
        raise TypeError("object of type 'NoneType' has no len()")

    monkeypatch.setattr(service.consumer._dispatcher, "handle_poison", fail)
    await service.producer.start()
    service.task = asyncio.create_task(service.consumer.run())
    await until(lambda: failures == 2)
    await until(lambda: not service.service.health.ready)
    assert "NoneType" in str(service.service.health.waiting)
    assert max(offset for _, offset in service.seen) == 3
    producer = Producer(kafka, "sender")
    await producer.start()
    await producer.send_and_wait(source, 1, [Record(b"k", b"other", [])])
    await producer.stop()
    await until(lambda: (1, 0) in service.seen)
    monkeypatch.setattr(service.consumer._dispatcher, "handle_poison", put_away)
    await until(lambda: service.poisoned == [b"4"] and (0, 9) in service.seen)
    await until(lambda: service.service.health.ready)
    await service.stop()


async def test_a_poison_record_is_not_committed_before_its_handler_completes_it(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(), await topic()
    await append(kafka, source, [Record(b"k", b"%d" % n, []) for n in range(10)])
    service = CopyService(kafka, source, target, "g." + source, "n1")
    handled_work: list[AssignedPartition] = []

    async def one_by_one(work: AssignedPartition, records: Batch) -> None:
        if any(record.value == b"4" for record in records):
            raise RuntimeError("cannot digest it")
        for record in records:
            service.seen.append((work.partition, record.offset))
            work.complete(record.offset)

    async def note_poison(work: AssignedPartition, _: ConsumerRecord, __: Exception) -> None:
        handled_work.append(work)

    monkeypatch.setattr(service.consumer._dispatcher, "handle_poison", note_poison)
    monkeypatch.setattr(service.consumer._dispatcher, "handle", one_by_one)
    await service.start()
    await until(lambda: len(service.seen) == 9)
    [work] = handled_work
    await asyncio.sleep(5 * service.settings.commit_interval_s)
    assert work.offsets.committable == 4, "deliveries of the record may still be under way"
    work.complete(4)
    await until(lambda: work.committed == 10)
    await service.stop()


@pytest.mark.more
async def test_a_restart_goes_on_where_the_commits_ended(kafka: str, topic: Any) -> None:
    source, target = await topic(), await topic()
    async with sender(kafka, source, 1, 300) as sent_numbers:
        for _ in range(3):
            service = await CopyService(kafka, source, target, "g." + source, "n").start()
            await until(lambda service=service: len(service.seen) > 50)  # type: ignore[misc]
            await service.stop()
    service = await CopyService(kafka, source, target, "g." + source, "n").start()
    await until(
        lambda: (
            bool(service.consumer.assigned)
            and next(iter(service.consumer.assigned.values())).committed == len(sent_numbers)
        )
    )
    await service.stop()
    assert (await stored(kafka, target, 1))[0] == sent_numbers


async def test_offsets_that_kafka_deleted_are_told_and_the_rest_goes_on(kafka: str, topic: Any) -> None:
    source, target = await topic(), await topic()
    producer = Producer(kafka, "sender")
    await producer.start()
    await producer.send_and_wait(source, 0, [Record(b"k", b"%d" % n, []) for n in range(10)])
    service = await CopyService(kafka, source, target, "g." + source, "n").start()
    await until(lambda: len(service.seen) == 10)
    await service.stop()
    await producer.send_and_wait(source, 0, [Record(b"k", b"%d" % n, []) for n in range(10, 30)])
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_records({TopicPartition(source, 0): RecordsToDelete(before_offset=25)})
    await admin.close()
    skipped_before = metrics.SKIPPED.labels(source)._value.get()
    service = await CopyService(kafka, source, target, "g." + source, "n").start()
    await until(lambda: len(service.seen) == 5)
    await service.stop()
    await producer.stop()
    assert metrics.SKIPPED.labels(source)._value.get() - skipped_before == 15


async def test_partitions_that_are_added_from_outside_are_refused_and_the_others_go_on(
    kafka: str, topic: Any
) -> None:
    source, target = await topic(2), await topic(2)
    service = await CopyService(kafka, source, target, "g." + source, "n", stuck_s=1).start()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_partitions({source: NewPartitions(total_count=3)})
    await admin.close()
    await until(lambda: not service.service.health.ready)
    assert "a stream never grows" in "".join(service.service.health.waiting.values())
    async with sender(kafka, source, 2, 200) as sent_numbers:
        await until(lambda: len(sent_numbers) > 50)
    await until(lambda: len(service.seen) >= len(sent_numbers))
    await service.stop()
    numbers = await stored(kafka, target, 2)
    assert sorted(numbers[0] + numbers[1]) == sent_numbers


async def test_a_topic_that_is_deleted_is_told_and_when_it_is_made_again_all_of_it_passes(
    kafka: str, topic: Any
) -> None:
    source, target = await topic(), await topic()
    producer = Producer(kafka, "sender")
    await producer.start()
    await producer.send_and_wait(source, 0, [Record(b"k", b"%d" % n, []) for n in range(100)])
    await producer.stop()
    service = await CopyService(kafka, source, target, "g." + source, "n", stuck_s=1).start()
    await until(lambda: len(service.seen) == 100)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.delete_topics([source])
    await until(lambda: not service.service.health.ready)
    await admin.create_topics([NewTopic(source, 1, 1)])
    await admin.close()
    await until(lambda: service.service.health.ready)
    await append(kafka, source, [Record(b"k", b"%d" % n, []) for n in range(100, 120)])
    await until(lambda: len(service.seen) == 120)
    await service.stop()
    assert (await stored(kafka, target, 1))[0] == list(range(120))


async def test_who_works_on_records_for_long_does_not_ask_kafka_all_the_time(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(partitions=2), await topic(partitions=2)
    service = CopyService(kafka, source, target, "g." + source, "n1", gather_s=0.2)
    works, go_on = asyncio.Event(), asyncio.Event()
    asked_s: list[float] = []
    ask, step = AdaptiveFetcher._proc_fetch_request, service.step

    async def noted_fetch(self: AdaptiveFetcher, *request: Any) -> Any:
        asked_s.append(time.monotonic())
        return await ask(self, *request)

    async def slow(work: AssignedPartition, records: Batch) -> None:
        works.set()
        await go_on.wait()
        await step(work, records)

    monkeypatch.setattr(AdaptiveFetcher, "_proc_fetch_request", noted_fetch)
    monkeypatch.setattr(service.consumer._dispatcher, "handle", slow)
    await service.start()
    await service.producer.send_and_wait(source, 0, [Record(b"k", b"1", [])])
    await works.wait()
    await service.producer.send_and_wait(source, 0, [Record(b"k", b"2", [])])
    await until(lambda: bool(service.consumer.member._fetcher._records))  # it waits behind the first one
    asked_s.clear()
    await until(lambda: len(asked_s) > 4)
    assert asked_s[4] - asked_s[0] > 4 * 0.2 * 0.8
    go_on.set()
    await until(lambda: len(service.seen) == 2)
    await service.stop()


@contextlib.asynccontextmanager
async def patient(
    kafka: str, topic: str, asked_offsets: list[int], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Reads partition 0, and notes the offset of each fetch that is sent."""
    consumer = AdaptiveConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest", **options)
    await consumer.start()
    send = consumer._client.send

    async def noted_send(node_id: int, request: Any, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            assert request._min_bytes == 1  # no fetch is looked at again for each record
            [(_, [(_, offset, _)])] = request._topics
            asked_offsets.append(offset)
        return await send(node_id, request, **options)

    monkeypatch.setattr(consumer._client, "send", noted_send)
    consumer.assign([TopicPartition(topic, 0)])
    try:
        yield consumer
    finally:
        await consumer.stop()


@pytest.mark.more
async def test_records_that_flow_are_gathered_before_kafka_is_asked(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await topic(partitions=1)
    asked_offsets: list[int] = []
    gathered: list[int] = []
    async with (
        sender(kafka, source, 1, per_second=100),
        patient(kafka, source, asked_offsets, monkeypatch, fetch_max_wait_ms=300) as consumer,
    ):
        began_s = time.monotonic()
        async with asyncio.timeout(40):
            while sum(gathered) < 200:
                gathered += [len(records) for records in (await consumer.getmany(timeout_ms=1000)).values()]
        took_s = time.monotonic() - began_s
    assert len(asked_offsets) <= len(gathered) + 2
    # Whatever rate the sender reaches; without gathering there is nearly a fetch for each record.
    assert len(asked_offsets) <= took_s / 0.3 + 2


async def test_a_backlog_is_fetched_without_gathering(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await topic(partitions=1)
    await append(kafka, source, *([Record(b"k", b"%02d" % n + bytes(2000), [])] for n in range(60)))
    asked_offsets: list[int] = []
    slow_ms = 30_000  # one such wait and the test is over its time
    options = {"fetch_max_wait_ms": slow_ms, "request_timeout_ms": 2 * slow_ms}
    async with patient(
        kafka, source, asked_offsets, monkeypatch, max_partition_fetch_bytes=5000, **options
    ) as consumer:
        count = 0
        async with asyncio.timeout(slow_ms / 1000):
            while count < 60:
                count += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    assert len(asked_offsets) > 20


async def test_a_consumer_that_gathers_stops_at_once(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await topic(partitions=1)
    await append(kafka, source, [Record(b"k", b"1", [])])
    options = {"fetch_max_wait_ms": 30_000, "request_timeout_ms": 60_000}
    async with asyncio.timeout(25), patient(kafka, source, [], monkeypatch, **options) as consumer:
        assert await consumer.getone()
        assert not await consumer.getmany(timeout_ms=500)
        assert consumer._fetcher._in_flight  # it gathers for the next one


@pytest.mark.timeout(400)
@pytest.mark.more
async def test_kafka_killed_and_back_loses_nothing(tmp_path: Path) -> None:
    async with KafkaCluster(tmp_path / "kafka") as cluster:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic("from", 2, 1), NewTopic("to", 2, 1)])
        await admin.close()
        service = await CopyService(cluster.bootstrap, "from", "to", "g", "n").start()
        async with sender(cluster.bootstrap, "from", 2, 200) as sent_numbers:
            await until(lambda: len(service.seen) > 100)
            await cluster.kill_broker(1)
            await cluster.start_broker(1)
            goal = len(service.seen) + 200
            await until(lambda: len(service.seen) > goal, within_s=120)
        await until(
            lambda: (
                set(sent_numbers) <= {2 * offset + partition for partition, offset in service.seen}
                or len(service.seen) > len(sent_numbers) + 5000
            ),
            within_s=120,
        )
        await until(lambda: sum(work.offsets.pending for work in service.consumer.assigned.values()) == 0)
        await service.stop()
        numbers = await stored(cluster.bootstrap, "to", 2)
        counts = Counter(numbers[0] + numbers[1])
        assert set(sent_numbers) <= set(counts)


async def test_a_consumer_that_gets_no_answer_while_kafka_answers_others_is_replaced(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(), await topic()
    service = await CopyService(kafka, source, target, "g." + source, "n", stuck_s=1).start()
    await append(kafka, source, [Record(b"k", b"0", [])])
    await until(lambda: len(service.seen) == 1)
    stuck = service.consumer.member

    async def no_answer(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(1)
        raise KafkaTimeoutError

    monkeypatch.setattr(stuck, "end_offsets", no_answer)
    monkeypatch.setattr(stuck._fetcher, "_on_records", lambda _: None)  # it fetches, and passes nothing on
    await append(kafka, source, [Record(b"k", b"1", [])])
    await until(lambda: len(service.seen) == 2)
    assert service.consumer.member is not stuck
    await service.stop()


async def test_a_consumer_waits_while_kafka_answers_nobody(
    kafka: str, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await topic(), await topic()
    service = await CopyService(kafka, source, target, "g." + source, "n", stuck_s=0.2).start()
    member, ask_count = service.consumer.member, 0

    async def no_answer(*_: Any, **__: Any) -> Any:
        nonlocal ask_count
        ask_count += 1
        raise KafkaTimeoutError

    monkeypatch.setattr(AIOKafkaConsumer, "end_offsets", no_answer)
    await until(lambda: ask_count > 8)
    assert service.consumer.member is member
    await service.stop()
