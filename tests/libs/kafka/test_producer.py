"""Records that the producer reports as acknowledged are in Kafka, in order, also after failures of the broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OutOfOrderSequenceNumber
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from hifi.kafka import clients
from hifi.kafka import producer as producer_module
from hifi.kafka.batches import build_batches
from hifi.kafka.producer import MAX_BATCH_BYTES, Producer, is_sendable
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.record.record import Record
from hifi.runtime.errors import Overloaded, Rejected, Unacknowledged
from hifi_infra.kafka.cluster import KafkaCluster

_CODEC_AT, _ZSTD = 22, 4
"""Place of the codec in a batch, and its number of zstd (Kafka's record batches, version 2)."""


async def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()


async def stored(bootstrap: str, topic: str, partition: int = 0) -> list[bytes]:
    """Every value of a partition, from its beginning to its end now."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    tp = TopicPartition(topic, partition)
    try:
        consumer.assign([tp])
        end = (await consumer.end_offsets([tp]))[tp]
        values: list[bytes] = []
        while await consumer.position(tp) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


def record(number: int, size: int = 0) -> Record:
    return Record(b"k", b"%d" % number + b" " * size, [("n", b"%d" % number)])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KafkaCluster]:
    async with KafkaCluster(tmp_path / "kafka") as kafka_cluster:
        yield kafka_cluster


async def an_hour_before_the_next_round(kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> Producer:
    """A producer that has written the record 0 to partition 0."""
    producer = Producer(kafka, "test")
    await producer.start()
    monkeypatch.setattr(producer_module, "FETCH_INTERVAL", SimpleNamespace(seconds=3600.0))
    await producer.send_and_wait(topic, 0, [record(0)])
    return producer


async def test_a_full_batch_does_not_wait_for_the_next_round_and_a_small_one_does(
    kafka: str, topic: "object", monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topic(partitions=2)  # type: ignore[operator]
    producer = await an_hour_before_the_next_round(kafka, name, monkeypatch)
    small = producer.send(name, 0, [record(1)])
    await asyncio.wait([small.acknowledged], timeout=1)
    assert not small.acknowledged.done()
    full_batches = [producer.send(name, 1, [record(number, MAX_BATCH_BYTES // 4)]) for number in range(2, 12)]
    async with asyncio.timeout(60):
        await asyncio.gather(small.acknowledged, *(batch.acknowledged for batch in full_batches[:8]))
    assert [int(value) for value in await stored(kafka, name)] == [0, 1]
    assert [int(value) for value in await stored(kafka, name, 1)][:8] == [*range(2, 10)]
    await producer.stop(timeout_s=0)


async def test_records_that_are_to_be_sent_at_once_take_along_what_waits_and_nothing_after_them(
    kafka: str, topic: "object", monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = await an_hour_before_the_next_round(kafka, name, monkeypatch)
    small = producer.send(name, 0, [record(1)])
    at_once = producer.send(name, 0, [record(2)], at_once=True)
    async with asyncio.timeout(60):
        await asyncio.gather(small.acknowledged, at_once.acknowledged)
    later_send = producer.send(name, 0, [record(3)])
    await asyncio.wait([later_send.acknowledged], timeout=1)
    assert not later_send.acknowledged.done()
    assert [int(value) for value in await stored(kafka, name)] == [0, 1, 2]
    await producer.stop(timeout_s=0)


async def test_records_arrive_in_order_over_several_batches(kafka: str, topic: "object") -> None:
    name = await topic(partitions=2)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    sendings = [producer.send(name, n % 2, [record(n, 2000)]) for n in range(2000)]
    await asyncio.gather(*(sending.acknowledged for sending in sendings))
    assert producer._buffered_bytes == 0
    assert await producer.stop()
    for partition in (0, 1):
        assert [int(value) for value in await stored(kafka, name, partition)] == list(
            range(partition, 2000, 2)
        )


async def test_only_batches_that_are_large_enough_are_compressed(kafka: str, topic: "object") -> None:
    name = await topic()  # type: ignore[operator]
    producer = Producer(kafka, "test", compression="zstd")
    await producer.start()
    client = producer._client
    assert client is not None
    codecs: list[int] = []
    for number, size in enumerate((0, 2_000, 5_000, 100_000)):
        records = [record(number, size)]
        await producer.send_and_wait(name, 0, records)
        [builder] = build_batches(client, records, size)
        codecs.append(builder._build()[_CODEC_AT] & 7)
    assert codecs == [0, 0, _ZSTD, _ZSTD]
    assert [int(value) for value in await stored(kafka, name)] == [0, 1, 2, 3]
    assert await producer.stop()


async def test_what_comes_within_milliseconds_goes_as_one_request_and_a_lone_record_at_once(
    kafka: str, topic: "object", monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topic(partitions=4)  # type: ignore[operator]
    monkeypatch.setattr("hifi.kafka.fetch_interval.SHORTEST_S", 0.5)
    producer = Producer(kafka, "test")
    await producer.start()
    client = producer._client
    assert client is not None
    requests: list[int] = []
    produce = client._sender._send_produce_req

    async def counted(service: int, batches: dict[TopicPartition, object]) -> None:
        requests.append(len(batches))
        await produce(service, batches)

    client._sender._send_produce_req = counted
    try:
        for partition in range(4):  # a new topic's leaders may not know yet that they are it
            await asyncio.wait_for(producer.send(name, partition, [record(0)]).acknowledged, 30)
        requests.clear()
        await asyncio.wait_for(producer.send(name, 0, [record(0)]).acknowledged, 30)
        assert requests == [1]
        sendings = []
        for number in range(8):  # the wait for the next moment has begun with the lone record
            sendings.append(producer.send(name, number % 4, [record(number)]))
            await asyncio.sleep(0)
        await asyncio.gather(*(sending.acknowledged for sending in sendings))
    finally:
        await producer.stop()
    assert requests == [1, 4]


@pytest.mark.parametrize(
    "header", [("a", b""), ("\u20ac" * 500, b""), ("a", b"x" * 70_000), ("a" * 100, b"x" * 100)]
)
def test_no_topic_refuses_the_largest_record_that_the_producer_takes(header: tuple[str, bytes]) -> None:
    """A record that Kafka refuses would be sent again and again."""
    fitting, too_many = 0, MAX_RECORD_BYTES
    while fitting + 1 < too_many:
        count = (fitting + too_many) // 2
        if is_sendable(Record(b"k", b"v", [header] * count)):
            fitting = count
        else:
            too_many = count
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 2 * MAX_RECORD_BYTES)
    builder.append(0, None, b"k", b"v", [header] * fitting)
    assert MAX_RECORD_BYTES / 4 < len(builder.build()) <= MAX_RECORD_BYTES


async def test_a_record_larger_than_a_batch_arrives_and_one_too_large_is_rejected(
    kafka: str, topic: "object"
) -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    # The test's topic has Kafka's default limit of 1 MiB.
    await producer.send_and_wait(name, 0, [record(1), record(2, MAX_BATCH_BYTES + 10_000), record(3)])
    with pytest.raises(Rejected, match="too-large"):
        producer.send(name, 0, [record(4, 5_000_000)])
    await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [1, 2, 3]


async def test_a_full_buffer_is_told_at_once_and_deliver_waits_for_room(kafka: str, topic: "object") -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = Producer(kafka, "test", buffer_bytes=100_000)
    await producer.start()
    first_sending = producer.send(name, 0, [record(1, 90_000)])
    with pytest.raises(Overloaded, match="full"):
        producer.send(name, 0, [record(2, 20_000)])
    await producer.send_and_wait(name, 0, [record(3, 20_000)])
    assert first_sending.acknowledged.done()
    await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [1, 3]


async def test_what_was_abandoned_before_it_left_is_never_sent(kafka: str, topic: "object") -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    kept_send, dropped_send = producer.send(name, 0, [record(1)]), producer.send(name, 0, [record(2)])
    assert dropped_send.abandon()
    await kept_send.acknowledged
    await producer.send_and_wait(name, 0, [record(3)])
    await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [1, 3]
    assert producer._buffered_bytes == 0


@pytest.mark.more  # faster: test_kafka_killed_and_back_loses_nothing; `make chaos-quick` kills the broker under load
async def test_a_broker_killed_under_load_costs_nothing_that_was_acknowledged(cluster: KafkaCluster) -> None:
    await make_topic(cluster.bootstrap, "kill", 2)
    producer = Producer(cluster.bootstrap, "test", ack_timeout_s=3)
    await producer.start()
    acknowledged: list[int] = []

    async def send(numbers: range, partition: int) -> None:
        for number in numbers:
            await producer.send_and_wait("kill", partition, [record(number)])
            acknowledged.append(number)

    load = [asyncio.create_task(send(range(lane * 1000, lane * 1000 + 600), lane % 2)) for lane in range(4)]
    for round_ in (1, 2):
        async with asyncio.timeout(100):
            while len(acknowledged) < 400 * round_:
                await asyncio.sleep(0.01)
        await cluster.kill_broker(1)
        await cluster.start_broker(1)
    async with asyncio.timeout(100):
        await asyncio.gather(*load)
    await producer.stop()
    for partition in (0, 1):
        stored_numbers = [int(value) for value in await stored(cluster.bootstrap, "kill", partition)]
        for lane in range(partition, 4, 2):
            lane_numbers = [number for number in stored_numbers if number // 1000 == lane]
            assert list(dict.fromkeys(lane_numbers)) == list(range(lane * 1000, lane * 1000 + 600))


async def test_a_paused_broker_stalls_visibly_and_nothing_is_lost_when_it_goes_on(
    cluster: KafkaCluster,
) -> None:
    await make_topic(cluster.bootstrap, "pause")
    producer = Producer(cluster.bootstrap, "test", ack_timeout_s=2)
    await producer.start()
    await producer.send_and_wait("pause", 0, [record(0)])
    cluster.pause_broker(1)
    waiting = [producer.send("pause", 0, [record(number)]) for number in range(1, 50)]
    async with asyncio.timeout(10):
        while producer.stalled_s(asyncio.get_running_loop().time()) < 1:
            await asyncio.sleep(0.05)
    late_send = producer.send("pause", 0, [record(99)])
    assert late_send.abandon()
    assert not waiting[0].abandon()  # it left already: its outcome is unknown
    cluster.resume_broker(1)
    async with asyncio.timeout(40):
        await asyncio.gather(*(sending.acknowledged for sending in waiting[1:]))
    await producer.stop()
    numbers = [int(value) for value in await stored(cluster.bootstrap, "pause")]
    assert set(range(2, 50)) <= set(numbers)
    assert 99 not in numbers


async def test_a_broker_that_was_frozen_stores_nothing_twice_that_must_not_be_written_twice(
    cluster: KafkaCluster,
) -> None:
    await make_topic(cluster.bootstrap, "once")
    ack_timeout_s = 2
    producer = Producer(cluster.bootstrap, "test", ack_timeout_s=ack_timeout_s)
    await producer.start()
    await producer.send_and_wait("once", 0, [record(0)])
    first_client = producer._client
    cluster.pause_broker(1)
    sendings = [producer.send("once", 0, [record(number)], repeats=False) for number in range(1, 50)]
    async with asyncio.timeout(60):
        while producer.stalled_s(asyncio.get_running_loop().time()) < 2 * ack_timeout_s:
            await asyncio.sleep(0.05)
    cluster.resume_broker(1)
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(
            *(sending.acknowledged for sending in sendings), return_exceptions=True
        )
    assert producer._client is not first_client
    assert {type(outcome) for outcome in outcomes} == {Unacknowledged}
    await producer.send_and_wait("once", 0, [record(99)])
    assert await producer.stop()
    numbers = [int(value) for value in await stored(cluster.bootstrap, "once")]
    assert len(numbers) == len(set(numbers)), "what the first client had sent is not sent again"
    assert {0, 99} <= set(numbers)


async def test_deliver_of_more_than_half_the_buffer_waits_without_holding_up_others(
    kafka: str, topic: "object"
) -> None:
    name = await topic(partitions=2)  # type: ignore[operator]
    producer = Producer(kafka, "test", buffer_bytes=1_000_000)
    await producer.start()
    first_sending = producer.send(name, 0, [record(0, 400_000)])
    async with asyncio.timeout(10):
        await producer.send_and_wait(name, 1, [record(1, 700_000)])
    assert first_sending.acknowledged.done()
    assert await producer.stop()


async def test_a_stop_that_takes_too_long_leaves_the_rest_unacknowledged(cluster: KafkaCluster) -> None:
    await make_topic(cluster.bootstrap, "stop")
    producer = Producer(cluster.bootstrap, "test")
    await producer.start()
    await producer.send_and_wait("stop", 0, [record(0)])
    cluster.pause_broker(1)
    in_flight = producer.send("stop", 0, [record(1)])
    async with asyncio.timeout(10):
        while not in_flight.handed_over:
            await asyncio.sleep(0.01)
    queued = producer.send("stop", 0, [record(2)])
    assert not await producer.stop(0.2)
    cluster.resume_broker(1)
    for sending in (in_flight, queued):
        with pytest.raises(Unacknowledged):
            await sending.acknowledged
    assert producer._buffered_bytes == 0
    with pytest.raises(Overloaded, match="stopping"):
        producer.send("stop", 0, [record(3)])


async def test_records_that_are_sent_before_the_start_leave_with_it(kafka: str, topic: "object") -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    early = producer.send(name, 0, [record(1)])
    await asyncio.sleep(0.01)  # a round has passed without a client
    await producer.start()
    async with asyncio.timeout(30):
        await early.acknowledged
    assert await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [1]


async def test_records_that_cannot_be_encoded_fail_alone(kafka: str, topic: "object") -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    wrong_send = producer.send(name, 0, [Record(b"k", b"1", [("\ud800", b"no such character in UTF-8")])])
    with pytest.raises(Unacknowledged, match="UnicodeEncodeError"):
        await wrong_send.acknowledged
    await producer.send_and_wait(name, 0, [record(2)])
    assert await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [2]


async def test_a_client_whose_batch_fails_is_replaced_and_every_batch_in_flight_is_sent_again(
    kafka: str, topic: "object", monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topic(partitions=2)  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    for partition in (0, 1):
        await producer.send_and_wait(name, partition, [record(0)])
    failing = producer._client
    assert failing is not None

    async def refuse(node: int, batches: dict[TopicPartition, Any]) -> None:
        for batch in batches.values():
            if batch.tp.partition == 0:
                batch.failure(OutOfOrderSequenceNumber())
        failing._sender._in_flight.remove(node)  # partition 1 gets no answer

    monkeypatch.setattr(failing._sender, "_send_produce_req", refuse)
    sendings = [producer.send(name, number % 2, [record(number)]) for number in range(2, 8)]
    async with asyncio.timeout(30):
        await asyncio.gather(*(sending.acknowledged for sending in sendings))
    assert producer._client is not failing
    assert await producer.stop()
    for partition in (0, 1):
        assert [int(value) for value in await stored(kafka, name, partition)] == [
            0,
            *range(2 + partition, 8, 2),
        ]


async def set_largest_batch(bootstrap: str, topic: str, size_bytes: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        configs = {"max.message.bytes": str(size_bytes)}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
    finally:
        await admin.close()


async def test_no_batch_is_sent_after_one_that_failed_so_a_partition_has_no_gap(
    kafka: str, topic: "object"
) -> None:
    name = await topic(partitions=1, configs={"max.message.bytes": "200000"})  # type: ignore[operator]
    producer = Producer(kafka, "test")
    await producer.start()
    two_batches = producer.send(name, 0, [record(0, MAX_BATCH_BYTES - 60_000), record(1, 100_000)])
    async with asyncio.timeout(60):
        while producer._queues[name, 0].failures < 4:
            await asyncio.sleep(0.01)
    assert await stored(kafka, name) == [], "the second batch would be in front of the first"
    await set_largest_batch(kafka, name, 4 * MAX_BATCH_BYTES)
    async with asyncio.timeout(60):
        await two_batches.acknowledged
    assert await producer.stop()
    assert [int(value) for value in await stored(kafka, name)] == [0, 1]


async def test_a_client_that_is_closed_while_its_broker_is_frozen_leaves_no_task_behind(
    cluster: KafkaCluster,
) -> None:
    await make_topic(cluster.bootstrap, "left")
    tasks_before = asyncio.all_tasks()
    producer = clients.transactional_producer(cluster.bootstrap, "left", "test", timeout_s=30)
    consumer = clients.group_consumer(ServiceSettings(kafka=cluster.bootstrap), "left")
    consumer.subscribe(["left"])
    await asyncio.gather(producer.start(), consumer.start())
    await producer.begin_transaction()
    await producer.send_and_wait("left", b"1", partition=0)
    await consumer.getmany(timeout_ms=100)
    cluster.pause_broker(1)
    try:
        await producer.send("left", b"2", partition=0)
        await asyncio.gather(clients.close(producer, 0.5), clients.close(consumer, 0.5))
        async with asyncio.timeout(20):
            while left_tasks := asyncio.all_tasks() - tasks_before - {asyncio.current_task()}:
                await asyncio.wait(left_tasks, timeout=0.1)
    finally:
        cluster.resume_broker(1)
