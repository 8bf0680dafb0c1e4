"""The one way into the dead letters."""

from collections.abc import Iterable

from hifi import metrics
from hifi.errors import Rejected
from hifi.event import DETAIL, IN, NODE, PIPE, POINTER, REASON, Record, with_headers

_DETAIL_BYTES = 1000


def dead_letter(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
    node: str,
    why: Rejected,
    fetched_us: int,
) -> Record:
    """The record for the topic `dead-letter`: the event as the node got it, with the reason.

    Args:
        key: of the record as it was read.
        value: of the record as it was read.
        headers: of the record as it was read.
        node: that refuses it; a replay enters at this node's input.
        why: the reason, told by code, sentence and JSON pointer.
        fetched_us: when the node fetched it, microseconds since 1970 UTC.
    """
    headers = list(headers)
    pipe = next((content for name, content in headers if name == PIPE), b"").decode("utf-8", "replace")
    metrics.DEAD_LETTERS.labels(pipe, node, why.reason).inc()
    changes: dict[str, bytes | None] = {
        REASON: why.reason.encode(),
        DETAIL: why.detail.encode()[:_DETAIL_BYTES],
        POINTER: why.pointer.encode() or None,
        NODE: node.encode(),
        IN: b"%d" % fetched_us,
    }
    return Record(key, value, with_headers(headers, changes))
