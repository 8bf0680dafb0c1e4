"""The record of a dead letter."""

from collections.abc import Iterable

from hifi.kafka.producer import is_sendable
from hifi.record.fields import fields, with_fields
from hifi.record.headers import DETAIL, IN, LEFT_OUT, PIPE, POINTER, RAW, REASON, SERVICE
from hifi.record.packed_text import MAX_DIGITS
from hifi.record.record import Record
from hifi.runtime import metrics
from hifi.runtime.errors import Rejected

_DETAIL_BYTES = 1000
_WITHOUT_DATA = b"; without its data"
_WITHOUT_ALL = b"; without its data, key and headers"


def dead_letter(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    service: str,
    rejection: Rejected,
    fetched_us: int,
    raw: int | None = None,
) -> Record:
    """The record for the topic `dead-letter`: the event as the service read it, with the reason. Counts it, too.

    Headers without a value are left out. So are the data, and if need be key and headers, where the record would be
    larger than the topic takes; the detail says so, and where the event is.

    Args:
        key: of the record that was read.
        value: of the record that was read.
        headers: of the record that was read.
        service: the service that refuses it; a replay goes to the input of this service.
        rejection: the reason: code, sentence and JSON pointer.
        fetched_us: when the service fetched the record, microseconds since 1970 UTC.
        raw: offset of the record in `raw`; None: the service read another topic.
    """
    headers = list(headers)
    header_fields = fields(headers)
    pipe = header_fields.get(PIPE, b"").decode("utf-8", "replace")
    metrics.DEAD_LETTERS.labels(pipe, service, rejection.reason).inc()
    changes: dict[str, bytes | None] = {
        REASON: rejection.reason.encode(),
        DETAIL: rejection.detail.encode()[:_DETAIL_BYTES],
        POINTER: rejection.pointer.encode() or None,
        SERVICE: service.encode(),
        IN: b"%d" % fetched_us,
    }
    letter = Record(key, value, with_fields(headers, changes))
    if is_sendable(letter):
        return letter
    raw_offset = (
        header_fields.get(RAW, b"").decode("ascii", "replace")[:MAX_DIGITS] if raw is None else f"{raw}"
    )
    place = (
        f"offset {raw_offset} of the topic raw, same partition"
        if raw_offset
        else f"the topic that {service} reads"
    )
    note = f" (with it the dead letter would be too large: the event is at {place})".encode()
    detail = rejection.detail.encode()[: _DETAIL_BYTES - len(note) - len(_WITHOUT_ALL)]
    changes |= {DETAIL: detail + _WITHOUT_DATA + note, LEFT_OUT: b"data"}
    if raw is not None:
        changes[RAW] = raw_offset.encode()
    letter = Record(key, None, with_fields(headers, changes))
    if is_sendable(letter):
        return letter
    changes |= {DETAIL: detail + _WITHOUT_ALL + note, LEFT_OUT: b"all", POINTER: None}
    return Record(None, None, with_fields([], changes))
