"""Destinations that ask for the watermark get it beside their events, at an interval, and from hifi alone."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook
from tests.support.egest.egest_stream import EgestStream, RunningEgest, outcomes, pipe, running_egest, until
from tests.support.egest.fake_destination import FakeDestination, ReceivedRequest, answer, destination, fine

from hifi.kafka.topic_identity import topic_identity
from hifi.record.record import Record
from hifi.runtime import metrics
from hifi_egest import watermark_posts

SECRET = "whsec_" + "c2VjcmV0" * 4
TOLD: dict[str, Any] = {
    "pipe": "flights",
    "destination": "d",
    "settled_until": "2026-11-27T12:00:00.000000Z",
    "first_pass_until": "2026-11-27T12:00:00.000000Z",
    "event_until": None,
    "event_as_of": None,
    "open": {"in_flight": 0, "waiting": 0, "parked": 0, "services": {}},
    "as_of": "2026-11-27T12:00:01.000000Z",
    "valid_until": "2126-11-27T12:00:04.000000Z",
    "verdict": "current",
    "because": [],
}
STATEMENT = TOLD | {
    "chain": {"via": [{"pipe": "secret"}]},
    "late_ids": ["a:1"],
    "failures_1m": {"egest": 0.5},
}
"""As observe publishes it; what is of the whole pipe and of other pipes is not told."""
pytestmark = pytest.mark.timeout(300)


async def state(stream: EgestStream, **changes: Any) -> None:
    """Publish a watermark as observe does."""
    value = orjson.dumps({**STATEMENT, **changes})
    await stream.producer.send_and_wait(stream.topics.watermarks, 0, [Record(b"flights/d", value, [])])


def watermarks(receiver: FakeDestination) -> list[ReceivedRequest]:
    return [request for request in receiver.requests if b"settled_until" in request.body]


def attributes_and_data(request: ReceivedRequest) -> tuple[dict[str, str], dict[str, Any]]:
    """Attributes and data of the event of a request in any format."""
    body = orjson.loads(request.body)
    if "ce-id" in request.headers:
        attributes = {name[3:]: value for name, value in request.headers.items() if name.startswith("ce-")}
        return attributes, body
    event = body[0] if isinstance(body, list) else body
    data = event.pop("data")
    return event, data


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"format": "cloudevents-structured", "transform": "{number: number}"},
        {"batch": {"size": 10, "wait": "10ms"}},
    ],
    ids=["binary", "structured", "batch"],
)
async def test_it_is_a_signed_event_of_hifi_at_an_interval(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("KEY_OF_D", SECRET)
    async with destination() as receiver:
        declared_pipe = pipe(receiver.url, watermark="1s", signing={"env": "KEY_OF_D"}, **options)
        async with running_egest(stream, declared_pipe) as service:
            ids = await stream.send(5)
            receipts = await stream.receipts(5)
            await state(stream)
            await until(lambda: len(watermarks(receiver)) >= 2)
            await state(stream, settled_until=None, verdict="unknown", as_of="2026-11-27T12:00:02.000000Z")
            await until(lambda: b'"unknown"' in watermarks(receiver)[-1].body)
            assert service.service.health.warnings == {}
        log = (await topic_identity(stream.kafka, stream.topics.raw)).topic
    first_post, second_post, *_, last_post = watermarks(receiver)
    assert second_post.at_s - first_post.at_s >= 0.9
    for request in (first_post, second_post, last_post):
        Webhook(SECRET).verify(request.body, request.headers)
    attributes, data = attributes_and_data(first_post)
    assert (
        attributes.items()
        >= {
            "type": "hifi.watermark",
            "source": f"/hifi/{stream.topics.stream}",
            "subject": "flights/d",
            "id": f"{log}/flights/d/2026-11-27T12:00:01.000000Z",
            "time": "2026-11-27T12:00:01.000000Z",
        }.items()
    )
    assert data == {**TOLD, "log": log}
    assert len({request.headers["webhook-id"] for request in (first_post, last_post)}) == 2
    # It has no receipt.
    assert outcomes(receipts) == ["delivered"] * 5
    assert outcomes(await stream.receipts(5)) == ["delivered"] * 5
    events = [request for request in receiver.requests if request not in watermarks(receiver)]
    assert sorted(number for request in events for number in request.ids) == sorted(ids)


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
        await until(lambda: "states no watermark" in health.warnings.get("watermark of flights/d", ""))
        await state(stream)
        await until(lambda: watermarks(receiver) and not health.warnings)


async def test_one_instance_sends_them_and_another_goes_on_when_it_stops(kafka: str) -> None:
    async def refuses(request: ReceivedRequest) -> bytes | None:
        return answer(503) if b"settled_until" in request.body else await fine(request)

    stream = EgestStream(kafka, 2)
    await stream.create()
    async with destination(refuses) as receiver:
        await stream.publish(pipe(receiver.url, watermark="1s"))
        instances = [await RunningEgest(stream).start() for _ in range(2)]
        await state(stream)

        def senders() -> list[RunningEgest]:
            """Instances whose watermark was refused; a warning ends when another instance sends them."""
            return [instance for instance in instances if instance.service.health.warnings]

        await until(lambda: len(senders()) == 1 and len(watermarks(receiver)) > 3)
        [sender] = senders()
        instances.remove(sender)
        await sender.stop()
        await until(lambda: senders() == instances)
        await instances[0].stop()
    await stream.producer.stop()


async def test_none_is_sent_while_the_secret_of_the_destination_is_missing(
    stream: EgestStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures_before = failures()
    async with destination() as receiver:
        flights_pipe = pipe(receiver.url, watermark="1s", signing={"env": "KEY_OF_D"})
        async with running_egest(stream, flights_pipe, egest_secrets_refresh_s=0.2) as service:
            await state(stream)
            await stream.send(1)
            await stream.at_least(stream.topics.receipts, 1)  # its secret is missing: it waits for a retry
            monkeypatch.setenv("KEY_OF_D", SECRET)
            await until(lambda: watermarks(receiver))
            assert not any(name.startswith("watermark") for name in service.service.health.warnings)
    assert failures() == failures_before


async def test_none_is_sent_while_the_circuit_breaker_is_open(stream: EgestStream) -> None:
    is_failing = True

    async def reply(request: ReceivedRequest) -> bytes | None:
        return answer(500) if is_failing else await fine(request)

    async with destination(reply) as receiver:
        flights_pipe = pipe(receiver.url, watermark="1s", breaker={"failures": 2, "probe": "1s"})
        async with running_egest(stream, flights_pipe):
            await stream.send(2)
            await stream.receipts(2)
            await state(stream)
            for number in range(3, 6):  # some are handed over, others probe it
                await stream.send(1)
                await stream.receipts(number)
            assert watermarks(receiver) == []
            is_failing = False
            while not watermarks(receiver):
                number += 1
                await stream.send(1)
                await stream.receipts(number)


async def test_a_shorter_interval_counts_at_once(stream: EgestStream) -> None:
    async with destination() as receiver, running_egest(stream, pipe(receiver.url, watermark="1h")):
        await state(stream)
        await until(lambda: watermarks(receiver))
        await stream.publish(pipe(receiver.url, watermark="1s"))
        await until(lambda: len(watermarks(receiver)) >= 3)


async def test_a_statement_of_another_shape_stops_nothing(stream: EgestStream) -> None:
    async with (
        destination() as receiver,
        running_egest(stream, pipe(receiver.url, watermark="1s")) as service,
    ):
        value = orjson.dumps({"valid_until": STATEMENT["valid_until"]})
        await stream.producer.send_and_wait(stream.topics.watermarks, 0, [Record(b"flights/d", value, [])])
        await until(lambda: service.service.health.warnings)
        await state(stream)
        await until(lambda: watermarks(receiver) and not service.service.health.warnings)
        await stream.send(1)
        await stream.receipts(1)


def failures() -> float:
    return float(metrics.WATERMARKS_SENT.labels("flights", "d", "failed")._value.get())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"watermark": "1s", "format": "json"}, "needs a CloudEvents `format`"),
        ({"watermark": "500ms"}, "greater than or equal to 1"),
        ({"watermark": "2h"}, "less than or equal to 3600"),
    ],
)
def test_what_cannot_be_sent_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        pipe("http://127.0.0.1/", **options)
