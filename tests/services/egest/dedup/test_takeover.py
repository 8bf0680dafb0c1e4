"""A delivery with a recorded outcome is not sent again after rebalances, kills, freezes and rewinds."""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.egest.egest_stream import (
    EgestStream,
    RunningEgest,
    outcomes,
    pipe,
    pipe_to,
    process,
    running_egest,
    texts,
    until,
)
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination

from hifi.kafka.partition_lease import PartitionLease
from hifi.record.fields import with_fields
from hifi.record.headers import (
    AMBIGUOUS,
    DESTINATION,
    OUTCOME,
    PASS,
    RAW,
    REASON,
    REPLAY,
    RETRY,
    SEQ,
    SERVICE,
    SOURCE,
    TO,
)
from hifi.record.record import Record
from hifi_egest.dedup.deduplicator import Deduplicator
from hifi_egest.dedup.outcome_reader import EXTRA_RECEIPTS, OutcomeReader, RecordedOutcomes


async def a_moment(_: ReceivedRequest) -> bytes:
    await asyncio.sleep(0.005)
    return OK


async def paced(
    stream: EgestStream, partitions: int, per_second: int, seconds: float, sent_ids: list[str]
) -> None:
    start_s = time.monotonic()
    for count in range(int(per_second * seconds)):
        await asyncio.sleep(max(0.0, start_s + count / per_second - time.monotonic()))
        sent_ids += await stream.send(1, partition=count % partitions, key=f"k{count % 20}")


@pytest.mark.more
async def test_instances_come_and_go_and_each_event_arrives_once_and_in_order(kafka: str) -> None:
    stream = EgestStream(kafka, 4)
    await stream.create()
    async with destination(a_moment) as receiver:
        await stream.publish(pipe(receiver.url))
        sent_ids: list[str] = []
        first_egest = await RunningEgest(stream).start()
        load = asyncio.create_task(paced(stream, 4, 150, 4, sent_ids))
        await until(lambda: len(sent_ids) > 100)
        second_egest = await RunningEgest(stream).start()
        await until(lambda: len(sent_ids) > 250)
        await first_egest.stop()
        await until(lambda: len(sent_ids) > 400)
        third_egest = await RunningEgest(stream).start()
        await second_egest.stop()
        await load
        receipts = await stream.receipts(len(sent_ids))
        await third_egest.stop()
    assert Counter(receiver.ids) == Counter(sent_ids)
    assert outcomes(receipts) == ["delivered"] * len(sent_ids)
    for key in range(20):
        ids_of_key = [int(event_id) for event_id in receiver.ids if int(event_id) % 20 == key]
        assert ids_of_key == sorted(ids_of_key)
    await stream.producer.stop()


async def test_what_has_its_receipt_is_not_sent_again_though_it_was_never_committed(
    stream: EgestStream, tmp_path: Path
) -> None:
    async with destination() as receiver:
        await stream.publish(pipe(receiver.url))
        with process(stream, tmp_path / "log", commit_interval_s=3600) as egest:
            await stream.send(60)
            await stream.receipts(60)
            egest.stop(signal.SIGKILL)
        assert await stream.committed() == {}
        async with running_egest(stream, session_timeout_s=6):
            await stream.send(5)
            await until(lambda: len(receiver.ids) >= 65)
            receipts = await stream.receipts(65)
        assert Counter(receiver.ids) == Counter(str(number) for number in range(65))
        assert len(receipts) == 65
        assert [commit.offset for commit in (await stream.committed()).values()] == [65]


# Faster: test_what_has_its_receipt_is_not_sent_again_though_it_was_never_committed; `make chaos-quick`
# kills egest under load
@pytest.mark.more
async def test_a_kill_in_mid_run_loses_nothing_and_repeats_only_what_had_no_receipt(
    stream: EgestStream, tmp_path: Path
) -> None:
    async with destination(a_moment) as receiver:
        await stream.publish(pipe(receiver.url, concurrency=4))
        with process(stream, tmp_path / "log", session_timeout_s=6) as egest:
            sent_ids: list[str] = []
            load = asyncio.create_task(paced(stream, 1, 200, 4, sent_ids))
            await until(lambda: len(receiver.ids) > 100)
            egest.stop(signal.SIGKILL)
        recorded_seqs = {texts(record)[SEQ] for record in await stream.read(stream.topics.receipts)}
        recorded_ids = {str(int(seq.split(":")[1])) for seq in recorded_seqs}
        async with running_egest(stream, session_timeout_s=6):
            await load
            await until(lambda: set(receiver.ids) == set(sent_ids))
    repeated_ids = {event_id for event_id, count in Counter(receiver.ids).items() if count > 1}
    assert repeated_ids.isdisjoint(recorded_ids)
    # The requests under way, and the receipts that had not been acknowledged yet: a turn or two of the loop.
    assert len(repeated_ids) <= 4 + 40


async def test_answers_that_came_while_it_was_frozen_are_read_before_they_are_called_late(
    stream: EgestStream, tmp_path: Path
) -> None:
    answers_released = asyncio.Event()

    async def when_it_is_frozen(_: ReceivedRequest) -> bytes:
        await answers_released.wait()
        return OK

    async with destination(when_it_is_frozen) as receiver:
        await stream.publish(pipe(receiver.url, concurrency=20, timeout="2s"))
        with process(stream, tmp_path / "log") as egest:
            await egest.ready()
            await stream.send(20)
            await until(lambda: len(receiver.ids) == 20)
            egest.send(signal.SIGSTOP)
            late_s = time.monotonic() + 2.2
            answers_released.set()
            await until(lambda: time.monotonic() > late_s)
            egest.send(signal.SIGCONT)
            receipts = await stream.receipts(20)
    assert outcomes(receipts) == ["delivered"] * 20
    assert len(receiver.ids) == 20
    assert all(AMBIGUOUS not in receipt for receipt in receipts)


@pytest.mark.more  # faster: test_nothing_is_sent_or_handed_over_without_the_lease; `make chaos-quick` freezes egest
async def test_a_frozen_instance_sends_nothing_once_its_partitions_are_anothers(
    stream: EgestStream, tmp_path: Path
) -> None:
    async with destination(a_moment) as receiver:
        await stream.publish(pipe(receiver.url, concurrency=2))
        with process(stream, tmp_path / "log", session_timeout_s=6, instance="frozen") as egest:
            sent_ids: list[str] = []
            load = asyncio.create_task(paced(stream, 1, 100, 9, sent_ids))
            await until(lambda: len(receiver.ids) > 50)
            egest.send(signal.SIGSTOP)
            requests_at_freeze = len(receiver.requests)
            async with running_egest(stream, session_timeout_s=6):
                await until(lambda: len(receiver.requests) > requests_at_freeze + 100)
                egest.send(signal.SIGCONT)
                await load
                await until(lambda: set(receiver.ids) == set(sent_ids))
            assert egest.stop() == 0
    repeated_ids = [event_id for event_id, count in Counter(receiver.ids).items() if count > 1]
    assert len(repeated_ids) <= 2 + 40, "what was under way when it froze, and what had no receipt yet"


async def test_copies_are_dropped_also_after_a_restart(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank in the commit's metadata is enough to drop them, however old their first receipts are."""
    monkeypatch.setattr(Deduplicator, "remember", lambda *_: None)
    records = [stream.record() for _ in range(10)]
    async with destination() as receiver:
        async with running_egest(stream, pipe(receiver.url)):
            await stream.enriched(*records)
            await stream.enriched(*records[4:])
            await stream.receipts(10)
        async with running_egest(stream):
            await stream.enriched(*records[2:], stream.record())
            receipts = await stream.receipts(11)
        async with running_egest(stream):
            await stream.enriched(*records, stream.record())
            receipts = await stream.receipts(12)
    assert Counter(receiver.ids) == Counter(str(number) for number in range(12))
    assert outcomes(receipts) == ["delivered"] * 12
    assert [commit.offset for commit in (await stream.committed()).values()] == [10 + 6 + 9 + 11]


async def test_copies_on_retry_out_are_dropped_and_further_passes_are_not(stream: EgestStream) -> None:
    def retried(record: Record, passes: int, tier: str, offset: int) -> Record:
        changes = {
            DESTINATION: b"d",
            PASS: b"%d" % passes,
            RETRY: b"%b:%d" % (tier.encode(), offset),
        }
        return Record(record.key, record.value, with_fields(record.headers, changes))

    first_record, second_record = stream.record(), stream.record()
    topic = stream.topics.retry_out
    async with destination() as receiver:
        async with running_egest(stream, pipe(receiver.url)):
            retried_records = [retried(first_record, 1, "200ms", 5), retried(second_record, 1, "200ms", 6)]
            await stream.producer.send_and_wait(
                topic, 0, [*retried_records, *retried_records, retried(first_record, 1, "1s", 0)]
            )
            await stream.receipts(2)
        async with running_egest(stream):
            await stream.producer.send_and_wait(
                topic, 0, [*retried_records, retried(first_record, 2, "1s", 1)]
            )
            receipts = await stream.receipts(3)
    assert Counter(receiver.ids) == {"0": 2, "1": 1}
    assert sorted(receipt[PASS] for receipt in receipts) == ["1", "1", "2"]


async def test_a_replayed_event_is_delivered_again_once_for_each_replay(stream: EgestStream) -> None:
    record = stream.record()
    newer_record = stream.record()

    def replayed(times: int, service: bytes = b"enrich", raw: int = 0) -> Record:
        changes = {REPLAY: b"%d" % times, SERVICE: service, RAW: b"%d" % raw}
        return Record(record.key, record.value, with_fields(record.headers, changes))

    async with destination() as receiver, running_egest(stream, pipe(receiver.url)):
        await stream.enriched(
            record,
            newer_record,
            replayed(1),
            replayed(1),
            replayed(2),
            replayed(4, b"egest"),
            replayed(5, b"retrier"),
        )
        await stream.receipts(6)
        # An event that came to normalize again has a new offset in raw, which identifies its copies.
        repeated_record = replayed(3, b"normalize", raw=next(stream.raw[0]))
        await stream.enriched(repeated_record, repeated_record, stream.record())
        receipts = await stream.receipts(8)
    assert Counter(receiver.ids) == {"0": 6, "1": 1, "2": 1}
    assert sorted(receipt.get(REPLAY, "") for receipt in receipts) == ["", "", "", "1", "2", "3", "4", "5"]


async def test_two_letters_of_an_event_are_replayed_to_both_destinations_also_after_a_takeover(
    stream: EgestStream,
) -> None:
    """Where the pipe has a filter they go to enrich, which limits each to the destination of its letter."""
    record = stream.record("a,b")

    def replayed(name: str) -> Record:
        changes = {REPLAY: b"1", SERVICE: b"egest", RAW: b"0", TO: name.encode()}
        return Record(record.key, record.value, with_fields(record.headers, changes))

    async with destination() as receiver:
        addresses = [{"name": name, "url": f"{receiver.url}/{name}"} for name in ("a", "b")]
        async with running_egest(stream, pipe_to("flights", *addresses)):
            await stream.enriched(record, replayed("a"), replayed("b"), replayed("b"))
            await stream.receipts(4)
        async with running_egest(stream):
            await stream.enriched(replayed("a"), replayed("b"), stream.record("a"))
            receipts = await stream.receipts(5)
    assert Counter(receiver.ids) == {"0": 4, "1": 1}
    assert sorted((receipt.get(REPLAY, ""), receipt[DESTINATION]) for receipt in receipts) == [
        ("", "a"),
        ("", "a"),
        ("", "b"),
        ("1", "a"),
        ("1", "b"),
    ]


async def test_a_hand_over_whose_receipt_is_missing_is_not_done_twice(stream: EgestStream) -> None:
    """The last owner died after the record for the retrier and before the receipt."""
    async with destination() as receiver:
        await stream.publish(pipe(receiver.url))
        record = stream.record()
        retry = with_fields(record.headers, {SOURCE: b"enriched:0", DESTINATION: b"d", REASON: b"timeout"})
        await stream.producer.send_and_wait(
            stream.topics.retry_in(stream.topics.tiers[0]), 0, [Record(record.key, record.value, retry)]
        )
        await stream.enriched(record, stream.record())
        async with running_egest(stream):
            receipts = await stream.receipts(2)
    assert receiver.ids == ["1"]
    receipts_by_seq = {receipt[SEQ][-1]: receipt for receipt in receipts}
    assert (receipts_by_seq["0"][OUTCOME], receipts_by_seq["0"][REASON]) == ("retry", "timeout")
    assert receipts_by_seq["1"][OUTCOME] == "delivered"


async def test_a_partition_that_was_quiet_for_long_is_taken_over_without_reading_all_receipts_since(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi_egest.dedup.outcome_reader.SKEW_MS", 0)

    def receipt(offset: int) -> Record:
        headers = with_fields(
            stream.record().headers, {OUTCOME: b"delivered", SOURCE: b"enriched:%d" % offset}
        )
        return Record(None, None, headers)

    topic = stream.topics.receipts
    await stream.enriched(*(stream.record() for _ in range(910)))
    await stream.producer.send_and_wait(topic, 0, [receipt(offset) for offset in range(900)])
    quiet_until_ms = (await stream.read(topic))[-1].timestamp + 1
    await until(lambda: time.time() * 1000 > quiet_until_ms + 5)
    await stream.producer.send_and_wait(topic, 0, [receipt(offset) for offset in range(900, 910)])
    reader = OutcomeReader(stream.kafka, "egest", stream.topics)
    await reader.start()
    outcomes = await reader.read("enriched", 0, 905, quiet_until_ms, {})
    await reader.stop()
    assert len(outcomes.keys) == EXTRA_RECEIPTS + 5
    assert [outcomes.index.has(offset, b"") for offset in (904, 905, 909, 910)] == [False, True, True, False]


async def test_nothing_is_sent_or_handed_over_without_the_lease(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_lease = True
    monkeypatch.setattr(PartitionLease, "held", lambda _: has_lease)
    async with destination() as receiver, running_egest(stream, pipe(receiver.url)) as service:
        await stream.send(1)
        await stream.receipts(1)
        has_lease = False
        await stream.send(5)
        await stream.send(1, to="gone")
        await asyncio.sleep(0.5)
        assert len(receiver.requests) == 1
        assert len(await stream.read(stream.topics.dead_letter)) == 0
        has_lease = True
        receipts = await stream.receipts(7)
        assert service.service.health.ready
    assert sorted(outcomes(receipts)) == ["dead-letter"] + ["delivered"] * 6


async def test_a_partition_that_is_given_up_at_once_is_given_up_quickly(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new owner was still reading the outcomes of the last one."""
    reading_started = asyncio.Event()
    original_read = OutcomeReader.read

    async def slowly(*arguments: Any) -> RecordedOutcomes:
        reading_started.set()
        await asyncio.sleep(1)
        return await original_read(*arguments)

    monkeypatch.setattr(OutcomeReader, "read", slowly)
    async with destination() as receiver:
        await stream.publish(pipe(receiver.url))
        service = await RunningEgest(stream).start()
        await stream.send(5)
        await reading_started.wait()
        async with asyncio.timeout(10):
            await service.stop()
        assert receiver.requests == []


async def test_a_stop_does_not_wait_for_what_a_lane_may_not_send_yet(stream: EgestStream) -> None:
    async with destination() as receiver:
        await stream.publish(pipe(receiver.url, rate="1/m"))
        service = await RunningEgest(stream).start()
        await stream.send(10)
        await until(lambda: receiver.requests)
        async with asyncio.timeout(10):
            await service.stop()
        assert len(receiver.requests) == 1


async def test_draining_records_what_runs_and_leaves_the_rest(stream: EgestStream) -> None:
    gate = asyncio.Event()

    async def waits(_: ReceivedRequest) -> bytes:
        await gate.wait()
        return OK

    async with destination(waits) as receiver:
        await stream.publish(pipe(receiver.url, concurrency=2))
        service = await RunningEgest(stream).start()
        await stream.send(10)
        await until(lambda: len(receiver.requests) == 2)
        stop_task = asyncio.create_task(service.stop())
        await until(lambda: service.service.health.state == "draining")
        gate.set()
        await stop_task
        receipts = await stream.receipts(2)
        assert len(receiver.requests) == 2, "nothing new was begun"
        assert len(receipts) == 2
        async with running_egest(stream):
            receipts = await stream.receipts(10)
    assert Counter(receiver.ids) == Counter(str(number) for number in range(10))
    assert outcomes(receipts) == ["delivered"] * 10
