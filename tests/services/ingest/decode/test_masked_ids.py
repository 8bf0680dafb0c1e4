"""Events that differ only in masked data stay different events, without a trace of the masked data."""

import hashlib
import hmac
from typing import Any

from tests.support.ingest.ingest_harness import pipe

from hifi.pipe.mask import SourceMask
from hifi.record.cloudevents.event import DecodedEvent, DecodeLimits
from hifi.record.headers import UNMASKED
from hifi_ingest.decode.masking import mask_events
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request
from hifi_ingest.decode.source_mask import SourceMasker

LIMITS = DecodeLimits(event_bytes=1000, batch_events=10, depth=10)
MASK: dict[str, Any] = {"data": {"ssn": "drop"}, "attributes": {"region": "drop"}}
WRITE_KEY = b"a-write-key"


async def masked(body: bytes, *headers: tuple[bytes, bytes], write_key: bytes = WRITE_KEY) -> DecodedEvent:
    request = EventRequest([(b"content-type", b"application/json"), *headers], body, 0, write_key=write_key)
    formats = PipeFormats.of("p", pipe("p", mask=MASK).source)
    events = await decode_request(request, formats, LIMITS, allow_plain_json=True)
    (event,) = await mask_events(events, SourceMasker(SourceMask.model_validate(MASK)), write_key)
    return event


def digest(event: DecodedEvent) -> bytes:
    name, value = event.headers[0]
    assert name == UNMASKED
    return value


async def test_the_same_idempotency_key_with_another_body_gives_another_id() -> None:
    key = (b"idempotency-key", b"k")
    first_event, other_event, repeated_event = [
        await masked(b'{"ssn":"%b","n":1}' % ssn, key) for ssn in (b"1", b"2", b"1")
    ]
    assert first_event.data == other_event.data == b'{"n":1}'
    assert first_event.id == repeated_event.id != other_event.id
    assert digest(first_event) == digest(repeated_event) != digest(other_event)


async def test_masked_parts_of_events_with_one_id_are_told_apart() -> None:
    attributes = [
        (b"ce-" + name, value)
        for name, value in ((b"specversion", b"1.0"), (b"id", b"1"), (b"source", b"/s"), (b"type", b"t"))
    ]
    digests = {
        digest(await masked(body, *attributes, (b"ce-region", region)))
        for body in (b'{"ssn":"1"}', b'{"ssn":"2"}')
        for region in (b"eu", b"us")
    }
    assert len(digests) == 4


async def test_ids_and_digests_do_not_tell_what_was_masked_to_those_without_the_write_key() -> None:
    body = b'{"ssn":"1234"}'
    event = await masked(body, (b"idempotency-key", b"k"))
    for guess in (hashlib.sha256(body).hexdigest(), hmac.new(b"", body, "sha256").hexdigest()):
        assert guess[:16].encode() not in event.id + digest(event)
    assert digest(event) != digest(await masked(body, (b"idempotency-key", b"k"), write_key=b"another"))
