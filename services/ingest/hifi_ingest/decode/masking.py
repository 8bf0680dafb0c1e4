"""Apply the masks of a pipe's source to decoded events."""

import asyncio
from collections.abc import Sequence
from hmac import digest
from typing import Final

from hifi.record.cloudevents.event import DecodedEvent, InvalidEvent
from hifi.record.headers import UNMASKED
from hifi.runtime.errors import Rejected
from hifi_ingest.bodies import refusal
from hifi_ingest.decode.source_mask import SourceMasker, content_type

_EVENTS_PER_TURN: Final = 250
_UNPROCESSABLE: Final = 422
_DIGEST_DIGITS: Final = 16


async def mask_events(
    events: Sequence[DecodedEvent], masker: SourceMasker, sender_key: bytes
) -> list[DecodedEvent]:
    """The events of a request with masked data, attributes and record keys.

    Args:
        events: of the request.
        masker: of the pipe.
        sender_key: write key of the request, with which the values before masking are digested (`UNMASKED`).

    Raises:
        Problem: 422, the data of an event is not a JSON object, so it cannot be masked.
    """
    masked_events: list[DecodedEvent] = []
    invalid_events: dict[int, InvalidEvent] = {}
    for index, event in enumerate(events):
        if index and not index % _EVENTS_PER_TURN:
            await asyncio.sleep(0)
        try:
            data = masker.data(event.data, content_type(event.headers))
        except Rejected as error:
            detail = f"this pipe masks fields: {error.detail}"
            invalid_events[index] = InvalidEvent(detail, "/data", _UNPROCESSABLE)
            continue
        headers = masker.headers(event.headers)
        key = masker.key(event.key, headers)
        unmasked_values = [
            event.data,
            *(
                b"%b:%b" % (name.encode(), value)
                for name, value in event.headers
                if (name, value) not in headers
            ),
        ]
        headers = [
            (
                UNMASKED,
                digest(sender_key, b"\0".join(unmasked_values), "sha256").hex()[:_DIGEST_DIGITS].encode(),
            ),
            *headers,
        ]
        masked_events.append(event._replace(data=data, headers=headers, key=key))
    if invalid_events:
        raise refusal(invalid_events, len(events))
    return masked_events
