"""The record of a dead letter."""

from collections.abc import Iterable

from hifi.record.fields import fields, with_fields
from hifi.record.headers import DETAIL, IN, PIPE, POINTER, REASON, SERVICE
from hifi.record.record import Record
from hifi.runtime import metrics
from hifi.runtime.errors import Rejected

_DETAIL_BYTES = 1000


def dead_letter(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
    service: str,
    rejection: Rejected,
    fetched_us: int,
) -> Record:
    """The record for the topic `dead-letter`: the event as the service read it, with the reason. Counts it, too.

    Args:
        key: of the record that was read.
        value: of the record that was read.
        headers: of the record that was read.
        service: the service that refuses it; a replay goes to the input of this service.
        rejection: the reason: code, sentence and JSON pointer.
        fetched_us: when the service fetched the record, microseconds since 1970 UTC.
    """
    headers = list(headers)
    pipe = fields(headers).get(PIPE, b"").decode("utf-8", "replace")
    metrics.DEAD_LETTERS.labels(pipe, service, rejection.reason).inc()
    changes: dict[str, bytes | None] = {
        REASON: rejection.reason.encode(),
        DETAIL: rejection.detail.encode()[:_DETAIL_BYTES],
        POINTER: rejection.pointer.encode() or None,
        SERVICE: service.encode(),
        IN: b"%d" % fetched_us,
    }
    return Record(key, value, with_fields(headers, changes))
