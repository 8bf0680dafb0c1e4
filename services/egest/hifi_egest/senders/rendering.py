"""Render an outbound request as the bytes of an HTTP request, or say which of its deliveries cannot be sent. Pure."""

from typing import TypeAlias

from hifi.delivery.destination_request import RequestTemplate
from hifi.runtime.errors import Rejected
from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.policy.outcome import DeadLettered, SplitBatch
from hifi_egest.senders.sender import Unsendable

Rendered: TypeAlias = bytes | Unsendable | SplitBatch


def render(
    request: OutboundRequest, template: RequestTemplate, max_batch_bytes: int | None, now_us: int
) -> Rendered:
    """Render a request.

    Args:
        request: with at least one delivery.
        template: of the destination.
        max_batch_bytes: of the body of a batch; None: the destination takes single events.
        now_us: time of the signature, microseconds since 1970 UTC.

    Returns:
        Head and body; or the deliveries that cannot be sent; or SplitBatch if the batch is too large.
    """
    records = [delivery.event.record for delivery in request.deliveries]
    try:
        parts = [template.part(record) for record in records]
    except Rejected:
        return Unsendable(_rejected_parts(request, template))
    if max_batch_bytes is not None and len(parts) > 1 and sum(map(len, parts)) > max_batch_bytes:
        return SplitBatch()
    try:
        return template.request(records, parts, now_us)
    except Rejected as why:
        return Unsendable([(delivery, _dead_letter(why)) for delivery in request.deliveries])


def _rejected_parts(
    request: OutboundRequest, template: RequestTemplate
) -> list[tuple[Delivery, DeadLettered]]:
    rejected = []
    for delivery in request.deliveries:
        try:
            template.part(delivery.event.record)
        except Rejected as why:
            rejected.append((delivery, _dead_letter(why)))
    return rejected


def _dead_letter(why: Rejected) -> DeadLettered:
    return DeadLettered(why.reason, why.detail)
