"""Add the trace of a request (W3C Trace Context) to those of its events that have none. Pure.

An event carries its trace in the CloudEvents extension "distributed tracing": `traceparent` and `tracestate`. The mesh
passes it on unchanged, and egest sends it as HTTP headers: hifi does not add spans of its own to it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hifi.record.cloudevents.event import DecodedEvent
from hifi.record.headers import CE_PREFIX, Headers
from hifi.runtime.http.trace_context import parse_traceparent

_TRACESTATE: Final = re.compile(rb"[ -~]{1,512}")
_NAMES: Final = frozenset({CE_PREFIX + "traceparent", CE_PREFIX + "tracestate"})


def trace_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The trace of a request as record headers; empty unless it has exactly one valid `traceparent`.

    Args:
        headers: of the request, names in lower case.
    """
    trace_fields = [(name, value) for name, value in headers if name in (b"traceparent", b"tracestate")]
    traceparents = [value for name, value in trace_fields if name == b"traceparent"]
    if len(traceparents) != 1 or parse_traceparent(traceparents[0]) is None:
        return []
    trace = [(CE_PREFIX + "traceparent", traceparents[0])]
    tracestate = b",".join(value for name, value in trace_fields if name == b"tracestate")
    if _TRACESTATE.fullmatch(tracestate):
        trace.append((CE_PREFIX + "tracestate", tracestate))
    return trace


def with_trace(events: Sequence[DecodedEvent], trace: Headers) -> list[DecodedEvent]:
    """Events with the trace of their request; an event that has a trace keeps it.

    Args:
        events: of one request.
        trace: of the request, as record headers.
    """
    if not trace:
        return list(events)
    return [
        event
        if any(name in _NAMES for name, _ in event.headers)
        else event._replace(headers=[*event.headers, *trace])
        for event in events
    ]
