"""Kafka destinations: a reader of committed records sees each event once, whatever happens to egest."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.support.egest.egest_stream import (
    EgestStream,
    outcomes,
    pipe_to,
    process,
    running_egest,
    texts,
    until,
)
from tests.support.egest.fake_destination import destination
from tests.support.kafka.out_topic import OutTopic
from tests.support.retrier.running_retrier import retrying

from hifi.delivery.kind import OutboundEvent
from hifi.record.headers import DESTINATION, OUTCOME, REASON
from hifi.runtime.errors import HifiError, Missing, Rejected
from hifi_kafka.destination.positions import RETENTION_DAYS

EVENTS = 4000


@pytest.fixture
async def out_topic(kafka: str, topic: Callable[..., Awaitable[str]]) -> OutTopic:
    return OutTopic(kafka, await topic(2, prefix="out"))


LOG = "0a" * 16


def outbound(
    offset: int, key: str = "k", *, partition: int = 0, is_retried: bool = False, **data: Any
) -> OutboundEvent:
    attributes = {"specversion": "1.0", "id": f"i{offset}", "source": "/s", "type": "made"}
    body = orjson.dumps({"number": offset, **data})
    return OutboundEvent(
        body, "application/json", attributes, key.encode(), LOG, partition, offset, 0, is_retried
    )


def numbers(records: Sequence[ConsumerRecord]) -> list[int]:
    return [orjson.loads(record.value)["number"] for record in records]


async def test_each_event_is_written_once_in_the_order_of_its_key(
    stream: EgestStream, out_topic: OutTopic
) -> None:
    async with running_egest(stream, out_topic.pipe()):
        sent_records = [stream.record(key=f"k{n % 7}", data={"number": n}) for n in range(300)]
        await stream.enriched(*sent_records)
        receipts = await stream.receipts(300)
    assert outcomes(receipts) == ["delivered"] * 300
    records = await out_topic.records()
    assert sorted(numbers(records)) == list(range(300))
    for key in range(7):
        key_numbers = numbers([record for record in records if record.key == f"k{key}".encode()])
        assert key_numbers == sorted(key_numbers)


async def test_events_that_were_written_are_not_written_again(out_topic: OutTopic) -> None:
    kafka_writer = out_topic.writer()
    await kafka_writer.write([outbound(1), outbound(3)])
    await kafka_writer.write([outbound(1), outbound(2), outbound(3)])
    await kafka_writer.close()
    second_writer = out_topic.writer()  # a new owner reads what was written
    await second_writer.write([outbound(3), outbound(2), outbound(5000)])
    await second_writer.write(
        [outbound(1, is_retried=True), outbound(6, is_retried=True), outbound(5000, is_retried=True)]
    )
    await second_writer.close()
    assert numbers(await out_topic.records()) == [1, 3, 2, 5000, 6]


async def test_a_takeover_of_partitions_does_not_wait_for_the_open_transactions_of_each_other(
    kafka: str, out_topic: OutTopic, topic: Callable[..., Awaitable[str]]
) -> None:
    positions = await topic(1, prefix="positions")
    async with contextlib.AsyncExitStack() as killed_processes:
        for partition in (0, 1):
            producer = AIOKafkaProducer(
                bootstrap_servers=kafka,
                transactional_id=f"hifi;s;flights;d;{LOG};{partition};fresh",
                transaction_timeout_ms=600_000,
            )
            await killed_processes.enter_async_context(producer)
            await producer.begin_transaction()
            await producer.send_and_wait(
                positions, b"", key=f"s;flights;d;{LOG};{partition};fresh;0".encode()
            )
        writer = out_topic.writer(positions_topic=positions)
        async with asyncio.timeout(120):
            await writer.write([outbound(1, partition=0), outbound(2, partition=1)])
        await writer.close()
    assert sorted(numbers(await out_topic.records())) == [1, 2]


async def test_a_positions_topic_forgets_what_was_last_written_long_ago(
    kafka: str, out_topic: OutTopic
) -> None:
    writer = out_topic.writer()
    await writer.write([outbound(1)])
    await writer.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        resource = ConfigResource(ConfigResourceType.TOPIC, f"{out_topic.name}-positions")
        (answer,) = await admin.describe_configs([resource])
    finally:
        await admin.close()
    settings = {name: value for name, value, *_ in answer.resources[0][4]}
    assert set(settings["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert int(settings["retention.ms"]) == RETENTION_DAYS * 86_400_000


async def test_what_the_other_owner_wrote_is_known_before_a_retried_event_is_written(
    out_topic: OutTopic,
) -> None:
    first_writer, retry_writer = out_topic.writer(), out_topic.writer()
    await retry_writer.write([outbound(1, is_retried=True)])
    await first_writer.write([outbound(2), outbound(3)])
    await retry_writer.write([outbound(3, is_retried=True), outbound(4, is_retried=True)])
    await first_writer.write([outbound(5)])
    assert numbers(await out_topic.records()) == [1, 2, 3, 4, 5]
    await first_writer.close()
    await retry_writer.close()


async def test_a_new_owner_fences_the_old_one(out_topic: OutTopic) -> None:
    old_writer, new_writer = out_topic.writer(), out_topic.writer()
    await old_writer.write([outbound(1)])
    await new_writer.write([outbound(2)])
    with pytest.raises(HifiError):
        await old_writer.write([outbound(3)])
    await new_writer.close()
    await old_writer.close()
    assert numbers(await out_topic.records()) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "key", "value", "headers"),
    [
        ({}, b"k", {"number": 1}, {}),
        ({"key_attribute": "id", "headers": {"team": "a"}}, b"i1", {"number": 1}, {"team": b"a"}),
        ({"key_attribute": "datacontenttype"}, b"application/json", {"number": 1}, {}),
        (
            {"format": "cloudevents-binary"},
            b"k",
            {"number": 1},
            {"ce_id": b"i1", "ce_source": b"/s", "ce_type": b"made", "ce_specversion": b"1.0"}
            | {"content-type": b"application/json"},
        ),
        (
            {"format": "cloudevents-structured"},
            b"k",
            {"id": "i1", "source": "/s", "type": "made", "specversion": "1.0"}
            | {"datacontenttype": "application/json", "data": {"number": 1}},
            {"content-type": b"application/cloudevents+json"},
        ),
    ],
)
async def test_records_have_the_declared_form(
    out_topic: OutTopic, settings: dict[str, Any], key: bytes, value: Any, headers: dict[str, bytes]
) -> None:
    kafka_writer = out_topic.writer(**settings)
    await kafka_writer.write([outbound(1)])
    await kafka_writer.close()
    [record] = await out_topic.records()
    assert (record.key, orjson.loads(record.value), dict(record.headers)) == (key, value, headers)


async def test_a_record_that_the_cluster_refuses_is_rejected_and_the_others_can_be_written(
    out_topic: OutTopic,
) -> None:
    kafka_writer = out_topic.writer()
    await kafka_writer.write([outbound(1)])
    with pytest.raises(Rejected) as caught:
        await kafka_writer.write([outbound(2), outbound(3, pad="x" * 2_000_000)])
    assert caught.value.reason == "too-large"
    await kafka_writer.write([outbound(2)])
    await kafka_writer.close()
    assert numbers(await out_topic.records()) == [1, 2]


@pytest.mark.parametrize("limit", [20_000, 2_000])
async def test_batches_keep_the_limit_of_the_topic_and_the_order(out_topic: OutTopic, limit: int) -> None:
    await out_topic.configure(limit)
    writer = out_topic.writer()
    for start in range(0, 900, 300):
        events = [outbound(n, f"k{n % 7}", pad="x" * 300) for n in range(start, start + 300)]
        await writer.write([*events[:100], *events[100:]])
    with pytest.raises(Rejected, match="refuses"):
        await writer.write([outbound(900), outbound(901, pad="x" * 2 * limit)])
    await writer.write([outbound(902)])
    await writer.close()
    records = await out_topic.records()
    assert sorted(numbers(records)) == [*range(900), 902]
    for key in range(7):
        key_numbers = numbers([record for record in records if record.key == f"k{key}".encode()])
        assert key_numbers == sorted(key_numbers)
    attempts = await out_topic.records("read_uncommitted")
    assert len(attempts) < 1.5 * len(records), "the limit is kept, not met again with each batch"


async def test_a_limit_that_is_lowered_under_a_writer_loses_neither_records_nor_order(
    out_topic: OutTopic,
) -> None:
    writer = out_topic.writer()
    events = [outbound(n, f"k{n % 7}", pad="x" * 300) for n in range(600)]
    await writer.write(events[:300])
    await out_topic.configure(2_000)
    await writer.write(events[300:])
    await writer.close()
    records = await out_topic.records()
    assert sorted(numbers(records)) == [*range(600)]
    for key in range(7):
        key_numbers = numbers([record for record in records if record.key == f"k{key}".encode()])
        assert key_numbers == sorted(key_numbers)


async def test_for_a_topic_that_somebody_deletes_deliveries_wait_and_the_reason_names_it(
    out_topic: OutTopic,
) -> None:
    writer = out_topic.writer()
    await writer.write([outbound(1)])
    await out_topic.delete(out_topic.name)
    missing_errors: list[Missing] = []
    async with asyncio.timeout(45):
        while not missing_errors:
            try:
                async with asyncio.timeout(5):
                    await writer.write([outbound(2), outbound(3)])
            except Missing as error:
                missing_errors.append(error)
            except (TimeoutError, HifiError):
                await asyncio.sleep(0.2)
    assert missing_errors[0].what == f"topic {out_topic.name}"
    await out_topic.create()
    async with asyncio.timeout(45):
        while True:
            with contextlib.suppress(TimeoutError, HifiError):
                async with asyncio.timeout(5):
                    await writer.write([outbound(2), outbound(3)])
                    break
            await asyncio.sleep(0.2)
    await writer.write([outbound(3), outbound(4)])
    await writer.close()
    assert numbers(await out_topic.records()) == [2, 3, 4]


async def test_a_positions_topic_that_somebody_deletes_is_made_again(out_topic: OutTopic) -> None:
    writer = out_topic.writer()
    await writer.write([outbound(1), outbound(2)])
    await writer.write([outbound(3, is_retried=True)])
    await out_topic.delete_positions()
    for event in (outbound(4), outbound(5, is_retried=True)):
        async with asyncio.timeout(45):
            while True:
                with contextlib.suppress(TimeoutError, HifiError):
                    async with asyncio.timeout(5):
                        await writer.write([event])
                        break
                await asyncio.sleep(0.2)
    await writer.close()
    successor = out_topic.writer()
    await successor.write([outbound(4), outbound(5, is_retried=True), outbound(6)])
    await successor.close()
    assert numbers(await out_topic.records()) == [1, 2, 3, 4, 5, 6]


async def test_a_cluster_that_is_away_is_a_retry(stream: EgestStream) -> None:
    declared_pipe = OutTopic("127.0.0.1:1", "out").pipe(timeout="2s", retry={"local_attempts": 1})
    async with running_egest(stream, declared_pipe):
        await stream.send(2)
        receipts = await stream.receipts(2)
    assert outcomes(receipts) == ["retry"] * 2
    assert {receipt[REASON] for receipt in receipts} <= {"unavailable", "timeout"}


async def test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written(
    stream: EgestStream, out_topic: OutTopic
) -> None:
    declared_pipe = out_topic.pipe(settings={"key_attribute": "subject"}, batch={"size": 50, "wait": "200ms"})
    poison = {11, 12, 40}

    def subject(number: int) -> dict[str, Any]:
        return {} if number in poison else {"ce_subject": b"s%d" % (number % 3)}

    async with running_egest(stream, declared_pipe):
        records = [stream.record(data={"number": n}, **subject(n)) for n in range(60)]
        await stream.enriched(*records)
        receipts = await stream.receipts(60)
        letters = await stream.read(stream.topics.dead_letter)
    assert sorted(orjson.loads(letter.value)["number"] for letter in letters) == sorted(poison)
    assert {texts(letter)[REASON] for letter in letters} == {"no-key"}
    assert sorted(outcomes(receipts)) == ["dead-letter"] * 3 + ["delivered"] * 57
    written_records = await out_topic.records()
    assert sorted(numbers(written_records)) == [n for n in range(60) if n not in poison]
    assert {record.key for record in written_records} == {b"s0", b"s1", b"s2"}


async def test_a_cluster_that_is_away_delays_no_other_destination(stream: EgestStream) -> None:
    async with destination() as receiver:
        absent_cluster = OutTopic("127.0.0.1:1", "out").declared(timeout="1s", retry={"local_attempts": 1})
        declared_pipe = pipe_to("flights", absent_cluster, {"name": "http", "url": receiver.url})

        def has_arrived(count: int) -> bool:
            return len(receiver.ids) == count

        async with running_egest(stream, declared_pipe, egest_lane_events=20):
            for sent_count in range(0, 100, 10):
                await stream.send(10, to="d,http")
                await until(partial(has_arrived, sent_count + 10))
            receipts = await stream.receipts(200)
    receipt_counts = Counter((receipt[DESTINATION], receipt[OUTCOME]) for receipt in receipts)
    assert receipt_counts == {("http", "delivered"): 100, ("d", "retry"): 100}


async def test_kills_in_mid_transaction_lose_and_repeat_nothing(
    stream: EgestStream, out_topic: OutTopic, tmp_path: Path
) -> None:
    await stream.publish(out_topic.pipe(batch={"size": 20, "wait": "5ms"}))
    await stream.enriched(*(stream.record(key=f"k{n % 50}", data={"number": n}) for n in range(EVENTS)))
    for kill in range(3):
        with process(stream, tmp_path / f"log{kill}", session_timeout_s=6, commit_interval_s=3600) as egest:
            count_before = len(await out_topic.records("read_uncommitted"))
            await grown(out_topic, count_before + 200)
            egest.stop(signal.SIGKILL)
    async with running_egest(stream, session_timeout_s=6), retrying(stream), asyncio.timeout(120):
        while outcomes(await stream.receipts(EVENTS)).count("delivered") < EVENTS:
            await asyncio.sleep(0.1)
    assert sorted(numbers(await out_topic.records())) == list(range(EVENTS))


async def grown(out: OutTopic, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await out.records("read_uncommitted")) < count:
            await asyncio.sleep(0.02)


async def test_an_owner_that_was_frozen_writes_nothing_after_its_partition_was_taken_over(
    stream: EgestStream, out_topic: OutTopic, tmp_path: Path
) -> None:
    await stream.publish(out_topic.pipe(batch={"size": 20, "wait": "5ms"}))
    with contextlib.ExitStack() as processes:
        egest = processes.enter_context(process(stream, tmp_path / "one", session_timeout_s=6))
        await egest.ready()
        await stream.enriched(*(stream.record(key=f"k{n % 50}", data={"number": n}) for n in range(EVENTS)))
        await grown(out_topic, 200)
        egest.send(signal.SIGSTOP)
        other_owner = processes.enter_context(process(stream, tmp_path / "other", session_timeout_s=6))
        await other_owner.ready()
        await grown(out_topic, 2000)
        egest.send(signal.SIGCONT)
        # The writes of the frozen process fail at once, so its circuit breaker opens and deliveries go to the retrier.
        async with retrying(stream):
            await asyncio.wait_for(all_written(out_topic), 60)
        await until(lambda: b'"kind":"lost"' in egest.log.read_bytes())
        logs = egest.log.read_bytes() + other_owner.log.read_bytes()
    counts = Counter(numbers(await out_topic.records()))
    assert set(counts) == set(range(EVENTS))
    assert set(counts.values()) == {1}
    letters = await stream.read(stream.topics.dead_letter)
    assert [texts(letter) for letter in letters] == []
    assert [line for line in logs.splitlines() if b"never retrieved" in line] == []


async def all_written(out: OutTopic) -> None:
    while len(set(numbers(await out.records()))) < EVENTS:
        await asyncio.sleep(0.1)
