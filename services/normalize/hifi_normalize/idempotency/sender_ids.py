"""Recognize ids of source events that their sender chose, and make ids for events that reuse one. Pure."""

from functools import lru_cache
from typing import Final

from hifi.record.headers import Headers
from hifi.record.source_position import SourcePosition

_KAFKA: Final = b"kafka"
_SEGMENTS: Final = 5
"""Segments of the name of a partition of a topic: `kafka/<cluster id>/<topic>/<topic id>/<partition>`."""


def has_sender_id(headers: Headers, position: SourcePosition) -> bool:
    """Whether the sender of an event of a source chose its id, as that of a CloudEvent on Kafka.

    Args:
        headers: of the event.
        position: of the event.
    """
    prefix = _generated_prefix(position.source)
    if prefix is None:
        return False
    return not next((value for name, value in headers if name == "ce_id"), prefix).startswith(prefix)


def other_id(event_id: bytes, sequence: bytes, position: SourcePosition | None) -> bytes:
    """The new id of an event whose id another event in the window has, so that receivers can distinguish the two.

    It is `<id>~<hifi_seq>`; for an event of a source `<id>~<position>.<partition>`, which each read of it gives again.
    """
    if position is None:
        return b"%b~%b" % (event_id, sequence)
    return b"%b~%d.%b" % (event_id, position.position, position.source.split(b"/")[_SEGMENTS - 1])


@lru_cache(maxsize=4096)
def _generated_prefix(source: bytes) -> bytes | None:
    """The prefix of ids that collect gives to events of a source partition; None: it gives all of their ids."""
    segments = source.split(b"/")
    if segments[0] != _KAFKA or len(segments) != _SEGMENTS:
        return None
    _, cluster, topic, _, partition = segments
    return b"%b/%b/%b/" % (cluster, topic, partition)
