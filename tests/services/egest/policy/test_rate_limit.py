"""A destination never gets more requests a second than declared, and gets all of them."""

from hypothesis import given
from hypothesis import strategies as st

from hifi_egest.policy.rate_limit import BURST_S, RequestRateLimit


@given(st.floats(0.1, 2000), st.lists(st.floats(0, 0.5), min_size=5, max_size=200))
def test_no_more_than_the_rate_in_any_time(per_second: float, pauses: list[float]) -> None:
    limit, now_s, sent = RequestRateLimit(per_second), 100.0, []
    for pause in pauses:
        now_s += pause
        while limit.wait_s(now_s) == 0 and len(sent) < 2000:
            limit.take(now_s)
            sent.append(now_s)
    for first in range(0, len(sent), 7):
        span_s = sent[-1] - sent[first]
        assert len(sent) - first <= per_second * (span_s + BURST_S) + 2


def test_a_rate_is_used_up_when_there_is_always_something_to_send() -> None:
    limit, now_s, sent = RequestRateLimit(50), 0.0, 0
    while now_s < 10:
        wait_s = limit.wait_s(now_s)
        now_s += wait_s
        limit.take(now_s)
        sent += 1
    assert 500 <= sent <= 510
