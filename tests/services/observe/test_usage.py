"""On a real Kafka: usage by pipe, key and day is exact, also when ingest and observe are killed in between."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.ingest.ingest_harness import Stream, ingest, new_stream, pipe
from tests.support.observe.api_requests import ask, until
from tests.support.observe_principal import create_principals
from tests.support.openapi_documents import require_described
from tests.support.stream_process import free_port, start_service

from hifi.kafka.producer import Producer
from hifi.pipe.issued_key import key_id
from hifi.record.fields import fields, packed
from hifi.record.headers import ANSWERED, DESTINATION, IN, OUTCOME, SENT, SOURCE, STATUS, TO
from hifi.record.record import Record
from hifi.runtime.clock import now_us

KEYS = {"first": "flights", "second": "flights", "third": "orders"}
"""Write key to its pipe."""
QUICK = {
    "observe_settle_s": 0,
    "observe_snapshot_interval_s": 0.2,
    "observe_amend_interval_s": 0.2,
    "observe_live_interval_s": 1,
}


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Sender:
    """Sends events, and keeps what was acknowledged by pipe and key."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    async def send(self, url: str, key: str, requests: int) -> None:
        """Send requests with two events each, which count in a minute that is over."""
        name = KEYS[key]
        headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/cloudevents-batch+json",
        }
        time = (datetime.now(UTC) - timedelta(seconds=100)).isoformat()
        async with aiohttp.ClientSession(headers=headers) as client:
            for number in range(requests):
                batch = [
                    {
                        "specversion": "1.0",
                        "id": os.urandom(8).hex(),
                        "source": "/s",
                        "type": "t",
                        "time": time,
                        "data": {"n": "x" * (number * 7 + index)},
                    }
                    for index in range(2)
                ]
                async with client.post(f"{url}/v1/pipes/{name}/events", data=orjson.dumps(batch)) as answer:
                    assert answer.status == 202, await answer.text()
                for event in batch:
                    self.events[name, key_id(digest(key))] += 1
                    self.bytes[name, key_id(digest(key))] += len(orjson.dumps(event["data"]))

    def pipe(self, name: str) -> tuple[int, int]:
        return (
            sum(count for (pipe_name, _), count in self.events.items() if pipe_name == name),
            sum(size for (pipe_name, _), size in self.bytes.items() if pipe_name == name),
        )


async def deliver(stream: Stream) -> Counter[str]:
    """Write what the services behind ingest would, for each event twice; returns deliveries by pipe."""
    deliveries: Counter[str] = Counter()
    producer = Producer(stream.kafka, "double")
    await producer.start()
    try:
        for raw in await stream.raw():
            now_text = b"%d" % now_us()
            event = fields(raw.headers)
            receipt_fields = {DESTINATION: b"d", OUTCOME: b"delivered", SOURCE: b"enriched:0", STATUS: b"200"}
            for topic, extra_fields in (
                ("normalized", {}),
                ("enriched", {TO: b"d"}),
                ("receipts", receipt_fields | {SENT: now_text, ANSWERED: now_text}),
                ("receipts", receipt_fields | {SENT: now_text, ANSWERED: now_text}),
            ):
                record = Record(raw.key, b"{}", packed(event | {IN: now_text} | extra_fields))
                await producer.send_and_wait(f"{stream.name}.{topic}", raw.partition, [record])
            deliveries[event["hifi_pipe"].decode()] += 1
    finally:
        await producer.stop()
    return deliveries


@contextmanager
def observing(stream: Stream, log: Path):
    """A process of observe, killed at the end; yields its URL."""
    port = free_port()
    process = start_service(
        "hifi-observe", stream.kafka, stream.name, free_port(), log, observe_port=port, **QUICK
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def totals(body: dict[str, Any]) -> tuple[dict[str, tuple[int, int, int]], dict[Any, tuple[int, int]]]:
    """Events, bytes and deliveries by pipe, and events and bytes by pipe and key, over all days."""
    pipes: dict[str, tuple[int, int, int]] = {}
    keys: dict[Any, tuple[int, int]] = {}
    for row in body["usage"]:
        totals_before = pipes.get(row["pipe"], (0, 0, 0))
        units = ("events", "bytes", "deliveries")
        pipes[row["pipe"]] = tuple(
            amount + row[unit] for amount, unit in zip(totals_before, units, strict=True)
        )
        for key in row["keys"]:
            events, size = keys.get((row["pipe"], key["key"]), (0, 0))
            keys[row["pipe"], key["key"]] = (events + key["events"], size + key["bytes"])
    return pipes, keys


@pytest.mark.more  # in CI: minutes/test_usage.py, without a Kafka
async def test_usage_is_exact_by_pipe_key_and_day_whoever_is_killed(kafka: str, tmp_path: Path) -> None:
    keys = [{"sha256": digest(key)} for key in ("first", "second")]
    stream = await new_stream(kafka, pipe("flights", keys=keys), pipe("orders", "third"))
    await create_principals(kafka, stream.name)
    sender, log = Sender(), tmp_path / "log"

    async def counted(url: str, deliveries: Counter[str]) -> dict[str, Any]:
        expected_pipes = {name: (*sender.pipe(name), deliveries[name]) for name in ("flights", "orders")}
        expected_keys = {key: (count, sender.bytes[key]) for key, count in sender.events.items()}
        body: dict[str, Any] = await until(
            url,
            "/api/v1/usage",
            lambda body: "usage" in body and totals(body) == (expected_pipes, expected_keys),
        )
        return body

    async def until_answering(url: str) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await ask(url, "/api/v1/status")
                except (aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.1)
                else:
                    return

    with ingest(kafka, stream.name, log) as first_ingest, observing(stream, log) as url:
        for key, requests in (("first", 12), ("second", 5), ("third", 3)):
            await sender.send(first_ingest.url, key, requests)
        await until_answering(url)
        await counted(url, Counter())  # then both are killed
    with ingest(kafka, stream.name, log) as second_ingest:
        await sender.send(second_ingest.url, "first", 4)
        await sender.send(second_ingest.url, "third", 2)
        assert second_ingest.stop() == 0, "it writes the last totals when it stops"
    deliveries = await deliver(stream)
    with observing(stream, log) as url:
        await until_answering(url)
        body = await counted(url, deliveries)
        require_described(await ask(url, "/openapi.json"), "GET", "/api/v1/usage", 200, body)
        days = [row["day"] for row in body["usage"]]
        assert set(days) <= {
            str(datetime.now(UTC).date() - timedelta(days=days_ago)) for days_ago in range(2)
        }
        orders_body = await ask(url, "/api/v1/usage?pipe=orders")
        assert orders_body["usage"] == [row for row in body["usage"] if row["pipe"] == "orders"]
        assert (await ask(url, "/api/v1/usage?from=2000-01-01&to=2000-01-02"))["usage"] == []
        assert (await ask(url, "/api/v1/usage?from=yesterday"))["status"] == 400

        def run(*options: str) -> str:
            return subprocess.run(
                [Path(sys.executable).with_name("hifi"), "usage", "--url", url, *options],
                env=os.environ | {"HIFI_TOKEN": "token-of-viewer", "COLUMNS": "200"},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout

        assert json.loads(await asyncio.to_thread(run, "--json")) == body["usage"]
        assert f"{sum(sender.bytes.values()):,}" not in await asyncio.to_thread(run, "--pipe", "orders")
        assert f"{sender.pipe('orders')[1]:,}" in await asyncio.to_thread(run, "--pipe", "orders")
