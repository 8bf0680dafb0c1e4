"""Rate, streak, room and load: small rules, each on its own."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_egest.dedup.deduplicator import Copy, Done, Memory, Once
from hifi_egest.delivery.lease import Lease
from hifi_egest.policy.admission import PATIENCE_S, Flow
from hifi_egest.policy.rate_limit import BURST_S, Bucket
from hifi_egest.policy.streak import HOLD_S, Streak


@given(st.floats(0.1, 2000), st.lists(st.floats(0, 0.5), min_size=5, max_size=200))
def test_no_more_than_the_rate_in_any_time(per_second: float, pauses: list[float]) -> None:
    bucket, now_s, sent = Bucket(per_second), 100.0, []
    for pause in pauses:
        now_s += pause
        while bucket.wait_s(now_s) == 0 and len(sent) < 2000:
            bucket.take(now_s)
            sent.append(now_s)
    for first in range(0, len(sent), 7):
        span_s = sent[-1] - sent[first]
        assert len(sent) - first <= per_second * (span_s + BURST_S) + 2


def test_a_rate_is_used_up_when_there_is_always_something_to_send() -> None:
    bucket, now_s, sent = Bucket(50), 0.0, 0
    while now_s < 10:
        wait_s = bucket.wait_s(now_s)
        now_s += wait_s
        bucket.take(now_s)
        sent += 1
    assert 500 <= sent <= 510


def test_equal_refusals_in_a_row_are_the_destinations_fault() -> None:
    streak: Streak[str] = Streak(3)
    assert streak.refused("a", 401, 0.0) == ([], [])
    assert streak.refused("b", 401, 0.1) == ([], [])
    assert streak.refused("c", 401, 0.2) == ([], ["a", "b", "c"])


def test_a_refusal_between_others_is_the_events_own_fault() -> None:
    streak: Streak[str] = Streak(3)
    streak.refused("a", 404, 0.0)
    assert streak.broken() == ["a"]
    streak.refused("b", 404, 0.1)
    assert streak.refused("c", 401, 0.2) == (["b"], [])


def test_a_refusal_is_not_held_for_long_but_still_counts() -> None:
    streak: Streak[str] = Streak(3)
    streak.refused("a", 404, 0.0)
    assert streak.overdue(HOLD_S - 0.01) == []
    assert streak.overdue(HOLD_S) == ["a"]
    streak.refused("b", 404, 5.0)
    assert streak.refused("c", 404, 5.1) == ([], ["b", "c"])


@given(st.lists(st.tuples(st.sampled_from([200, 401, 403]), st.floats(0, 2)), max_size=40), st.integers(1, 5))
def test_each_refused_delivery_is_let_go_exactly_once(answers: list[tuple[int, float]], limit: int) -> None:
    streak: Streak[int] = Streak(limit)
    now_s, gone, refused = 0.0, [], []
    for number, (status, pause) in enumerate(answers):
        now_s += pause
        gone += streak.overdue(now_s)
        if status == 200:
            gone += streak.broken()
        else:
            refused.append(number)
            for some in streak.refused(number, status, now_s):
                gone += some
    gone += streak.release()
    assert sorted(gone) == refused


def moving(per_second: float, took_s: float = 0.001, until_s: float = 4.0) -> tuple[Flow, float]:
    flow, now_s = Flow(0.0, at_a_time=10), 0.0
    flow.begins(now_s)
    while now_s < until_s:
        now_s += 1 / per_second
        flow.sent(1, took_s, now_s)
    return flow, now_s


def test_a_burst_waits_for_a_fast_lane_and_not_for_a_slow_one() -> None:
    fast, now_s = moving(2000)
    assert fast.may_wait(1000, now_s, alone=False, saturated=False)
    slow, now_s = moving(100)
    assert not slow.may_wait(1000, now_s, alone=False, saturated=False)


def test_a_lane_that_has_only_just_begun_is_given_a_moment() -> None:
    flow = Flow(0.0, at_a_time=10)
    flow.begins(0.0)
    assert flow.may_wait(1000, 0.2, alone=False, saturated=False)
    assert not flow.may_wait(1000, 0.4, alone=False, saturated=False)
    flow.sent(1, 0.001, 0.4)
    assert flow.may_wait(1000, 0.4, alone=False, saturated=False)


def test_nobody_is_served_sooner_by_giving_up_the_only_lane_that_moves() -> None:
    slow, now_s = moving(10)
    assert slow.may_wait(1000, now_s, alone=True, saturated=False)
    assert not slow.may_wait(1000, now_s + 5, alone=True, saturated=False), "it no longer moves"


def test_for_want_of_cpu_a_fast_destination_is_waited_for_and_a_slow_one_is_not() -> None:
    """10 at a time: with answers within 1 ms it could take 10,000/s, with 200 ms only 50/s."""
    fast, now_s = moving(100, took_s=0.001)
    assert fast.may_wait(1000, now_s, alone=False, saturated=True)
    slow, now_s = moving(50, took_s=0.2)
    assert not slow.may_wait(1000, now_s, alone=False, saturated=True)
    limited = Flow(0.0, at_a_time=10, most_per_second=50)
    for tenth in range(40):
        limited.sent(5, 0.001, tenth / 10)
    assert not limited.may_wait(1000, 4.0, alone=False, saturated=True)


def test_for_want_of_cpu_patience_does_not_run_out() -> None:
    fast, now_s = moving(2000)
    fast.waited(2 * PATIENCE_S, now_s)
    assert fast.may_wait(1000, now_s, alone=False, saturated=True)
    assert not fast.may_wait(1000, now_s, alone=False, saturated=False)


def test_patience_runs_out_and_comes_back() -> None:
    fast, now_s = moving(2000)
    fast.waited(PATIENCE_S, now_s)
    assert not fast.may_wait(1000, now_s, alone=False, saturated=False)
    assert fast.may_wait(1000, now_s, alone=True, saturated=False)
    for _ in range(20_000):
        now_s += 1 / 2000
        fast.sent(1, 0.001, now_s)
    assert fast.may_wait(1000, now_s, alone=False, saturated=False)


class Beating:
    last_heartbeat_monotonic_s = 100.0


def test_the_lease_ends_before_kafka_can_have_given_the_partitions_away() -> None:
    now_s = 107.9
    member: Beating | None = Beating()
    lease = Lease(lambda: member, 10.0, lambda: now_s)
    assert lease.held()
    now_s = 108.0
    assert not lease.held()
    now_s, member = 100.0, None
    assert not lease.held()


def judged(once: Once, offset: int, rank: int, accepted_us: int = 0, key: bytes | None = None) -> Copy:
    return once.judge(offset, key or b"%d" % rank, "raw", rank, accepted_us)


def test_a_step_that_is_repeated_gets_the_same_verdict() -> None:
    once = Once(Memory(), Done())
    assert judged(once, 7, 3) is Copy.FIRST
    assert judged(once, 7, 3) is Copy.FIRST
    assert judged(once, 8, 3) is Copy.COPY


def test_a_copy_with_a_rank_of_its_own_is_known_by_its_key() -> None:
    once = Once(Memory(), Done())
    assert judged(once, 0, 10, key=b"a") is Copy.FIRST
    assert judged(once, 1, 11, key=b"a") is Copy.COPY
    assert judged(once, 2, 12, key=b"b") is Copy.FIRST


def test_a_topic_that_was_made_anew_loses_nothing() -> None:
    """Its offsets begin at 0 again, but its events are accepted later than all before."""
    once = Once(Memory({"raw": 1000}, 50, {}), Done())
    assert judged(once, 0, 900, accepted_us=50) is Copy.COPY
    assert judged(once, 1, 0, accepted_us=51) is Copy.RESET
    assert judged(once, 2, 1, accepted_us=52) is Copy.FIRST


def test_the_next_owner_reads_no_more_receipts_than_it_must() -> None:
    once = Once(Memory(), Done())
    once.batch(0, {"receipts": 100})
    once.batch(10, {"receipts": 200})
    assert Memory.read(once.metadata_at(9)).floors == {"receipts": 100}  # type: ignore[union-attr]
    assert Memory.read(once.metadata_at(10)).floors == {"receipts": 200}  # type: ignore[union-attr]


def test_metadata_of_an_operator_is_none_of_ours() -> None:
    assert Memory.read("") is None
    assert Memory.read("moved by hand") is None
    assert Memory.read("[]") is None
    assert Memory.read('{"tops": 5}') is None


@given(st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([b"a", b"bb", b""])), max_size=60))
def test_done_knows_what_was_added_and_nothing_else(added: list[tuple[int, bytes]]) -> None:
    done = Done()
    for offset, name in added:
        done.add(offset, name)
    for offset in {offset for offset, _ in added} | {0, 1023, 1024}:
        for name in (b"a", b"bb", b""):
            assert done.has(offset, name) == ((offset, name) in added)
