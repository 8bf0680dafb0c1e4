"""The rate of a pipe is limited with 429 and the time to wait."""

import pytest

from hifi.http.problem import Problem
from hifi_ingest.http.rate_limits import PipeRateLimits


def test_a_pipe_above_its_rate_is_429_until_tokens_are_available() -> None:
    now = 0.0
    rates = PipeRateLimits(10, lambda: now)
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
    PipeRateLimits(0, lambda: now).take("a", 10**9)
