"""The rate is never exceeded, is reached when there is always something to send, and an overdraft is paid back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.token_bucket import TokenBucket

BURST_S = 0.1


@given(st.floats(0.1, 2000), st.lists(st.floats(0, 0.5), min_size=5, max_size=200))
def test_no_more_than_the_rate_in_any_time(rate_per_s: float, pauses: list[float]) -> None:
    bucket, now_s = TokenBucket(rate_per_s, BURST_S), 100.0
    sent_at_s: list[float] = []
    for pause in pauses:
        now_s += pause
        while bucket.wait_s(now_s) == 0 and len(sent_at_s) < 2000:
            bucket.take(now_s)
            sent_at_s.append(now_s)
    for first_index in range(0, len(sent_at_s), 7):
        span_s = sent_at_s[-1] - sent_at_s[first_index]
        assert len(sent_at_s) - first_index <= rate_per_s * (span_s + BURST_S) + 2


def test_the_rate_is_reached_when_there_is_always_something_to_send() -> None:
    bucket, now_s, sent_count = TokenBucket(50), 0.0, 0
    while now_s < 10:
        now_s += bucket.wait_s(now_s)
        bucket.take(now_s)
        sent_count += 1
    assert 500 <= sent_count <= 510


def test_an_overdraft_is_paid_back_before_the_next_token() -> None:
    bucket = TokenBucket(10, burst_s=1)
    bucket.take(100.0, 100)
    assert bucket.wait_s(100.0) == pytest.approx(9.1)
    assert bucket.wait_s(109.1) == pytest.approx(0)


def test_a_higher_rate_shortens_the_wait() -> None:
    bucket = TokenBucket(0.1)
    bucket.take(100.0)
    assert bucket.wait_s(100.0) == pytest.approx(10)
    bucket.set_rate(100)
    assert bucket.wait_s(100.0) < 0.11
