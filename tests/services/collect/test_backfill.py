"""A backlog is read at the declared rate, beside live events, and observe reports its progress."""

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord
from tests.support.collect.collected_stream import collected_stream, fields
from tests.support.observe_principal import VIEWER
from tests.support.stream_process import free_port

from hifi.pipe.model import Pipe
from hifi.record.headers import ORIGIN
from hifi.record.identity import BACKFILL

BACKLOG = 1200
LIVE = 60
RATE = 200
OLD_MS = 3_600_000


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(json.loads(record.value)["n"] for record in records)


def get(port: int, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/pipes/{path}", headers=VIEWER), timeout=10
    ) as answer:
        body: dict[str, Any] = json.loads(answer.read())
    return body


async def body_when(port: int, path: str, accept: Any) -> dict[str, Any]:
    """The first answer of observe that `accept` accepts."""
    async with asyncio.timeout(200):
        while True:
            body = await asyncio.to_thread(get, port, path)
            if accept(body):
                return body
            await asyncio.sleep(0.1)


def most_in_a_second(append_ms: list[int]) -> int:
    """The largest number of records that were appended within one second."""
    append_ms = sorted(append_ms)
    return max(sum(start_ms <= time_ms < start_ms + 1000 for time_ms in append_ms) for start_ms in append_ms)


# Faster: tests/services/collect/pace and the test below; tests/services/observe/ledger/test_backfill.py
@pytest.mark.more
async def test_a_backlog_keeps_its_rate_beside_live_events_and_its_minutes_balance(
    kafka: str, log: Path
) -> None:
    async with collected_stream(kafka, log) as stream, collected_stream(kafka, log) as other_stream:
        port = free_port()
        orders_pipe = stream.pipe(backfill={"rate": f"{RATE}/s", "after": "1m"})
        await stream.put(range(BACKLOG), timestamp_ms=round(time.time() * 1000) - OLD_MS)
        await stream.publish(orders_pipe)
        await stream.publish(
            Pipe.model_validate(
                {
                    "pipe": "live",
                    "source": {"kind": "kafka", "bootstrap": kafka, "topic": other_stream.source},
                    "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
                }
            )
        )
        await stream.start("normalize")
        await stream.start("observe", observe_port=port, observe_settle_s=1, observe_live_interval_s=0.2)
        await stream.start("collect")
        progress_body = await body_when(
            port, "orders", lambda body: (body["now"]["source"] or {}).get("done")
        )
        source = progress_body["now"]["source"]
        assert source["backfill"]
        assert source["done"] + source["remaining"] == BACKLOG
        await stream.put(range(BACKLOG, BACKLOG + LIVE))
        await stream.put(range(LIVE), topic=other_stream.source)

        raw = await stream.read(stream.topics.raw, lambda records: len(records) == BACKLOG + 2 * LIVE)
        records_by_pipe = {
            name: [record for record in raw if fields(record)["hifi_pipe"] == name]
            for name in (b"orders", b"live")
        }
        backfill_records = [record for record in records_by_pipe[b"orders"] if ORIGIN in fields(record)]
        live_records = [record for record in records_by_pipe[b"orders"] if ORIGIN not in fields(record)]
        assert numbers(backfill_records) == [*range(BACKLOG)]
        assert numbers(live_records) == [*range(BACKLOG, BACKLOG + LIVE)]
        assert not any(ORIGIN in fields(record) for record in records_by_pipe[b"live"])
        assert most_in_a_second([record.timestamp for record in backfill_records]) <= RATE * 1.3
        last_ms = max(record.timestamp for record in backfill_records)
        assert max(record.timestamp for record in records_by_pipe[b"live"]) < last_ms, (
            "another pipe waits for no backfill"
        )

        normalized = await stream.read(
            stream.topics.normalized, lambda records: len(records) == BACKLOG + 2 * LIVE
        )
        origins = [fields(record).get(ORIGIN) for record in normalized]
        assert origins.count(BACKFILL) == BACKLOG, "every topic has the fact"

        final_body = await body_when(port, "orders", lambda body: not body["now"]["source"]["backfill"])
        source = final_body["now"]["source"]
        assert (source["done"], source["remaining"]) == (BACKLOG + LIVE, 0)
        minutes = await body_when(
            port,
            "orders/minutes?last=60",
            lambda body: sum(minute["in"] for minute in body["minutes"]) == BACKLOG + LIVE,
        )
        assert sum(minute["backfill"] for minute in minutes["minutes"]) == BACKLOG
        assert sum(minute["lost"] for minute in minutes["minutes"]) == 0
        assert sum(minute["in_flight"] for minute in minutes["minutes"]) == BACKLOG + LIVE, (
            "enrich does not run"
        )


@pytest.mark.more
async def test_a_backfill_yields_while_a_stage_is_late_and_speeds_up_again(kafka: str, log: Path) -> None:
    async with collected_stream(kafka, log) as stream:
        port = free_port()
        await stream.put(range(20_000), timestamp_ms=round(time.time() * 1000) - OLD_MS)
        await stream.publish(stream.pipe(backfill={"rate": f"{RATE}/s"}))
        normalize, _ = await stream.start("normalize")
        await stream.start("observe", observe_port=port, observe_live_interval_s=0.2)
        await stream.start("collect")

        async def source(accept: Any) -> None:
            await body_when(
                port, "orders", lambda body: body["now"]["source"] and accept(body["now"]["source"])
            )

        # On a busy machine scarce CPU holds it back, too, but not below a fifth.
        await source(lambda source: source["late"] != "normalize" and source["limit_per_s"] > RATE * 0.15)
        await stream.kill(normalize)
        await source(lambda source: source["late"] == "normalize" and source["limit_per_s"] < RATE * 0.05)
        await stream.start("normalize")
        await source(lambda source: source["late"] != "normalize" and source["limit_per_s"] > RATE * 0.06)
