"""Deliveries of a pipe whose declaration cannot be read wait at the retrier, and others go on; real Kafka."""

import asyncio
from pathlib import Path

import pytest
from tests.support.egest.egest_stream import EgestStream, outcomes, pipe, process, running_egest, until
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination
from tests.support.held_pipes import unreadable_body, unreadable_record

from hifi.pipe.registry import publish
from hifi.pipe.revision import NextRevision, pipe_record
from hifi.record.headers import PIPE, REASON


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
async def test_deliveries_of_a_held_pipe_wait_and_are_sent_when_its_declaration_can_be_read(
    stream: EgestStream, tmp_path: Path, *, restarted: bool
) -> None:
    async with destination() as receiver, destination() as other_receiver:
        flights, orders = pipe(receiver.url), pipe(other_receiver.url, "orders")
        await stream.publish(orders, *([] if restarted else [flights]))
        if restarted:  # Kafka may have compacted what was before: egest has never read the pipe
            await publish(stream.kafka, stream.topics, [unreadable_record(flights, 2)])
            stream.version += 1
        with process(stream, tmp_path / "retrier.log", "retrier") as retrier:
            async with running_egest(stream) as egest:
                if not restarted:
                    await publish(stream.kafka, stream.topics, [unreadable_record(flights, 2)])
                    stream.version += 1
                ids = await stream.send(3)
                await stream.send(1, pipe="orders")
                await until(lambda: other_receiver.ids)
                receipts = await stream.receipts(4)
                held_receipts = [receipt for receipt in receipts if receipt[PIPE] == "flights"]
                assert {receipt[REASON] for receipt in held_receipts} == {"pipe-unreadable"}
                assert set(outcomes(held_receipts)) == {"retry"}
                assert "declaration of flights" in egest.service.health.warnings
                assert receiver.requests == []
                await stream.publish(flights)
                await until(lambda: len(receiver.ids) == 3)
                assert sorted(receiver.ids) == sorted(ids)
            assert retrier.stop() == 0
        assert await stream.read(stream.topics.dead_letter) == []


async def test_deliveries_of_a_next_revision_that_cannot_be_read_wait_and_those_of_the_current_one_are_sent(
    stream: EgestStream,
) -> None:
    async with destination() as receiver:
        flights = pipe(receiver.url)
        await stream.publish(flights)
        current_record = pipe_record(flights, since=1, following=NextRevision(revision=2, share=5000))
        await publish(stream.kafka, stream.topics, [unreadable_body(flights, 2), current_record])
        async with running_egest(stream):
            await stream.send(1, version=2)
            ids = await stream.send(1, version=1)
            receipts = await stream.receipts(2)
        assert receiver.ids == ids
    assert sorted(outcomes(receipts)) == ["delivered", "retry"]


async def test_what_waits_in_a_lane_when_its_pipe_is_held_is_handed_over_and_not_sent(
    stream: EgestStream, caplog: pytest.LogCaptureFixture
) -> None:
    answer_allowed = asyncio.Event()

    async def slow(_: ReceivedRequest) -> bytes:
        await answer_allowed.wait()
        return OK

    async with destination(slow) as receiver:
        flights = pipe(receiver.url, concurrency=1)
        async with running_egest(stream, flights):
            await stream.send(5)
            await until(lambda: receiver.requests)
            await publish(stream.kafka, stream.topics, [unreadable_record(flights, 2)])
            held_receipts = await stream.receipts(4)
            assert outcomes(held_receipts) == ["retry"] * 4
            assert {receipt[REASON] for receipt in held_receipts} == {"pipe-unreadable"}
            answer_allowed.set()
            receipts = await stream.receipts(5)
        assert len(receiver.requests) == 1
    assert sorted(outcomes(receipts)) == ["delivered", *["retry"] * 4], "the request in flight finishes"
    assert "lanes-update-failed" not in caplog.text
