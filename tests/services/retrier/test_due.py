"""When a delivery is due, on clocks that may lie."""

from hypothesis import given
from hypothesis import strategies as st

from hifi.kafka.topics import Tier
from hifi_retrier.due import due_s, next_round_s, round_interval_s

NOW_US = 1_800_000_000_000_000
DELAYS = st.floats(0.2, 7200)


@given(age_s=st.floats(-10_000, 10_000), delay_s=DELAYS, monotonic_s=st.floats(0, 1e6))
def test_the_wait_is_what_is_left_of_the_delay_and_never_more_than_it(
    age_s: float, delay_s: float, monotonic_s: float
) -> None:
    appended_ms = int(NOW_US / 1000 - age_s * 1000)
    wait_s = due_s(appended_ms, delay_s, NOW_US, monotonic_s) - monotonic_s
    assert -1e-3 <= wait_s <= delay_s + 1e-3
    if 0 <= age_s <= delay_s:
        assert abs(wait_s - (delay_s - age_s)) < 0.01


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=50), DELAYS)
def test_the_head_is_always_the_next_that_is_due(ages_ms: list[int], delay_s: float) -> None:
    appended_ms = sorted(NOW_US // 1000 - age for age in ages_ms)
    times = [due_s(append_ms, delay_s, NOW_US, 0.0) for append_ms in appended_ms]
    assert times == sorted(times)


@given(when_s=st.floats(0, 1e6), delays=st.lists(DELAYS, min_size=1, max_size=5))
def test_what_is_due_waits_for_the_next_round_and_never_long(when_s: float, delays: list[float]) -> None:
    interval_s = round_interval_s([Tier(f"{number}", delay_s) for number, delay_s in enumerate(delays)])
    assert interval_s <= min(0.25, min(delays) / 20)
    later_s = next_round_s(when_s, when_s - 1, interval_s)
    assert -1e-6 <= later_s - when_s <= interval_s + 1e-6
    number = later_s / interval_s
    assert abs(number - round(number)) < 1e-3  # the same moments for all partitions


def test_a_tier_without_a_delay_waits_for_no_round() -> None:
    interval_s = round_interval_s([Tier("0s", 0), Tier("5s", 5)])
    assert next_round_s(12.34, 12, interval_s) == 12.34


def test_a_backlog_waits_for_no_round() -> None:
    assert next_round_s(12.34, 12.35, 0.25) == 12.34
    assert next_round_s(12.34, 12.33, 0.25) == 12.5
