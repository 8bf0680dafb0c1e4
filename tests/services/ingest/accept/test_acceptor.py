"""Outcomes when Kafka acknowledges only a part of a request; identities and minutes. No Kafka, no waiting."""

from dataclasses import replace

import pytest
from tests.support.ingest.ingest_harness import FakeProducer, pipe

from hifi.delivery.ack_report import AckReporter
from hifi.kafka.key_usage import AcceptedTotal, KeyDay, KeyUsageCounts
from hifi.kafka.producer import Producer
from hifi.pipe.revision import WHOLE, PipeRevision, Rollout
from hifi.record.cloudevents.event import DecodedEvent
from hifi.record.hop import Hop, hop
from hifi.record.identity import identity, seq_text
from hifi.record.partitioner import partition_of
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.http.problem import Problem
from hifi_ingest.accept.acceptor import Acceptor

NOW_US = 1_800_000_000 * MICROSECONDS

MINUTE = NOW_US // 60 // MICROSECONDS

KNOWN = PipeRevision(pipe(), 7, number=3)


def acceptor(producer: Producer) -> Acceptor:
    return Acceptor(
        producer,
        "raw",
        AckReporter(producer, "accepted", 4),
        KeyUsageCounts("p"),
        ack_timeout_s=0.05,
        tolerance_s=120,
    )


def events(*keys: str, time_us: int | None = None) -> list[DecodedEvent]:
    return [DecodedEvent(b"/s", key.encode(), key.encode(), [], b"{}", time_us) for key in keys]


def key_of(partition: int) -> str:
    return next(str(n) for n in range(1000) if partition_of(str(n).encode(), 4) == partition)


async def test_the_response_gives_each_event_as_accepted_refused_or_unknown() -> None:
    producer = FakeProducer({1: "lose", 2: "hold"})
    tested_acceptor = acceptor(producer)
    with pytest.raises(Problem) as caught:
        await tested_acceptor.accept(KNOWN, events(*map(key_of, (2, 0, 1, 3, 0))), NOW_US, NOW_US, "key")
    problem = caught.value
    assert (problem.status, dict(problem.headers)["retry-after"]) == (503, "1")
    assert [event["outcome"] for event in problem.members["events"]] == [
        "refused",
        "accepted",
        "unknown",
        "accepted",
        "accepted",
    ]
    assert [event["id"] for event in problem.members["events"]] == list(map(key_of, (2, 0, 1, 3, 0)))
    assert {name: problem.members[name] for name in ("accepted", "refused", "unknown")} == {
        "accepted": 3,
        "refused": 1,
        "unknown": 1,
    }
    reported = {partition: acks.take() for partition, acks in enumerate(tested_acceptor._partitions)}
    assert reported == {0: {"flights": {MINUTE: [[0, 1]]}}, 1: {}, 2: {}, 3: {"flights": {MINUTE: [[0, 0]]}}}
    assert tested_acceptor._usage.take() == {KeyDay("flights", "key", MINUTE // 1440): AcceptedTotal(3, 6)}


async def test_a_buffer_that_fills_during_a_request_accepts_none_of_its_events() -> None:
    tested_acceptor = acceptor(producer := FakeProducer({3: "full", 0: "hold"}))
    with pytest.raises(Problem) as caught:
        await tested_acceptor.accept(KNOWN, events(key_of(0), key_of(3)), NOW_US, NOW_US, "key")
    assert "no event was accepted" in caught.value.detail
    assert "events" not in caught.value.members
    assert [sending.acknowledged.cancelled() for sending in producer.sendings] == [True]


async def test_a_stalled_kafka_is_refused_before_anything_is_sent() -> None:
    producer = FakeProducer({})
    producer.stalled = 0.06
    with pytest.raises(Problem):
        acceptor(producer).check()
    producer.stalled = 0.04
    acceptor(producer).check()


async def test_identities_count_up_within_a_partition_and_name_pipe_version_and_times() -> None:
    producer = FakeProducer({})
    tested_acceptor = acceptor(producer)
    for _ in range(3):
        await tested_acceptor.accept(KNOWN, events(key_of(2), key_of(2)), NOW_US - 5, NOW_US, "key")
    identities = [identity(record.headers) for record in producer.sent[2]]
    assert [event_identity.seq for event_identity in identities] == [
        seq_text(tested_acceptor._partitions[2].epoch, n) for n in range(6)
    ]
    assert {event_identity[:-1] for event_identity in identities} == {("flights", 3, 7, NOW_US, MINUTE)}
    assert {hop(record.headers) for record in producer.sent[2]} == {Hop(NOW_US - 5)}
    assert len({acks.epoch for acks in tested_acceptor._partitions}) == 4


async def test_during_a_rollout_the_key_decides_the_revision() -> None:
    next_revision = PipeRevision(pipe(), 9, number=4, current=False)
    rolling_revision = replace(KNOWN, rollout=Rollout(next_revision, WHOLE // 2))
    producer = FakeProducer({})
    tested_acceptor = acceptor(producer)
    keys = [str(number) for number in range(50)]
    await tested_acceptor.accept(rolling_revision, events(*keys, *keys), NOW_US, NOW_US, "key")
    keys_with_revision = {
        (record.key, identity(record.headers).revision, identity(record.headers).revision_offset)
        for records in producer.sent.values()
        for record in records
    }
    assert len(keys_with_revision) == len(keys)  # both events of a key have the same revision
    assert {(revision, revision_offset) for _, revision, revision_offset in keys_with_revision} == {
        (3, 7),
        (4, 9),
    }
    assert rolling_revision.rollout is not None
    assert all(
        rolling_revision.rollout.gets(key) == (revision == 4) for key, revision, _ in keys_with_revision
    )


@pytest.mark.parametrize(
    ("late_s", "minutes"), [(0, 0), (119, -2), (121, 0), (-119, 1), (-121, 0), (10**9, 0)]
)
async def test_an_event_counts_in_the_minute_of_its_time_unless_that_is_far_off(
    late_s: int, minutes: int
) -> None:
    producer = FakeProducer({})
    now_us = MINUTE * 60 * MICROSECONDS
    await acceptor(producer).accept(
        KNOWN, events("k", time_us=now_us - late_s * MICROSECONDS), now_us, now_us, "key"
    )
    ((record,),) = producer.sent.values()
    assert identity(record.headers).minute == MINUTE + minutes
