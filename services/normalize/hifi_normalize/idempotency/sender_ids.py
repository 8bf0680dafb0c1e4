"""Which events of sources have an id that their sender chose, and the id of one whose id had other data. Pure."""

from functools import lru_cache
from typing import Final

from hifi.record.headers import Headers
from hifi.record.source_position import SourcePosition

_KAFKA: Final = b"kafka"
_PARTS: Final = 5
"""Of the name of a partition of a topic: `kafka/<cluster id>/<topic>/<topic id>/<partition>`."""


def has_sender_id(headers: Headers, position: SourcePosition) -> bool:
    """Whether the sender of an event of a source chose its id, as that of a CloudEvent on Kafka. Others are places.

    Args:
        headers: of the event.
        position: of the event.
    """
    prefix = _generated_prefix(position.source)
    if prefix is None:
        return False
    return not next((value for name, value in headers if name == "ce_id"), prefix).startswith(prefix)


def other_id(event_id: bytes, position: SourcePosition) -> bytes:
    """The id of an event of a source in whose window another event has its id: the same however often it is read."""
    return b"%b~%d.%b" % (event_id, position.position, position.source.split(b"/")[_PARTS - 1])


@lru_cache(maxsize=4096)
def _generated_prefix(source: bytes) -> bytes | None:
    """How the ids begin that collect gives to events of a source partition; None: to all of them."""
    parts = source.split(b"/")
    if parts[0] != _KAFKA or len(parts) != _PARTS:
        return None
    _, cluster, topic, _, partition = parts
    return b"%b/%b/%b/" % (cluster, topic, partition)
