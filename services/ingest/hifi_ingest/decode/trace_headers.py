"""The trace of a request (W3C Trace Context), for those of its events that bring none of their own. Pure.

An event carries its trace as the CloudEvents extension "distributed tracing": `traceparent` and `tracestate`. It goes
through the mesh as it came, and egest sends it as HTTP headers again: hifi is no participant, it only forwards.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hifi.event import CE_PREFIX, Headers
from hifi_ingest.decode.attributes import Incoming

_PARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,200})?"
)
"""Later versions than 00 may have more after a dash."""
_STATE: Final = re.compile(rb"[ -~]{1,512}")
_NAMES: Final = frozenset({CE_PREFIX + "traceparent", CE_PREFIX + "tracestate"})


def context(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The request's trace as an event's headers; none where it has no valid `traceparent`, or more than one.

    Args:
        headers: of the request, names in lower case.
    """
    found = [(name, value) for name, value in headers if name in (b"traceparent", b"tracestate")]
    parents = [value for name, value in found if name == b"traceparent"]
    match = _PARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    if match is None or (match[1] == b"00" and match[2]):
        return []
    carried = [(CE_PREFIX + "traceparent", parents[0])]
    state = b",".join(value for name, value in found if name == b"tracestate")
    if _STATE.fullmatch(state):
        carried.append((CE_PREFIX + "tracestate", state))
    return carried


def carried(events: Sequence[Incoming], context: Headers) -> list[Incoming]:
    """The events with the request's trace; an event's own stays."""
    if not context:
        return list(events)
    return [
        event
        if any(name in _NAMES for name, _ in event.headers)
        else event._replace(headers=[*event.headers, *context])
        for event in events
    ]
