"""Requests are repeated until they are accepted, and normalize recognizes their events; those in flight are named."""

import asyncio
import contextlib

import pytest
from aiohttp import ClientSession, web
from aiokafka import ConsumerRecord

from hifi.pipe.source import HttpSource
from hifi.record.cloudevents.event import DecodeLimits
from hifi.record.identity import Identity
from hifi.record.partitioner import partition_of
from hifi.runtime.errors import Retryable
from hifi_cli.sending import responses
from hifi_cli.sending.batches import BatchReader, RequestBatch, new_run_id
from hifi_cli.sending.client import IngestClient
from hifi_cli.sending.event_files import FileEvent
from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request
from hifi_normalize.idempotency.fingerprint import fingerprint
from hifi_normalize.idempotency.fingerprint_window import FingerprintWindow, Repetition

ACCEPTED_US = 1_800_000_000_000_000
PARTITIONS = 4


class Raw:
    """Decodes requests as ingest does, and decides about their events as normalize does."""

    def __init__(self, **source):
        self.declares_id = "id" in source
        self.formats = PipeFormats.of("p", HttpSource.model_validate(source))
        self.windows = [FingerprintWindow(600_000) for _ in range(PARTITIONS)]
        self.count = 0

    async def write(self, headers, body):
        """Write the events of a request to `raw`; return which of them are new."""
        self.count += 1
        accepted_us = ACCEPTED_US + self.count * 1_000_000
        header_list = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        events = await decode_request(
            EventRequest(header_list, body, accepted_us),
            self.formats,
            DecodeLimits(1000, 100, 10),
            allow_plain_json=True,
        )
        repetitions = []
        for index, event in enumerate(events):
            at_ms = accepted_us // 1000
            record = ConsumerRecord(
                "raw", 0, index, at_ms, 1, event.key, event.data, None, 0, 0, event.headers
            )
            identity = Identity("p", 1, 1, accepted_us, 1, b"%016x:%d" % (self.count, index))
            event_fingerprint = fingerprint(record, identity, declares_id=self.declares_id)
            assert event_fingerprint is not None
            window = self.windows[partition_of(event.key, PARTITIONS)]
            repetitions.append(window.check(event_fingerprint)[0])
        return repetitions


@contextlib.asynccontextmanager
async def sending_to(ingest, patience_s=10):
    """A client of a server that answers as `ingest` does."""
    application = web.Application()
    application.router.add_post("/v1/pipes/p/events", ingest)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with ClientSession() as session:
            yield IngestClient(session, url, "p", "key", patience_s=patience_s)
    finally:
        await runner.cleanup()


async def send(client, *batches):
    remaining = [*batches, None]

    async def next_batch():
        return remaining.pop(0)

    await client.send(next_batch, concurrency=1)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(responses, "_MIN_WAIT_S", 0)


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

    events = [FileEvent(number, b'{"n":%d}' % number) for number in range(1, 21)]
    batches = BatchReader(iter(events), "run", max_events=4, refuse=lambda *_: None)
    batches.start()
    async with sending_to(ingest) as client:
        while batches._queue.qsize() <= len(events):  # the file is read
            await asyncio.sleep(0.01)
        sending = asyncio.create_task(client.send(batches.batch, concurrency=concurrency))
        for _ in range(concurrency):
            async with asyncio.timeout(10):
                await hanging.acquire()
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sending
    assert (answer_count, client.counts.accepted) == (1, 4)
    assert client.in_flight == in_flight


@pytest.mark.parametrize(
    "source", [{}, {"type": "order", "time": "t", "partition_key": "k"}, {"id": "i"}], ids=str
)
async def test_events_of_a_partly_acknowledged_request_are_delivered_once(source):
    raw, repetitions = Raw(**source), []

    async def ingest(request):
        body = await request.read()
        repetitions.extend(await raw.write(request.headers, body))
        if raw.count > 1:
            return web.json_response({"accepted": 3, "ids": []}, status=202)
        events = [
            {"index": index, "id": f"i{index}", "outcome": outcome}
            for index, outcome in enumerate(["accepted", "unknown", "accepted"])
        ]
        problem = {"detail": "not every event", "accepted": 2, "refused": 0, "unknown": 1, "events": events}
        return web.json_response(problem, status=503, headers={"Retry-After": "0"})

    events = [
        FileEvent(number, b'{"i":"%d","k":"k%d","t":"2026-01-01T00:00:00Z"}' % (number, number))
        for number in range(1, 4)
    ]
    async with sending_to(ingest) as client:
        await send(client, RequestBatch(f"{new_run_id()}-1", events))
    assert repetitions == [Repetition.NEW] * 3 + [Repetition.REPEATED] * 3
    counts = client.counts
    assert (counts.accepted, counts.refused, counts.repeats, client.in_flight) == (3, 0, 1, [])


@pytest.mark.parametrize("number", [170, 1701, 17_010])
async def test_events_of_a_run_are_not_taken_for_those_whose_id_ingest_generated(number):
    raw = Raw()
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": f"{new_run_id()}-{number}"}
    body = b"\n".join([b"{}"] * 100)
    assert await raw.write(headers, body) == [Repetition.NEW] * 100
    assert await raw.write(headers, body) == [Repetition.REPEATED] * 100


async def test_a_front_whose_ingest_dies_gets_the_same_request_again_and_sends_it_to_the_same_colour():
    statuses, requests = [502, 500, 504, 202], []

    async def ingest(request):
        requests.append(
            (await request.read(), request.headers["idempotency-key"], request.headers["hifi-key"])
        )
        status = statuses[len(requests) - 1]
        return web.Response(
            status=status, text="<html>", content_type="text/html", headers={"Retry-After": "0"}
        )

    async with sending_to(ingest) as client:
        await send(client, RequestBatch("run-1", [FileEvent(1, b'{"n":1}')]))
    assert requests == [(b'{"n":1}', "run-1", "run-1")] * 4
    assert (client.counts.accepted, client.counts.repeats) == (1, 3)


async def test_patience_ends_with_the_reason_of_the_last_answer():
    async def ingest(_):
        return web.json_response({"detail": "see its log"}, status=500, headers={"Retry-After": "0"})

    async with sending_to(ingest, patience_s=0) as client:
        with pytest.raises(
            Retryable, match="no request was accepted for 0 s: ingest answers 500: see its log"
        ):
            await send(client, RequestBatch("run-1", [FileEvent(1, b"{}")]))
    assert client.in_flight == [(1, 1)]
