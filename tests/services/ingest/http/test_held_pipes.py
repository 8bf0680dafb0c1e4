"""A pipe whose declaration cannot be read answers 503, so that senders keep events; real HTTP, real Kafka."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from tests.support.held_pipes import unreadable_body, unreadable_record
from tests.support.ingest.ingest_harness import KEY, Ingest, ingest, new_stream, pipe
from tests.support.ingest.refusals import assert_counted_as_paused, send_while_refused
from tests.support.ingest.sender import Sender

from hifi.pipe.registry import publish
from hifi.pipe.revision import NextRevision, pipe_record

JSON = {"content-type": "application/cloudevents+json"}
EVENT = orjson.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {}})


async def post(instance: Ingest, path: str, key: str | None) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer to one event."""
    headers = JSON | ({} if key is None else {"authorization": f"Bearer {key}"})
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{instance.url}{path}", data=EVENT, headers=headers) as answer,
    ):
        if answer.status == 503:
            assert answer.headers["retry-after"] == "10"
        return answer.status, await answer.json(content_type=None)


async def until_accepted(instance: Ingest) -> None:
    """Send to the pipe flights until it is accepted."""
    async with asyncio.timeout(60):
        while (await post(instance, "/v1/pipes/flights/events", KEY))[0] != 202:
            await asyncio.sleep(0.05)


async def test_a_held_pipe_answers_503_until_its_declaration_can_be_read(kafka: str, tmp_path: Path) -> None:
    stream = await new_stream(kafka, pipe(), pipe("orders", "orders-key"))
    with ingest(kafka, stream.name, tmp_path / "log") as instance:

        def warns() -> None:
            assert "declaration of flights" in instance.readyz()[1]["warnings"]

        sender, other_sender = Sender(instance, 5), Sender(instance, 5, pipe_name="orders", key="orders-key")
        await send_while_refused(
            sender,
            other_sender,
            lambda: publish(kafka, stream.topics, [unreadable_record(pipe(), 2)]),
            lambda: stream.publish(pipe()),
            warns,
        )
        retry_after_s, problem = sender.refusals[-1]
        assert int(retry_after_s or 0) == 10
        assert (
            "the declaration of the pipe flights cannot be read here; no event was accepted"
            in problem["detail"]
        )
        assert instance.stop() == 0
    await assert_counted_as_paused(stream, sender, other_sender)


async def test_a_pipe_that_was_never_read_answers_503_to_every_key_that_may_be_its_own(
    kafka: str, tmp_path: Path
) -> None:
    stream = await new_stream(kafka, pipe("orders", "orders-key"))
    await publish(kafka, stream.topics, [unreadable_record(pipe())])
    flights_path, any_path, orders_path = "/v1/pipes/flights/events", "/v1/events", "/v1/pipes/orders/events"
    with ingest(kafka, stream.name, tmp_path / "log") as instance:
        for key in (KEY, "orders-key"):
            status, problem = await post(instance, flights_path, key)
            assert status == 503
            assert "the pipe flights cannot be read here" in problem["detail"]
        status, problem = await post(instance, any_path, KEY)
        assert status == 503
        assert "unknown whether it has this write key" in problem["detail"]
        assert "flights" not in problem["detail"]
        # What is certain stays as it is.
        assert (await post(instance, orders_path, "orders-key"))[0] == 202
        assert (await post(instance, any_path, "orders-key"))[0] == 202
        assert (await post(instance, orders_path, KEY))[0] == 401
        assert (await post(instance, "/v1/pipes/none/events", "orders-key"))[0] == 404
        assert (await post(instance, flights_path, None))[0] == 401
        assert (await post(instance, any_path, None))[0] == 401

        await stream.publish(pipe())
        await until_accepted(instance)
        assert (await post(instance, any_path, "unknown"))[0] == 401
        assert instance.stop() == 0


async def test_a_next_revision_that_cannot_be_read_holds_its_pipe(kafka: str, tmp_path: Path) -> None:
    stream = await new_stream(kafka, pipe(), pipe("orders", "orders-key"))
    current_record = pipe_record(pipe(), since=1, following=NextRevision(revision=2, share=100))
    await publish(kafka, stream.topics, [unreadable_body(pipe(), 2), current_record])
    with ingest(kafka, stream.name, tmp_path / "log") as instance:
        assert (await post(instance, "/v1/events", KEY))[0] == 503
        assert (await post(instance, "/v1/events", "orders-key"))[0] == 202
        await publish(kafka, stream.topics, [pipe_record(pipe(), since=1)])
        await until_accepted(instance)
        assert instance.stop() == 0
