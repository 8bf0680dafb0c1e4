"""Failed deliveries come back when they are due, once, in order, at their partition; a stop loses none."""

import asyncio
import time
from collections import Counter
from typing import Any

from aiokafka import ConsumerRecord
from tests.support.egest.egest_stream import EgestStream, outcomes, pipe, running_egest, texts
from tests.support.egest.fake_destination import OK, ReceivedRequest, answer, destination
from tests.support.retrier.running_retrier import retrying

from hifi.kafka.admin import create_topic
from hifi.kafka.clients import started_admin
from hifi.record.fields import fields, with_fields
from hifi.record.headers import ATTEMPT, DESTINATION, DUE, IN, PASS, REASON, RETRY, SERVICE
from hifi.record.record import Record
from hifi_egest.dedup.copy_key import retry_log


async def put(
    stream: EgestStream, tier: int, count: int, *, partition: int = 0, **extra_headers: bytes
) -> list[int]:
    """Write deliveries that failed; returns their append times, milliseconds."""
    topic = stream.topics.retry_in(stream.topics.tiers[tier])
    changes = {DESTINATION: b"d", PASS: b"0", ATTEMPT: b"1"} | extra_headers
    records = [stream.record(partition=partition) for _ in range(count)]
    records = [Record(record.key, record.value, with_fields(record.headers, changes)) for record in records]
    await stream.producer.send_and_wait(topic, partition, records)
    return [record.timestamp for record in await stream.read(topic) if record.partition == partition][-count:]


async def read_returned(stream: EgestStream, count: int) -> list[ConsumerRecord]:
    return await stream.at_least(stream.topics.retry_out, count)


def waited_at(record: ConsumerRecord) -> tuple[str, int]:
    """Tier and offset."""
    log, _, offset = texts(record)[RETRY].partition(":")
    return log.partition("@")[0], int(offset)


async def test_each_tier_comes_back_after_its_own_delay(stream: EgestStream) -> None:
    async with retrying(stream):
        slow_times_ms = await put(stream, 1, 3)
        fast_times_ms = await put(stream, 0, 3)
        returned_records = await read_returned(stream, 6)
    assert [waited_at(record) for record in returned_records] == [
        (tier, n) for tier in ("200ms", "1s") for n in range(3)
    ]
    for record, appended_ms, delay_ms in zip(
        returned_records, fast_times_ms + slow_times_ms, [200] * 3 + [1000] * 3, strict=True
    ):
        waited_ms = record.timestamp - appended_ms
        assert delay_ms - 2 <= waited_ms < delay_ms + 1500


async def test_what_waits_in_a_tier_that_is_removed_comes_back_after_its_delay(stream: EgestStream) -> None:
    (appended_ms,) = await put(stream, 1, 1)
    async with retrying(stream, tiers=stream.topics.tiers[:1]):
        (returned_record,) = await read_returned(stream, 1)
    assert waited_at(returned_record) == ("1s", 0)
    assert returned_record.timestamp - appended_ms >= 1000 - 2


async def test_offsets_of_a_topic_that_was_made_again_are_of_another_log(stream: EgestStream) -> None:
    topic = stream.topics.retry_in(stream.topics.tiers[0])
    logs = []
    for count in (1, 2):
        await put(stream, 0, 1)
        async with retrying(stream):
            *_, returned_record = await read_returned(stream, count)
        assert waited_at(returned_record) == ("200ms", 0)
        logs.append(retry_log(fields(returned_record.headers)))
        async with started_admin(stream.kafka, "test") as admin:
            await admin.delete_topics([topic])
            async with asyncio.timeout(30):
                while topic in await admin.list_topics():
                    await asyncio.sleep(0.05)
            await create_topic(admin, topic, stream.partitions, {})
    assert logs[0] != logs[1]


async def test_it_comes_back_as_it_was_with_one_more_trip(stream: EgestStream) -> None:
    async with retrying(stream):
        await put(stream, 0, 1, partition=1, **{PASS: b"4", DUE: b"99"})
        (returned_record,) = await read_returned(stream, 1)
        (waiting_record,) = await stream.read(stream.topics.retry_in(stream.topics.tiers[0]))
    assert (returned_record.partition, returned_record.key, returned_record.value) == (
        1,
        waiting_record.key,
        waiting_record.value,
    )
    headers_before, headers_after = texts(waiting_record), texts(returned_record)
    assert headers_after[PASS] == "5"
    assert int(headers_after[IN]) >= returned_record.timestamp * 1000 - 60_000_000
    unchanged_names = set(headers_before) - {PASS, IN}
    assert {name: headers_after[name] for name in unchanged_names} == {
        name: headers_before[name] for name in unchanged_names
    }


async def test_the_order_of_a_partition_is_kept(stream: EgestStream) -> None:
    async with retrying(stream):
        await put(stream, 0, 300)
        await put(stream, 0, 300, partition=1)
        returned_records = await read_returned(stream, 600)
    for partition in range(2):
        offsets = [waited_at(record)[1] for record in returned_records if record.partition == partition]
        assert offsets == list(range(300))


async def test_what_waits_at_a_stop_comes_back_once_after_the_start(stream: EgestStream) -> None:
    async with retrying(stream):
        await put(stream, 0, 50)
        await read_returned(stream, 50)
        append_times_ms = await put(stream, 2, 20)
    start_s = time.monotonic()
    assert len(await read_returned(stream, 50)) == 50, "5 s are not over"
    async with retrying(stream):
        returned_records = await read_returned(stream, 70)
    assert time.monotonic() - start_s < 60
    assert Counter(texts(record)["ce_id"] for record in returned_records).most_common(1)[0][1] == 1
    assert returned_records[-1].timestamp - append_times_ms[-1] >= 4998


async def test_a_stop_does_not_wait_for_what_waits(stream: EgestStream) -> None:
    async with retrying(stream) as service:
        await put(stream, 2, 500)
        service.stop()
    assert not await stream.read(stream.topics.retry_out), "it would have waited 5 s for these"


async def test_what_is_no_delivery_is_a_dead_letter_and_the_others_go_on(stream: EgestStream) -> None:
    topic = stream.topics.retry_in(stream.topics.tiers[0])
    async with retrying(stream):
        await stream.producer.send_and_wait(topic, 0, [Record(None, b"?", []), stream.record()])
        await put(stream, 0, 1)
        assert len(await read_returned(stream, 1)) == 1
        letters = await stream.at_least(stream.topics.dead_letter, 2)
    assert {(texts(letter)[REASON], texts(letter)[SERVICE]) for letter in letters} == {
        ("not-an-event", "retrier")
    }


async def test_two_instances_share_the_work_and_hand_it_over(stream: EgestStream) -> None:
    async with retrying(stream, instance="one"):
        await put(stream, 0, 100)
        async with retrying(stream, instance="two"):
            await put(stream, 0, 100, partition=1)
            await read_returned(stream, 200)
        await put(stream, 0, 50, partition=1)
        returned_records = await read_returned(stream, 250)
    assert Counter(texts(record)["ce_id"] for record in returned_records).most_common(1)[0][1] == 1


async def test_a_delivery_goes_round_until_the_destination_takes_it(stream: EgestStream) -> None:
    """Egest and the retrier together."""
    calls: list[ReceivedRequest] = []

    async def at_last(request: ReceivedRequest) -> bytes:
        calls.append(request)
        return answer(503) if len(calls) < 4 else OK

    options: dict[str, Any] = {"retry": {"local_attempts": 2}}
    async with (
        destination(at_last) as receiver,
        retrying(stream),
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        await stream.send(1)
        receipts = await stream.receipts(2)
    assert outcomes(receipts) == ["retry", "delivered"]
    assert (receipts[1][PASS], receipts[1][ATTEMPT]) == ("1", "4")


async def test_a_wished_wait_is_kept_even_where_no_tier_is_so_long(stream: EgestStream) -> None:
    calls: list[ReceivedRequest] = []

    async def not_so_fast(request: ReceivedRequest) -> bytes:
        calls.append(request)
        return answer(429, "Retry-After: 2") if len(calls) == 1 else OK

    async with (
        destination(not_so_fast) as receiver,
        retrying(stream),
        running_egest(stream, pipe(receiver.url)),
    ):
        await stream.send(1)
        async with asyncio.timeout(20):
            while "delivered" not in outcomes(await stream.receipts(2)):
                await asyncio.sleep(0.05)
    assert len(calls) == 2
    assert calls[1].at_s - calls[0].at_s >= 1.95


async def test_a_destination_that_comes_back_gets_its_backlog_while_fresh_events_flow(
    stream: EgestStream,
) -> None:
    async def down(_: ReceivedRequest) -> bytes:
        return answer(503)

    async def up(_: ReceivedRequest) -> bytes:
        return OK

    options: dict[str, Any] = {
        "breaker": {"failures": 3, "probe": "300ms"},
        "retry": {"local_attempts": 1},
        "rate": "200/s",
    }
    async with (
        destination(down) as receiver,
        retrying(stream),
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        old_ids = await stream.send(300)
        await stream.receipts(300)
        assert len(receiver.requests) < 30, "a dead destination is left in peace"
        receiver.reply = up
        receiver.requests.clear()
        start_s, new_ids = time.monotonic(), list[str]()
        while set(receiver.ids) < {*old_ids, *new_ids} or len(new_ids) < 100:
            new_ids += await stream.send(1)
            await asyncio.sleep(0.01)
            assert time.monotonic() - start_s < 60
    assert Counter(receiver.ids).most_common(1)[0][1] == 1
    first_old, last_old = (
        receiver.ids.index(event_id)
        for event_id in (min(old_ids, key=receiver.ids.index), max(old_ids, key=receiver.ids.index))
    )
    assert {*receiver.ids[first_old:last_old]} & {*new_ids}, "fresh events did not wait for the backlog"


async def test_limits_end_it(stream: EgestStream) -> None:
    async def never(_: ReceivedRequest) -> bytes:
        return answer(500)

    options: dict[str, Any] = {"retry": {"local_attempts": 1, "max_attempts": 3}}
    async with (
        destination(never) as receiver,
        retrying(stream),
        running_egest(stream, pipe(receiver.url, **options)),
    ):
        await stream.send(1)
        receipts = await stream.receipts(3)
    assert outcomes(receipts) == ["retry", "retry", "dead-letter"]
    assert len(receiver.requests) == 3
