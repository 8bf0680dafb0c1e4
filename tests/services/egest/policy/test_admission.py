"""A full lane is waited for where that delays no other lane."""

from hifi_egest.policy.admission import PATIENCE_S, AdmissionControl


def moving(per_second: float, took_s: float = 0.001, until_s: float = 4.0) -> tuple[AdmissionControl, float]:
    admission, now_s = AdmissionControl(0.0, max_in_flight=10), 0.0
    admission.lane_started(now_s)
    while now_s < until_s:
        now_s += 1 / per_second
        admission.delivered(1, took_s, now_s)
    return admission, now_s


def test_a_burst_waits_for_a_fast_lane_and_not_for_a_slow_one() -> None:
    fast_lane, now_s = moving(2000)
    assert fast_lane.may_wait(1000, now_s, delays_others=True, saturated=False)
    slow_lane, now_s = moving(100)
    assert not slow_lane.may_wait(1000, now_s, delays_others=True, saturated=False)


def test_a_lane_that_has_only_just_begun_is_given_a_moment() -> None:
    admission = AdmissionControl(0.0, max_in_flight=10)
    admission.lane_started(0.0)
    assert admission.may_wait(1000, 0.2, delays_others=True, saturated=False)
    assert not admission.may_wait(1000, 0.4, delays_others=True, saturated=False)
    admission.delivered(1, 0.001, 0.4)
    assert admission.may_wait(1000, 0.4, delays_others=True, saturated=False)


def test_nobody_is_served_sooner_by_giving_up_the_only_lane_that_moves() -> None:
    slow_lane, now_s = moving(10)
    assert slow_lane.may_wait(1000, now_s, delays_others=False, saturated=False)
    assert not slow_lane.may_wait(1000, now_s + 5, delays_others=False, saturated=False), "it no longer moves"


def test_for_want_of_cpu_a_fast_destination_is_waited_for_and_a_slow_one_is_not() -> None:
    """10 at a time: with answers within 1 ms it could take 10,000/s, with 200 ms only 50/s."""
    fast_lane, now_s = moving(100, took_s=0.001)
    assert fast_lane.may_wait(1000, now_s, delays_others=True, saturated=True)
    slow_lane, now_s = moving(50, took_s=0.2)
    assert not slow_lane.may_wait(1000, now_s, delays_others=True, saturated=True)
    limited_lane = AdmissionControl(0.0, max_in_flight=10, max_per_second=50)
    for tenth in range(40):
        limited_lane.delivered(5, 0.001, tenth / 10)
    assert not limited_lane.may_wait(1000, 4.0, delays_others=True, saturated=True)


def test_for_want_of_cpu_patience_does_not_run_out() -> None:
    fast_lane, now_s = moving(2000)
    fast_lane.waited(2 * PATIENCE_S, now_s)
    assert fast_lane.may_wait(1000, now_s, delays_others=True, saturated=True)
    assert not fast_lane.may_wait(1000, now_s, delays_others=True, saturated=False)


def test_patience_runs_out_and_comes_back() -> None:
    fast_lane, now_s = moving(2000)
    fast_lane.waited(PATIENCE_S, now_s)
    assert not fast_lane.may_wait(1000, now_s, delays_others=True, saturated=False)
    assert fast_lane.may_wait(1000, now_s, delays_others=False, saturated=False)
    for _ in range(20_000):
        now_s += 1 / 2000
        fast_lane.delivered(1, 0.001, now_s)
    assert fast_lane.may_wait(1000, now_s, delays_others=True, saturated=False)
