"""Deliveries as the events that the writer of a destination's kind gets. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from hifi.delivery.kind import OutboundEvent
from hifi.delivery.transform import Transform
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE
from hifi.record.hop import hop
from hifi.runtime.errors import Rejected
from hifi_egest.dedup.copy_key import RAW_LOG
from hifi_egest.delivery.delivery import RETRY_OUT, Delivery

_JSON: Final = "application/json"
_PREFIX: Final = len(CE_PREFIX)


def outbound_events(
    deliveries: Iterable[Delivery], transform: Transform | None, log_identity: str
) -> tuple[list[OutboundEvent], list[tuple[int, Rejected]]]:
    """The events of deliveries, and the deliveries without one.

    Args:
        deliveries: to write.
        transform: of the destination; its result is JSON. None: the data is written as it is.
        log_identity: identity of the stream's log.

    Returns:
        Events in the order of the deliveries. With the index of each delivery that has none, because the transform has
        no result, the reason.
    """
    events: list[OutboundEvent] = []
    rejected: list[tuple[int, Rejected]] = []
    for index, delivery in enumerate(deliveries):
        try:
            events.append(_outbound_event(delivery, transform, log_identity))
        except Rejected as error:
            rejected.append((index, error))
    return events, rejected


def _outbound_event(delivery: Delivery, transform: Transform | None, log_identity: str) -> OutboundEvent:
    event = delivery.event
    record = event.record
    headers: Sequence[tuple[str, bytes]] = record.headers
    attributes: dict[str, str] = {}
    content_type = _JSON
    for header_name, header_value in headers:
        if header_name.startswith(CE_PREFIX):
            attributes[header_name[_PREFIX:]] = header_value.decode("utf-8", "replace")
        elif transform is None and header_name == CONTENT_TYPE:
            content_type = header_value.decode("utf-8", "replace")
    data: bytes = record.value or b""
    if transform is not None:
        data = transform(data)
    # The offset in `raw`, not the record's: a retry comes with the position of its first delivery.
    offset = event.log_offset if event.log == RAW_LOG else hop(headers).raw
    partition = event.partition
    retried = partition.source == RETRY_OUT
    partition_number, accepted_us = partition.number, event.accepted_us
    event_fields = (
        data,
        content_type,
        attributes,
        record.key,
        log_identity,
        partition_number,
        offset,
        accepted_us,
        retried,
    )
    return tuple.__new__(OutboundEvent, event_fields)  # 0.14 µs; OutboundEvent(…) takes 0.24
