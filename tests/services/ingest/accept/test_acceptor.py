"""What a sender is told when Kafka takes only a part; identities, minutes and tallies. No Kafka, no waiting."""

import asyncio

import pytest
from ingesting import FakeProducer, pipe

from hifi.clock import MICROSECONDS
from hifi.errors import Unacknowledged
from hifi.event import identity
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeVersion
from hifi_ingest.accept.acceptor import Acceptor
from hifi_ingest.accept.ack_report import Lane, Tally
from hifi_ingest.accept.partitioner import partition
from hifi_ingest.decode.attributes import Incoming
from hifi_ingest.http.answers import Problem
from hifi_ingest.http.rate_limits import Memory, Rates

NOW_US = 1_800_000_000 * MICROSECONDS
MINUTE = NOW_US // 60 // MICROSECONDS
KNOWN = PipeVersion(pipe(), 7)


def acceptor(producer: Producer) -> Acceptor:
    return Acceptor(producer, "raw", Tally(producer, "accepted", 4), ack_timeout_s=0.05, tolerance_s=120)


def events(*keys: str, time_us: int | None = None) -> list[Incoming]:
    return [Incoming(b"/s", key.encode(), key.encode(), [], b"{}", time_us) for key in keys]


def key_of(place: int) -> str:
    return next(str(n) for n in range(1000) if partition(str(n).encode(), 4) == place)


async def test_each_event_of_a_request_is_told_as_accepted_refused_or_unknown() -> None:
    producer = FakeProducer({1: "lose", 2: "hold"})
    one = acceptor(producer)
    with pytest.raises(Problem) as caught:
        await one.accept(KNOWN, events(*map(key_of, (2, 0, 1, 3, 0))), NOW_US, NOW_US)
    problem = caught.value
    assert (problem.status, dict(problem.headers)["retry-after"]) == (503, "1")
    assert [each["outcome"] for each in problem.members["events"]] == [
        "refused",
        "accepted",
        "unknown",
        "accepted",
        "accepted",
    ]
    assert [each["id"] for each in problem.members["events"]] == list(map(key_of, (2, 0, 1, 3, 0)))
    assert {name: problem.members[name] for name in ("accepted", "refused", "unknown")} == {
        "accepted": 3,
        "refused": 1,
        "unknown": 1,
    }
    told = {place: lane.take() for place, lane in enumerate(one._tally.lanes)}
    assert told == {0: {"flights": {MINUTE: [[0, 1]]}}, 1: {}, 2: {}, 3: {"flights": {MINUTE: [[0, 0]]}}}


async def test_a_buffer_that_fills_in_mid_request_takes_nothing_of_it() -> None:
    one = acceptor(producer := FakeProducer({3: "full", 0: "hold"}))
    with pytest.raises(Problem) as caught:
        await one.accept(KNOWN, events(key_of(0), key_of(3)), NOW_US, NOW_US)
    assert "nothing was taken" in caught.value.detail
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
    one = acceptor(producer)
    for _ in range(3):
        await one.accept(KNOWN, events(key_of(2), key_of(2)), NOW_US - 5, NOW_US)
    found = [identity(dict(record.headers)) for record in producer.sent[2]]
    assert [each.sequence for each in found] == [0, 1, 2, 3, 4, 5]
    assert {each.epoch for each in found} == {f"{one._tally.lanes[2].epoch:016x}"}
    assert {(each.pipe, each.pipe_version, each.accepted_us, each.minute) for each in found} == {
        ("flights", 7, NOW_US, MINUTE)
    }
    assert {dict(record.headers)["hifi_in"] for record in producer.sent[2]} == {b"%d" % (NOW_US - 5)}
    assert len({lane.epoch for lane in one._tally.lanes}) == 4


@pytest.mark.parametrize(
    ("late_s", "minutes"), [(0, 0), (119, -2), (121, 0), (-119, 1), (-121, 0), (10**9, 0)]
)
async def test_the_minute_is_that_of_the_event_unless_its_time_is_far_off(late_s: int, minutes: int) -> None:
    producer = FakeProducer({})
    now_us = MINUTE * 60 * MICROSECONDS
    await acceptor(producer).accept(
        KNOWN, events("k", time_us=now_us - late_s * MICROSECONDS), now_us, now_us
    )
    ((record,),) = producer.sent.values()
    assert identity(dict(record.headers)).minute == MINUTE + minutes


def test_a_lane_tells_dense_ranges_and_what_could_not_be_told_is_told_later() -> None:
    lane = Lane(1)
    for first, last, minute in ((0, 4, 1), (5, 5, 1), (6, 6, 2), (7, 9, 1)):
        lane.add("a", minute, first, last)
    taken = lane.take()
    assert taken == {"a": {1: [[0, 5], [7, 9]], 2: [[6, 6]]}}
    lane.add("a", 1, 10, 11)
    lane.give_back(taken)
    assert lane.take() == {"a": {1: [[0, 5], [7, 11]], 2: [[6, 6]]}}
    assert lane.take() == {}


async def test_a_tally_that_was_lost_is_told_again() -> None:
    producer = FakeProducer({0: "lose"})
    tally = Tally(producer, "accepted", 1)
    tally.lanes[0].add("a", 1, 0, 3)
    tally.tell()
    tally.tell()
    assert len(producer.sendings) == 1, "one at a time"
    producer.sendings[0].acknowledged.set_exception(Unacknowledged("gone"))
    tally.tell()
    first, second = (record.value for record in producer.sent[0])
    assert b"[[0,3]]" in first
    assert b"[[0,3]]" in second


async def test_tallies_that_kafka_refuses_are_told_again_with_the_answers() -> None:
    producer = FakeProducer({0: "full"})
    tally = Tally(producer, "accepted", 1)
    tally.lanes[0].add("a", 1, 0, 3)
    tally.answers[202] += 4
    tally.tell()
    producer.plan = {}
    tally.tell()
    await asyncio.sleep(0)
    tally.tell()
    first, second = (record.value for record in producer.sent[0])
    assert b'"pipes":{"a":{"1":[[0,3]]}}' in first
    assert b'"answers":{"202":4}' in first
    assert b'"pipes":{}' in second, "an empty tally is the heartbeat"
    assert b'"answers":{}' in second


def test_a_rate_is_429_until_tokens_are_back() -> None:
    now = 0.0
    rates = Rates(10, lambda: now)
    rates.take("a", 10)
    with pytest.raises(Problem) as caught:
        rates.take("a", 1)
    assert (caught.value.status, dict(caught.value.headers)["retry-after"]) == (429, "1")
    rates.take("b", 100)
    with pytest.raises(Problem) as caught:
        rates.take("b", 1)
    assert dict(caught.value.headers)["retry-after"] == "10"
    now = 0.2
    rates.take("a", 1)
    Rates(0, lambda: now).take("a", 10**9)


def test_bodies_are_bounded_together_but_a_lone_one_always_fits() -> None:
    memory = Memory(100)
    memory.take(500)
    with pytest.raises(Problem):
        memory.take(1)
    memory.release(500)
    memory.take(60)
    with pytest.raises(Problem):
        memory.take(60)
    assert memory.held_bytes == 60
