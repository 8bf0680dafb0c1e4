"""An event without a trace of its own gets the trace of its request, if that is valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.record.cloudevents.event import DecodedEvent
from hifi_ingest.decode.trace_headers import trace_headers, with_trace

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PARENT_HEADERS = [("ce_traceparent", PARENT)]


def event(*headers: tuple[str, bytes]) -> DecodedEvent:
    return DecodedEvent(b"/s", b"1", b"1", [("ce_id", b"1"), *headers], b"", None)


def test_traceparent_and_tracestate_are_added_unchanged() -> None:
    request_headers = [
        (b"traceparent", PARENT),
        (b"tracestate", b"a=1, b=2"),
        (b"tracestate", b"c=3"),
        (b"host", b"h"),
    ]
    assert trace_headers(request_headers) == [*PARENT_HEADERS, ("ce_tracestate", b"a=1, b=2,c=3")]
    assert trace_headers([(b"tracestate", b"a=1")]) == []
    assert trace_headers([(b"traceparent", PARENT), (b"tracestate", b"\xff")]) == PARENT_HEADERS
    assert trace_headers([(b"traceparent", PARENT), (b"tracestate", b"a" * 513)]) == PARENT_HEADERS


@pytest.mark.parametrize(
    "value",
    [
        b"",
        PARENT.upper(),
        PARENT + b"-more",
        PARENT + b"\n",
        b"ff" + PARENT[2:],
        PARENT[:-1],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + b"-01",
    ],
)
def test_an_invalid_trace_is_not_added(value: bytes) -> None:
    assert trace_headers([(b"traceparent", value)]) == []


def test_of_two_traces_none_is_added_and_a_later_version_may_have_more_fields() -> None:
    assert trace_headers([(b"traceparent", PARENT), (b"traceparent", PARENT)]) == []
    later_version = b"01" + PARENT[2:] + b"-more"
    assert trace_headers([(b"traceparent", later_version)]) == [("ce_traceparent", later_version)]


@given(st.binary(max_size=80))
def test_no_header_raises(value: bytes) -> None:
    for name, header_value in trace_headers([(b"traceparent", value), (b"tracestate", value)]):
        assert name.startswith("ce_trace")
        assert header_value == value


def test_an_events_own_trace_is_kept() -> None:
    traced_event = event(("ce_traceparent", b"00-own"))
    assert with_trace([traced_event, event()], PARENT_HEADERS) == [traced_event, event(*PARENT_HEADERS)]
    assert with_trace([event()], []) == [event()]
