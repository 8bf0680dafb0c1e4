"""Heartbeats: they carry the event-time watermark of a pipe in a partition where it has no events. Pure.

normalize writes them to `normalized`, enrich passes them on to `enriched`, and only steps read them: for all other
readers they are no records. See docs/decisions/record-format.md.
"""

from collections.abc import Sequence
from typing import Final

from hifi.record.headers import KIND
from hifi.record.hop import hop_header, split_hop, write_stamped_hop
from hifi.record.identity import (
    IDENTITY_FIELDS,
    KIND_AT,
    OPTIONAL_FIELDS,
    identity_header,
    identity_prefix,
    identity_stem,
    split_identity,
    write_identity,
)
from hifi.record.packed_text import SEPARATOR
from hifi.record.record import Record
from hifi.runtime.errors import NotAnEvent

HEARTBEAT: Final = b"heartbeat"
"""The value of `KIND`."""
_MINUTE_US: Final = 60_000_000
_KIND_ENDING: Final = SEPARATOR * (1 + OPTIONAL_FIELDS.index(KIND)) + HEARTBEAT
"""Follows the last of `IDENTITY_FIELDS`; the optional fields before it are empty."""


def heartbeat_record(pipe: str, time_us: int, raw: int, stamp_ms: int | None) -> Record:
    """A heartbeat. Its identity is its time, so that copies of a heartbeat are equal and two heartbeats differ.

    Args:
        pipe: name.
        time_us: when it is written, microseconds since 1970 UTC.
        raw: offset in `raw` up to which normalize has written everything of the partition; -1: there is nothing.
        stamp_ms: watermark of the pipe in the partition, milliseconds since 1970 UTC; None: it never had an event.
    """
    stem = identity_stem(identity_prefix(pipe, 0, 0, time_us), time_us // _MINUTE_US, 0)
    name, text = write_identity(stem, 0)
    return Record(None, None, [(name, text + _KIND_ENDING), write_stamped_hop(time_us, raw, stamp_ms)])


def is_heartbeat(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a record is a heartbeat. Ask it only of records that are not events: it takes time.

    Args:
        headers: of the record, in their order.
    """
    try:
        header = identity_header(headers)
        texts = header.split(SEPARATOR)
        if len(texts) <= KIND_AT or texts[KIND_AT] != HEARTBEAT or not header.isascii():
            return False
        split_identity(SEPARATOR.join(texts[: 1 + len(IDENTITY_FIELDS)]))
        split_hop(hop_header(headers))
    except NotAnEvent:
        return False
    return True
