"""Events whose request had no answer are named when sending is stopped."""

import asyncio
import contextlib
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, web

from hifi.pipe.source import HttpSource
from hifi.record.cloudevents import decode as cloudevents
from hifi.record.cloudevents.event import DecodeLimits
from hifi_cli.sending.batches import BatchReader
from hifi_cli.sending.client import IngestClient
from hifi_cli.sending.event_files import FileEvent


@pytest.mark.parametrize(("concurrency", "in_flight"), [(1, [(5, 8)]), (2, [(5, 8), (9, 12)])])
async def test_events_in_flight_at_an_interrupt_are_named(concurrency, in_flight):
    answer_count, hanging = 0, asyncio.Semaphore(0)

    async def ingest(request):
        nonlocal answer_count
        body = await request.read()
        if b'{"n":1}' in body:
            answer_count += 1
            return web.json_response({"accepted": 4, "ids": []}, status=202)
        hanging.release()
        await asyncio.sleep(3600)
        return web.Response()

    application = web.Application()
    application.router.add_post("/v1/pipes/p/events", ingest)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    events = [FileEvent(number, b'{"n":%d}' % number) for number in range(1, 21)]
    batches = BatchReader(iter(events), "run", max_events=4, refuse=lambda *_: None)
    batches.start()
    async with ClientSession() as session:
        while batches._queue.qsize() <= len(events):  # the file is read
            await asyncio.sleep(0.01)
        client = IngestClient(session, url, "p", "key", source=None, patience_s=10)
        sending = asyncio.create_task(client.send(batches.batch, concurrency=concurrency))
        for _ in range(concurrency):
            await asyncio.wait_for(hanging.acquire(), 10)
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
    assert (answer_count, client.counts.accepted) == (1, 4)
    assert client.in_flight == in_flight
    await runner.cleanup()


@pytest.mark.parametrize("name", ["50%25", "a b", '"x"', "ä\\%", "%", "!#$&'()*+,/:;<=>?@[\\]^`{|}~_.-a1"])
def test_an_event_that_is_repeated_keeps_its_id_and_key_whatever_is_in_them(name):
    source = HttpSource.model_validate({"partition_key": "k"})
    any_session: Any = None
    client = IngestClient(any_session, "http://x", "p", "key", source=source, patience_s=1)
    for key, partition_key in ((name, name), (0, "0"), (2**70, str(2**70))):
        event = FileEvent(1, orjson.dumps({"k": name}) if key is name else b'{"k":%d}' % key)
        headers = [
            (header.lower().encode(), value.encode("ascii"))
            for header, value in client._as_cloudevent(event, name).items()
        ]
        decoded_event = cloudevents.binary(headers, event.data, DecodeLimits(1000, 10, 10))
        assert (decoded_event.id, decoded_event.key) == (name.encode(), partition_key.encode())
