"""When a delivery is due, on clocks that may lie."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_retrier.due import due_s

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
    times = [due_s(each, delay_s, NOW_US, 0.0) for each in appended_ms]
    assert times == sorted(times)
