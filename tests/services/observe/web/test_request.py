"""Parameters of requests to observe."""

import pytest
from starlette.requests import Request

from hifi.runtime.http.problem import Problem
from hifi_observe.web.request import minute_of, positive_integer


@pytest.mark.parametrize("text", ["³", "-³", "--5", "-", "9" * 5000, "2026-13-01", ""])
def test_what_is_no_minute_is_refused(text: str) -> None:
    with pytest.raises(Problem, match="neither minutes since 1970 UTC nor a time") as refusal:
        minute_of(text)
    assert refusal.value.status == 400


def test_a_minute_is_a_number_or_a_time() -> None:
    assert (minute_of("29"), minute_of("-29"), minute_of("1970-01-01T00:29")) == (29, -29, 29)


@pytest.mark.parametrize("text", ["%C2%B3", "0", "-1", "101", "9" * 5000, ""])
def test_what_is_no_number_up_to_the_highest_is_refused(text: str) -> None:
    request = Request({"type": "http", "query_string": f"limit={text}".encode(), "headers": []})
    with pytest.raises(Problem, match="`limit` must be an integer from 1 to 100") as refusal:
        positive_integer(request, "limit", 10, 100)
    assert refusal.value.status == 400
