"""Destinations that ask for the watermark get it beside their events, at an interval, and from hifi alone."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook
from tests.support.egest.egest_stream import EgestStream, outcomes, pipe, pipe_to, running_egest, texts, until
from tests.support.egest.fake_destination import FakeDestination, ReceivedRequest, answer, destination, fine

from hifi.kafka.topic_identity import topic_identity
from hifi.record.headers import REASON
from hifi.record.record import Record
from hifi_egest import watermark_posts

SECRET = "whsec_" + "c2VjcmV0" * 4
STATEMENT: dict[str, Any] = {
    "pipe": "flights",
    "destination": "d",
    "settled_until": "2026-11-27T12:00:00.000000Z",
    "as_of": "2026-11-27T12:00:01.000000Z",
    "valid_until": "2126-11-27T12:00:04.000000Z",
    "verdict": "current",
    "because": [],
}
pytestmark = pytest.mark.timeout(300)


async def state(stream: EgestStream, **changes: Any) -> None:
    """Publish a watermark as observe does."""
    value = orjson.dumps({**STATEMENT, **changes})
    await stream.producer.send_and_wait(stream.topics.watermarks, 0, [Record(b"flights/d", value, [])])


def watermarks(receiver: FakeDestination) -> list[ReceivedRequest]:
    return [request for request in receiver.requests if b"settled_until" in request.body]


def attributes_and_data(request: ReceivedRequest) -> tuple[dict[str, str], dict[str, Any]]:
    """Those of the event of a request in any format."""
    body = orjson.loads(request.body)
    if "ce-id" in request.headers:
        attributes = {name[3:]: value for name, value in request.headers.items() if name.startswith("ce-")}
        return attributes, body
    event = body[0] if isinstance(body, list) else body
    data = event.pop("data")
    return event, data


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"format": "cloudevents-structured", "transform": "{number: number}"},
        {"batch": {"size": 10, "wait": "10ms"}},
    ],
    ids=["binary", "structured", "batch"],
)
async def test_it_is_a_signed_event_of_hifi_at_an_interval(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch, declared: dict[str, Any]
) -> None:
    monkeypatch.setenv("KEY_OF_D", SECRET)
    async with destination() as receiver:
        declared_pipe = pipe(receiver.url, watermark="1s", signing={"env": "KEY_OF_D"}, **declared)
        async with running_egest(stream, declared_pipe) as service:
            ids = await stream.send(5)
            receipts = await stream.receipts(5)
            await state(stream)
            await until(lambda: len(watermarks(receiver)) >= 2)
            await state(stream, settled_until=None, valid_until="2026-11-27T12:00:04.000000Z")
            await until(lambda: b'"unknown"' in watermarks(receiver)[-1].body)
            assert service.service.health.warnings == {}
        log = (await topic_identity(stream.kafka, stream.topics.raw)).topic
    first, second, *_, last = watermarks(receiver)
    assert second.at_s - first.at_s >= 0.9
    for request in (first, second, last):
        Webhook(SECRET).verify(request.body, request.headers)
    attributes, data = attributes_and_data(first)
    assert (
        attributes.items()
        >= {
            "type": "hifi.watermark",
            "source": f"/hifi/{stream.topics.stream}",
            "subject": "flights/d",
            "id": "flights/d/2026-11-27T12:00:01.000000Z",
            "time": "2026-11-27T12:00:01.000000Z",
        }.items()
    )
    assert data == {**STATEMENT, "log": log}
    _, data = attributes_and_data(last)
    assert data["because"] == ["observe has stated nothing since 2026-11-27T12:00:01.000000Z"]
    # It has no receipt.
    assert outcomes(receipts) == ["delivered"] * 5
    assert outcomes(await stream.receipts(5)) == ["delivered"] * 5
    events = [request for request in receiver.requests if request not in watermarks(receiver)]
    assert sorted(number for request in events for number in request.ids) == sorted(ids)


async def test_an_event_of_its_type_is_a_dead_letter_only_where_watermarks_are_asked_for(
    stream: EgestStream,
) -> None:
    async with destination() as asking, destination() as other:
        declared = pipe_to(
            "flights",
            {"name": "d", "url": asking.url, "watermark": "1s"},
            {"name": "other", "url": other.url},
        )
        async with running_egest(stream, declared):
            forged = stream.record("d,other", ce_type=b"hifi.watermark", data={"settled_until": "9999"})
            await stream.enriched(forged, stream.record("d,other"))
            receipts = await stream.receipts(4)
            [letter] = await stream.at_least(stream.topics.dead_letter, 1)
    assert sorted(outcomes(receipts)) == ["dead-letter", *["delivered"] * 3]
    assert texts(letter)[REASON] == "reserved-type"
    assert asking.ids == ["1"]
    assert sorted(other.ids) == ["0", "1"]


async def test_a_refused_one_is_a_warning_until_one_is_accepted(stream: EgestStream) -> None:
    async def refuses(request: ReceivedRequest) -> bytes | None:
        return answer(503) if b"settled_until" in request.body else await fine(request)

    async with (
        destination(refuses) as receiver,
        running_egest(stream, pipe(receiver.url, watermark="1s")) as service,
    ):
        health = service.service.health
        await state(stream)
        await until(lambda: health.warnings)
        assert health.warnings == {
            "watermark of flights/d": "the last watermark was not accepted: status-503"
        }
        await stream.send(3)  # the circuit breaker does not see it
        assert outcomes(await stream.receipts(3)) == ["delivered"] * 3
        receiver.reply = fine
        await until(lambda: not health.warnings)


async def test_that_nothing_is_published_is_a_warning(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark_posts, "_UNSTATED_S", 0.5)
    async with (
        destination() as receiver,
        running_egest(stream, pipe(receiver.url, watermark="1s")) as service,
    ):
        health = service.service.health
        await until(lambda: "no watermark was read" in health.warnings.get("watermark of flights/d", ""))
        await state(stream)
        await until(lambda: watermarks(receiver) and not health.warnings)


async def test_another_instance_goes_on(kafka: str) -> None:
    stream = EgestStream(kafka, 2)
    await stream.create()
    async with destination() as receiver, running_egest(stream, pipe(receiver.url, watermark="1s")) as stays:
        async with running_egest(stream):
            await state(stream)
            await until(lambda: watermarks(receiver))
        await state(stream, settled_until="2026-11-27T12:00:05.000000Z")
        await until(lambda: b"12:00:05" in watermarks(receiver)[-1].body)
        assert stays.service.health.ready
    await stream.producer.stop()


async def test_nothing_is_sent_while_the_secret_of_the_destination_is_missing(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with destination() as receiver:
        declared = pipe(receiver.url, watermark="1s", signing={"env": "KEY_OF_D"})
        async with running_egest(stream, declared, egest_secrets_refresh_s=0.2):
            await state(stream)
            await stream.send(1)
            await stream.at_least(stream.topics.receipts, 1)  # its secret is missing: it waits for a retry
            assert receiver.requests == []
            monkeypatch.setenv("KEY_OF_D", SECRET)
            await until(lambda: watermarks(receiver))


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"watermark": "1s", "format": "json"}, "needs a CloudEvents `format`"),
        ({"watermark": "500ms"}, "greater than or equal to 1"),
        ({"watermark": "2h"}, "less than or equal to 3600"),
    ],
)
def test_what_cannot_be_sent_is_refused(declared: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        pipe("http://127.0.0.1/", **declared)
