"""One error response for every server: RFC 9457, the same for a raw ASGI app and for Starlette."""

import orjson

from hifi.runtime.http.problem import Problem, retry_later


def test_the_response_is_problem_details_with_members_and_headers() -> None:
    problem = Problem(405, "send events by POST", [("allow", "POST")], {"bad": 1})
    status, body, headers = problem.parts()
    response = problem.response()
    assert (response.status_code, response.body) == (status, body) == (405, body)
    assert set(headers) <= set(response.raw_headers)
    assert set(headers) == {(b"content-type", b"application/problem+json"), (b"allow", b"POST")}
    assert orjson.loads(body) == {
        "type": "about:blank",
        "title": "Method Not Allowed",
        "status": 405,
        "detail": "send events by POST",
        "bad": 1,
    }


def test_a_title_may_be_given_and_retry_later_says_when() -> None:
    assert orjson.loads(Problem(503, "down", title="Kafka does not answer").parts()[1])["title"] == (
        "Kafka does not answer"
    )
    assert dict(retry_later("busy", 2).headers) == {"retry-after": "2"}
