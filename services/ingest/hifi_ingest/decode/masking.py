"""Apply the masks of a pipe's source to decoded events. Pure."""

import asyncio
from collections.abc import Sequence
from typing import Final

from hifi.record.cloudevents.event import DecodedEvent, InvalidEvent
from hifi.runtime.errors import Rejected
from hifi_ingest.bodies import refusal
from hifi_ingest.decode.source_mask import SourceMasker, content_type

_EVENTS_PER_TURN: Final = 250
_UNPROCESSABLE: Final = 422


async def mask_events(events: Sequence[DecodedEvent], masker: SourceMasker) -> list[DecodedEvent]:
    """The events of a request with masked data, attributes and record keys.

    Raises:
        Problem: 422, the data of an event is not a JSON object, so it cannot be masked.
    """
    masked: list[DecodedEvent] = []
    invalid: dict[int, InvalidEvent] = {}
    for index, event in enumerate(events):
        if index and not index % _EVENTS_PER_TURN:
            await asyncio.sleep(0)
        try:
            data = masker.data(event.data, content_type(event.headers))
        except Rejected as why:
            invalid[index] = InvalidEvent(f"this pipe masks fields: {why.detail}", "/data", _UNPROCESSABLE)
            continue
        headers = masker.headers(event.headers)
        masked.append(event._replace(data=data, headers=headers, key=masker.key(event.key, headers)))
    if invalid:
        raise refusal(invalid, len(events))
    return masked
