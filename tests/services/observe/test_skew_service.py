"""On a real Kafka: the buckets of watched fields are counted once each, and a drift is an alarm that is shown."""

import asyncio
import random
from collections import Counter
from typing import Any

import aiohttp
from tests.support.observe.stream_double import new_stream, pipe
from tests.support.observe_principal import VIEWER

from hifi.pipe.model import Pipe
from hifi.pipe.watched_field import watch_id
from hifi.record.headers import TO, WATCH
from hifi.runtime.clock import now_us

SETTINGS = {
    "observe_skew_window_minutes": 10,
    "observe_skew_reference_minutes": 60,
    "observe_skew_events": 100,
}
EVENTS = 120
"""Of a minute."""
FIELDS: dict[str, Any] = {
    "enrich": {"fields": {"score": "double", "airline": "string"}},
    "watch": [{"field": "score", "bounds": [0.2, 0.5]}, {"field": "airline", "values": 2}],
}
WATCHED = pipe("flights", **FIELDS)


async def ask(url: str, path: str) -> Any:
    async with aiohttp.ClientSession(headers=VIEWER) as session, session.get(url + path) as answer:
        return await answer.json(content_type=None)


async def until_closed(url: str, minutes: list[int], events: int) -> list[dict[str, Any]]:
    """The minutes once all of them have all their events."""
    rows: list[dict[str, Any]] = []
    async with asyncio.timeout(120):
        while len(rows) < len(minutes) or any(minute["in"] != events for minute in rows):
            body = await ask(url, f"/api/v1/pipes/flights/minutes?from={minutes[0]}&to={minutes[-1]}")
            rows = body["minutes"]
            await asyncio.sleep(0.05)
    return rows


def texts(pipe: Pipe, chance: random.Random, count: int, weights: tuple[int, int, int]) -> list[bytes]:
    prefix = watch_id(pipe.watch)
    scores = chance.choices("012", weights, k=count)
    return [f"{prefix}:{score},{chance.choice(['LH', 'AF', 'BA'])}".encode() for score in scores]


def counted(rows: list[dict[str, Any]]) -> list[dict[str, int]]:
    """The counts of both fields over some minutes."""
    total = [Counter[str](), Counter[str]()]
    for row in rows:
        for revision, watch, position, counts in row["watched"]:
            assert (revision, watch) == (1, watch_id(WATCHED.watch))
            total[position].update(counts)
    return [dict(counts) for counts in total]


def expected(watch_texts: list[bytes]) -> list[dict[str, int]]:
    names = [watch.decode().partition(":")[2].split(",") for watch in watch_texts]
    return [dict(Counter(position)) for position in zip(*names, strict=True)]


async def test_a_drift_is_an_alarm_with_both_distributions_and_a_restart_changes_no_count(kafka: str) -> None:
    chance = random.Random(5)
    async with new_stream(kafka, WATCHED) as stream:
        last_minute = now_us() // 60_000_000 - 2
        minutes = list(range(last_minute - 18, last_minute + 1))
        watch_texts: list[bytes] = []
        for minute in minutes:
            weights = (60, 30, 10) if minute < last_minute - 8 else (10, 30, 60)
            batch = texts(WATCHED, chance, EVENTS, weights)
            fields = await stream.events(0, minute, EVENTS, watch=batch)
            # A restart of enrich writes some events again.
            repeated_events = [
                headers | {TO: b"crm", WATCH: batch[index]} for index, headers in enumerate(fields[:40])
            ]
            await stream.write("enriched", 0, repeated_events)
            watch_texts += batch
        await stream.commit(0)
        async with stream.observing(**SETTINGS) as (_, url):
            counts_before = counted(await until_closed(url, minutes, EVENTS))
        assert counts_before == expected(watch_texts)
        late_texts = texts(WATCHED, chance, 10, (1, 1, 1))
        await stream.events(0, minutes[0], 10, watch=late_texts)
        await stream.commit(0)
        async with stream.observing(**SETTINGS) as (_, url):
            await check_drift(url)
            async with asyncio.timeout(120):
                while (await ask(url, f"/api/v1/pipes/flights/minutes/{minutes[0]}"))["in"] != EVENTS + 10:
                    await asyncio.sleep(0.05)
            rows = (await ask(url, f"/api/v1/pipes/flights/minutes?from={minutes[0]}&to={last_minute}"))[
                "minutes"
            ]
            assert counted(rows) == expected(watch_texts + late_texts)


async def check_drift(url: str) -> None:
    score: dict[str, Any] = {"state": None}
    airline: dict[str, Any] = {}
    async with asyncio.timeout(120):
        while score["state"] != "drifted":
            fields = (await ask(url, "/api/v1/pipes/flights/skew"))["fields"]
            score, airline = fields or (score, airline)
            await asyncio.sleep(0.05)
    assert airline["state"] == "steady"
    assert [row["label"] for row in score["buckets"]] == [
        "below 0.2",
        "0.2 to 0.5",
        "from 0.5",
        "missing or null",
    ]
    high_bucket = score["buckets"][2]
    assert high_bucket["reference_share"] < 0.2
    assert high_bucket["window_share"] > 0.5
    drifts: list[dict[str, Any]] = []
    async with asyncio.timeout(120):
        while not drifts:
            alarms = (await ask(url, "/api/v1/alarms"))["active"]
            drifts = [alarm for alarm in alarms if alarm["kind"] == "skew"]
            await asyncio.sleep(0.05)
    assert [(alarm["pipe"], alarm["subject"], alarm["runbook"]) for alarm in drifts] == [
        ("flights", "score", "/runbooks#skew")
    ]
    assert "the distribution of score" in drifts[0]["cause"]
