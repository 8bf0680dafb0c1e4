"""Events reach their destinations as declared; their outcomes are recorded before their offsets are committed."""

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook
from tests.support.egest.egest_stream import (
    TIME,
    EgestStream,
    outcomes,
    pipe,
    pipe_to,
    running_egest,
    texts,
    until,
)
from tests.support.egest.fake_destination import OK, ReceivedRequest, answer, destination

from hifi.record.fields import with_fields
from hifi.record.headers import (
    ACCEPTED,
    ANSWERED,
    ATTEMPT,
    DESTINATION,
    IDENTITY,
    IN,
    MINUTE,
    PASS,
    PIPE,
    RAW,
    REASON,
    REVISION,
    REVISION_OFFSET,
    SENT,
    SEQ,
    STATUS,
    TO,
    TRACEPARENT,
)
from hifi.record.headers import TIME as TIME_HEADER
from hifi.record.heartbeat import heartbeat_record
from hifi.record.record import Record
from hifi_egest.delivery.delivery import EventRecord
from hifi_egest.lanes.lane import Lane

SECRET = "whsec_" + "c2VjcmV0" * 4
SECRET_BEFORE = "whsec_" + "YmVmb3Jl" * 4
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_each_event_arrives_once_and_has_its_receipt(stream: EgestStream) -> None:
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        ids = await stream.send(200)
        receipts = await stream.receipts(200)
    assert sorted(receiver.ids) == sorted(ids)
    assert outcomes(receipts) == ["delivered"] * 200
    committed = await stream.committed()
    assert {tp.topic: commit.offset for tp, commit in committed.items()} == {stream.topics.enriched: 200}
    receipt = receipts[0]
    assert (receipt[DESTINATION], receipt[STATUS], receipt[ATTEMPT], receipt[PASS]) == (
        "d",
        "200",
        "1",
        "0",
    )
    assert int(receipt[ACCEPTED]) <= int(receipt[IN]) <= int(receipt[SENT]) <= int(receipt[ANSWERED])
    assert {PIPE, REVISION, REVISION_OFFSET, SEQ, MINUTE, RAW} <= set(receipt)


async def test_receipts_keep_partition_and_key_and_hold_no_data(kafka: str) -> None:
    stream = EgestStream(kafka, 3)
    await stream.create()
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        trace_fields: dict[str, Any] = {TRACEPARENT: TRACE}
        for partition in range(3):
            await stream.send(1, key=f"k{partition}", partition=partition, **trace_fields)
        await stream.receipts(3)
        records = await stream.read(stream.topics.receipts)
    assert [(record.partition, record.key, record.value) for record in records] == [
        (0, b"k0", None), (1, b"k1", None), (2, b"k2", None)
    ]  # fmt: skip
    assert {dict(record.headers)[TIME_HEADER] for record in records} == {TIME}
    assert {dict(record.headers)[TRACEPARENT] for record in records} == {TRACE}
    await stream.producer.stop()


async def test_one_event_goes_to_each_destination_that_wants_it(stream: EgestStream) -> None:
    async with destination() as first_receiver, destination() as second_receiver:
        flights_pipe = pipe_to(
            "flights",
            {"name": "one", "url": first_receiver.url},
            {"name": "two", "url": second_receiver.url, "format": "json"},
        )
        async with running_egest(stream, flights_pipe):
            await stream.send(3, to="one,two")
            await stream.send(1, to="two")
            receipts = await stream.receipts(7)
    assert sorted(first_receiver.ids) == ["0", "1", "2"]
    assert sorted(orjson.loads(request.body)["number"] for request in second_receiver.requests) == [
        0,
        1,
        2,
        3,
    ]
    assert sorted(receipt[DESTINATION] for receipt in receipts) == ["one"] * 3 + ["two"] * 4


async def test_a_step_that_fails_between_two_destinations_sends_nothing_twice(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure_count, offer = 0, Lane.offer

    def fails_twice(lane: Lane, record: EventRecord, name: bytes) -> bool:
        nonlocal failure_count
        if name == b"two" and failure_count < 2:
            failure_count += 1
            raise RuntimeError("not now")
        return offer(lane, record, name)

    monkeypatch.setattr(Lane, "offer", fails_twice)
    async with destination() as first_receiver, destination() as second_receiver:
        flights_pipe = pipe_to(
            "flights", {"name": "one", "url": first_receiver.url}, {"name": "two", "url": second_receiver.url}
        )
        async with running_egest(stream, flights_pipe):
            await stream.send(3, to="one,two")
            receipts = await stream.receipts(6)
            await until(lambda: len(second_receiver.ids) == 3)
    assert failure_count == 2
    assert sorted(first_receiver.ids) == sorted(second_receiver.ids) == ["0", "1", "2"]
    assert outcomes(receipts) == ["delivered"] * 6
    assert {commit.offset for commit in (await stream.committed()).values()} == {3}


async def test_what_nobody_wants_ends_with_a_receipt(stream: EgestStream) -> None:
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        await stream.send(2, to="")
        receipts = await stream.receipts(2)
        assert receiver.requests == []
    assert outcomes(receipts) == ["filtered"] * 2
    assert DESTINATION not in receipts[0]


async def test_what_is_no_event_is_a_dead_letter_and_the_others_go_on(stream: EgestStream) -> None:
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        valid_record = stream.record()
        headers_without_to = with_fields(stream.record().headers, {TO: None})
        invalid_records = [
            Record(None, b"?", []),
            Record(b"k", b"?", [(IDENTITY, b"x")]),
            Record(b"k", b"{}", headers_without_to),
        ]
        heartbeat = heartbeat_record("p", 1_800_000_000_000_000, 3, 1_800_000_000_000)
        await stream.enriched(heartbeat, *invalid_records, heartbeat, valid_record, heartbeat)
        await stream.receipts(1)
        letters = await stream.at_least(stream.topics.dead_letter, 3)
        await until(lambda: len(receiver.ids) == 1)
    assert [texts(letter)[REASON] for letter in letters] == ["not-an-event"] * 3
    assert {commit.offset for commit in (await stream.committed()).values()} == {7}


async def test_at_most_one_request_of_a_key_is_under_way_and_they_come_in_order(stream: EgestStream) -> None:
    running_requests: dict[str, int] = {}

    async def slowly(request: ReceivedRequest) -> bytes:
        key = str(orjson.loads(request.body)["key"])
        running_requests[key] = running_requests.get(key, 0) + 1
        assert running_requests[key] == 1
        await asyncio.sleep(0.002)
        running_requests[key] -= 1
        return OK

    async with destination(slowly) as receiver, running_egest(stream, pipe(receiver.url)):
        records = [stream.record(key=f"k{n % 5}", data={"key": n % 5}) for n in range(200)]
        await stream.enriched(*records)
        receipts = await stream.receipts(200)
    assert outcomes(receipts) == ["delivered"] * 200
    assert receiver.most > 1, "keys do not wait for each other"
    for key in range(5):
        ids_of_key = [int(event_id) for event_id in receiver.ids if int(event_id) % 5 == key]
        assert ids_of_key == sorted(ids_of_key)


async def test_after_a_failure_the_key_goes_on(stream: EgestStream) -> None:
    async def not_the_first(request: ReceivedRequest) -> bytes:
        return answer(500) if request.ids == ["0"] else OK

    options: dict[str, Any] = {"retry": {"local_attempts": 1}}
    async with destination(not_the_first) as receiver, running_egest(stream, pipe(receiver.url, **options)):
        await stream.send(3, key="k")
        receipts = await stream.receipts(3)
    assert outcomes(sorted(receipts, key=lambda receipt: receipt[SEQ])) == ["retry", "delivered", "delivered"]
    assert receiver.ids == ["0", "1", "2"]


async def test_no_more_requests_at_a_time_than_declared(stream: EgestStream) -> None:
    async def slowly(_: ReceivedRequest) -> bytes:
        await asyncio.sleep(0.01)
        return OK

    async with (
        destination(slowly) as receiver,
        running_egest(stream, pipe(receiver.url, concurrency=3, ordered="none")),
    ):
        await stream.send(60, key="k")
        await stream.receipts(60)
    assert receiver.most == receiver.connections == 3


async def test_no_more_requests_a_second_than_declared(stream: EgestStream) -> None:
    """One instance holds both partitions, of `enriched` and of `retry-out`, so the whole rate is its own."""
    async with destination() as receiver, running_egest(stream, pipe(receiver.url, rate="50/s")):
        await stream.send(100)
        await stream.receipts(100)
    seconds = receiver.requests[-1].at_s - receiver.requests[0].at_s
    assert seconds > 1.5


async def test_batches_fill_up_and_do_not_wait_long(stream: EgestStream) -> None:
    async with (
        destination() as receiver,
        running_egest(stream, pipe(receiver.url, batch={"size": 10, "wait": "30ms"})),
    ):
        await stream.send(95)
        receipts = await stream.receipts(95)
    assert outcomes(receipts) == ["delivered"] * 95
    assert sorted(map(int, receiver.ids)) == list(range(95))
    sizes = [len(request.ids) for request in receiver.requests]
    assert max(sizes) == 10
    assert len(sizes) <= 14


async def test_batches_keep_within_their_bytes(stream: EgestStream) -> None:
    options: dict[str, Any] = {
        "batch": {"size": 50, "bytes": 4000},
        "transform": "{long: join('', [pad, pad, pad])}",
        "format": "json",
    }
    async with destination() as receiver, running_egest(stream, pipe(receiver.url, **options)):
        records = [stream.record(data={"pad": "x" * 300}) for _ in range(40)]
        await stream.enriched(*records)
        await stream.receipts(40)
    assert sum(len(orjson.loads(request.body)) for request in receiver.requests) == 40
    assert all(len(request.body) <= 4100 for request in receiver.requests)


async def test_signatures_are_verified_by_the_library(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNING", SECRET)
    monkeypatch.setenv("SIGNING_BEFORE", SECRET_BEFORE)
    options: dict[str, Any] = {
        "signing": {"env": "SIGNING"},
        "signing_also": [{"env": "SIGNING_BEFORE"}],
        "headers": {"Authorization": {"env": "SIGNING", "prefix": "Bearer "}},
    }
    async with destination() as receiver, running_egest(stream, pipe(receiver.url, **options)):
        await stream.send(2)
        await stream.receipts(2)
    for request in receiver.requests:
        for secret in (SECRET, SECRET_BEFORE):
            assert Webhook(secret).verify(request.body, request.headers) == orjson.loads(request.body)
        assert request.headers["authorization"] == "Bearer " + SECRET
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 2


async def test_a_missing_secret_is_shown_and_loses_nothing(
    stream: EgestStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi_http.destination.credentials.RETRY_S", 0.05)
    file = tmp_path / "secret"
    async with destination() as receiver, destination() as other_receiver:
        flights_pipe = pipe_to(
            "flights",
            {"name": "d", "url": receiver.url, "headers": {"X-Key": {"file": str(file)}}},
            {"name": "other", "url": other_receiver.url},
        )
        async with running_egest(stream) as service:
            await stream.publish(flights_pipe)
            await stream.send(3, to="d,other")
            receipts = await stream.receipts(6)
            assert sorted(outcomes(receipts)) == ["delivered"] * 3 + ["retry"] * 3
            assert receiver.requests == []
            assert "secret file" in service.service.health.warnings["destination flights/d"]
            file.write_text("s3cret\n")
            await until(lambda: not service.service.health.warnings)
            await stream.send(1)
            await stream.receipts(7)
        assert receiver.requests[0].headers["x-key"] == "s3cret"


async def test_a_changed_secret_is_picked_up(stream: EgestStream, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    options: dict[str, Any] = {"headers": {"X-Key": {"file": str(file)}}}
    async with (
        destination() as receiver,
        running_egest(stream, pipe(receiver.url, **options), egest_secrets_refresh_s=0.05),
    ):
        await stream.send(1)
        await until(lambda: receiver.requests)
        file.write_text("new")
        async with asyncio.timeout(10):
            while receiver.requests[-1].headers["x-key"] != "new":
                await stream.send(1)
        file.unlink()
        await stream.send(1)
        count = len(receiver.requests)
        await until(lambda: len(receiver.requests) > count)
        assert receiver.requests[-1].headers["x-key"] == "new", "the last one known is used on"


async def test_a_changed_pipe_takes_effect_without_losing_an_event(stream: EgestStream) -> None:
    async with (
        destination() as old_receiver,
        destination() as new_receiver,
        running_egest(stream, pipe(old_receiver.url)),
    ):
        await stream.send(50)
        await stream.publish(pipe(new_receiver.url))
        await stream.send(50)
        await stream.receipts(100)
        assert sorted(map(int, old_receiver.ids + new_receiver.ids)) == list(range(100))
        assert set(map(int, new_receiver.ids)) >= set(range(50, 100))


async def test_events_of_a_deleted_pipe_or_destination_are_dead_letters(stream: EgestStream) -> None:
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        await stream.send(1, to="d,gone")
        await stream.receipts(2)
        await stream.delete("flights")
        await stream.send(1, to="d")
        receipts = await stream.receipts(3)
        letters = await stream.read(stream.topics.dead_letter)
        assert len(receiver.requests) == 1
    assert sorted(outcomes(receipts)) == ["dead-letter", "dead-letter", "delivered"]
    assert [(texts(letter)[REASON], texts(letter)[DESTINATION]) for letter in letters] == [
        ("pipe-deleted", "gone"), ("pipe-deleted", "d")
    ]  # fmt: skip


async def test_a_partition_waits_for_the_version_of_the_pipe_that_its_event_needs(kafka: str) -> None:
    stream = EgestStream(kafka, 2)
    await stream.create()
    async with (
        destination() as old_receiver,
        destination() as new_receiver,
        running_egest(stream, pipe(old_receiver.url)),
    ):
        await stream.send(1, partition=0, version=2)
        await stream.send(1, partition=1)
        await until(lambda: old_receiver.ids == ["1"])
        assert new_receiver.ids == []
        await stream.publish(pipe(new_receiver.url))
        await until(lambda: new_receiver.ids == ["0"])
        await stream.receipts(2)
    await stream.producer.stop()


async def test_a_version_that_does_not_come_is_told_and_holds_nothing_up_for_ever(
    stream: EgestStream,
) -> None:
    async with (
        destination() as receiver,
        running_egest(stream, pipe(receiver.url), egest_pipes_wait_s=0.3) as service,
    ):
        start_s = time.monotonic()
        await stream.send(20, version=999)
        await stream.send(1)
        receipts = await stream.receipts(21)
        assert time.monotonic() - start_s < 10, "the wait is once, not for each event"
        assert "999" in service.service.health.warnings["pipes"]
    assert sorted(outcomes(receipts)) == ["delivered"] + ["retry"] * 20
    assert {receipt.get(REASON) for receipt in receipts} == {None, "pipes-behind"}
