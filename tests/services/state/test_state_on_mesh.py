"""Steps on a real mesh: each result is delivered once, and late events are dead letters, also after kill -9."""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination

from hifi.check.pipe_check import check_folder
from hifi.delivery.dead_letters.letter import DeadLetterFilter
from hifi.delivery.dead_letters.reader import letters
from hifi.record.cloudevents.timestamps import format_us
from hifi.record.headers import STEP as STEP_HEADER
from hifi.runtime.clock import now_us
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(900), pytest.mark.more]
WITHIN_S = 500
STEPS = 2
WRITE_KEY, FARES_KEY = "write-key", "fares-key"
EVENTS = 600
CARRIERS = 7
APART_S = 10
"""From the time of one event to that of the next; the watermark rises with the time that a slow machine takes, too."""
WINDOW_S = 600
LATE = frozenset(range(400, EVENTS, 40))
"""Numbers of the events that are an hour late."""
FARES_S = 300
"""Between the fares of a carrier."""
FARED = range(CARRIERS - 2)
"""Numbers of the carriers that have fares."""
KILLS = {150: "normalize", 300: "enrich", 450: "state"}
"""Number of an event, and the service that is killed after it."""
FLIGHTS = """
pipe: flights
source: {keys: [{env: PIPE_WRITE_KEY}], formats: [json], id: id, time: at, partition_key: carrier}
enrich: {fields: {carrier: string, delay: int}}
destinations: [{name: d, url: URL/flights, format: json}]
"""
STEP = """
pipe: carrier-delays
source:
  kind: step
  from: flights
  key: {carrier: string}
  window: {tumbling: 10m}
  lateness: 200s
  fields: {flights: count(*), late: count_if(delay >= 15), worst: max(delay)}
destinations: [{name: d, url: URL/results, format: json}]
"""
FARES = """
pipe: fares
source: {keys: [{env: FARES_WRITE_KEY}], formats: [json], id: id, time: at, partition_key: carrier}
enrich: {fields: {carrier: string, fare: int}}
destinations: [{name: d, url: URL/fares, format: json}]
"""
JOIN = """
pipe: flights-with-fares
source:
  kind: step
  from: flights
  key: {carrier: string}
  fields: {delay: delay}
  join: {with: fares, within: 5m, fields: {fare: fare}, unmatched: keep}
  lateness: 200s
destinations: [{name: d, url: URL/pairs, format: json}]
"""


def flights(start_s: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Time in seconds since 1970 UTC and data of each event, some out of order; the last ones close the windows."""
    chance = random.Random(5)
    for number in range(EVENTS):
        at_s = start_s + number * APART_S - (3600 if number in LATE else chance.randrange(5 * APART_S))
        yield at_s, _flight(number, f"C{chance.randrange(CARRIERS)}", chance.randrange(-5, 40), at_s)
    end_s = start_s + EVENTS * APART_S
    for carrier in range(CARRIERS):
        at_s = end_s - end_s % WINDOW_S + 3 * WINDOW_S
        yield at_s, _flight(EVENTS + carrier, f"C{carrier}", 0, at_s)


def fares(start_s: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Time in seconds since 1970 UTC and data of each fare, in order; the last ones come with those of the flights."""
    end_s = start_s + EVENTS * APART_S
    for at_s in (*range(start_s, end_s, FARES_S), end_s - end_s % WINDOW_S + 3 * WINDOW_S):
        for carrier in FARED:
            name, at = f"f{at_s - start_s}-{carrier}", format_us(at_s * 1_000_000).decode()
            yield at_s, {"id": name, "carrier": f"C{carrier}", "fare": (at_s - start_s) // FARES_S, "at": at}


def pairs_of(start_s: int) -> dict[tuple[str, str | None], tuple[int, int | None]]:
    """Delay and fare of each pair, by ids of flight and fare; and of the flights without a fare."""
    pairs: dict[tuple[str, str | None], tuple[int, int | None]] = {}
    for number, (at_s, flight) in enumerate(flights(start_s)):
        if number < EVENTS and number not in LATE:
            partners = [
                fare
                for fare_s, fare in fares(start_s)
                if fare["carrier"] == flight["carrier"] and abs(fare_s - at_s) <= 300
            ]
            for fare in partners:
                pairs[flight["id"], fare["id"]] = flight["delay"], fare["fare"]
            if not partners:
                pairs[flight["id"], None] = flight["delay"], None
    return pairs


def _flight(number: int, carrier: str, delay: int, at_s: int) -> dict[str, Any]:
    return {
        "id": f"e{number}",
        "carrier": carrier,
        "delay": delay,
        "at": format_us(at_s * 1_000_000).decode(),
    }


def results_of(start_s: int) -> dict[tuple[str, str], dict[str, Any]]:
    """The results by end of the window and carrier."""
    delays: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (at_s, data) in enumerate(flights(start_s)):
        if number < EVENTS and number not in LATE:
            end_us = (at_s - at_s % WINDOW_S + WINDOW_S) * 1_000_000
            delays[format_us(end_us).decode()[:19], data["carrier"]].append(data["delay"])
    return {
        key: {
            "flights": len(values),
            "late": sum(value >= 15 for value in values),
            "worst": max(values),
        }
        for key, values in delays.items()
    }


async def test_steps_of_a_mesh_deliver_each_result_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPE_WRITE_KEY", WRITE_KEY)
    monkeypatch.setenv("FARES_WRITE_KEY", FARES_KEY)
    folder = tmp_path / "pipes"
    folder.mkdir()
    bodies: dict[str, list[dict[str, Any]]] = defaultdict(list)

    async def take(request: ReceivedRequest) -> bytes:
        bodies[request.target.rpartition("/")[2]].append(orjson.loads(request.body))
        return OK

    async with destination(take) as receiver:
        for text in (FLIGHTS, STEP, FARES, JOIN):
            name = text.split()[1]
            (folder / f"{name}.yaml").write_text(text.replace("URL", receiver.url))
        pipes, problems = check_folder(folder, "auto", sql=False)
        assert problems == []
        env = {"HIFI_STATE_INTERVAL_S": "0.3", "HIFI_STATE_MASTER": "local[1]"}
        plan = Plan(tmp_path / "data", port=free_port(), partitions=2, scale={"state": 1}, env=env)
        mesh = Mesh(plan)
        mesh.prepare()
        await mesh.start(pipes)
        try:
            await mesh.wait_ready(WITHIN_S)
            await _until_taken_over(plan.data / "logs" / "state-1.log")
            start_s = now_us() // 1_000_000 - 6 * 3600
            await _send(mesh, start_s)
            expected, expected_pairs = results_of(start_s), pairs_of(start_s)
            async with asyncio.timeout(WITHIN_S):
                while not bodies["results"]:
                    await asyncio.sleep(0.05)
                await _kill(mesh, "state")
                while (
                    len(bodies["results"]) < len(expected)
                    or len(bodies["flights"]) < EVENTS + CARRIERS
                    or len(_pairs(bodies["pairs"])) < len(expected_pairs)
                ):
                    await asyncio.sleep(0.2)
            late_letters = {
                (letter.text("ce_id"), letter.text(STEP_HEADER) == "flights-with-fares")
                async for letter in letters(mesh.bootstrap, mesh.topics, DeadLetterFilter(reason="late"))
            }
        finally:
            await mesh.stop()
    results = [
        ((body.pop("window_end")[:19], body.pop("carrier")), body)
        for body in bodies["results"]
        if body.pop("window_start")
    ]
    assert dict(results) == expected
    assert len(results) == len(expected)
    pairs = _pairs(bodies["pairs"])
    assert dict(pairs) == expected_pairs
    assert len(pairs) == len(expected_pairs)
    assert sum(fare is None for _, fare in expected_pairs) > 50
    assert late_letters == {(f"e{number}", is_of_join) for number in LATE for is_of_join in (False, True)}
    assert sorted(body["id"] for body in bodies["flights"]) == sorted(
        f"e{number}" for number in range(EVENTS + CARRIERS)
    )


def _pairs(
    bodies: Sequence[dict[str, Any]],
) -> list[tuple[tuple[str, str | None], tuple[int, int | None]]]:
    """Those of the flights before the last ones, which may be sure or not."""
    return [
        ((body["event"], body["with"]), (body["delay"], body["fare"]))
        for body in bodies
        if int(body["event"][1:]) < EVENTS
    ]


async def _until_taken_over(log: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        while log.read_text().count("step-taken-over") < STEPS:
            await asyncio.sleep(0.2)


async def _send(mesh: Mesh, start_s: int) -> None:
    async with aiohttp.ClientSession() as session:
        remaining_fares = deque(fares(start_s))
        for number, (_, flight) in enumerate(flights(start_s)):
            while remaining_fares and (
                number >= EVENTS or remaining_fares[0][0] <= start_s + number * APART_S
            ):
                await _accepted(session, mesh, "fares", FARES_KEY, remaining_fares.popleft()[1])
            await _accepted(session, mesh, "flights", WRITE_KEY, flight)
            if number in KILLS:
                await _kill(mesh, KILLS[number])


async def _accepted(
    session: aiohttp.ClientSession, mesh: Mesh, pipe: str, key: str, data: dict[str, Any]
) -> None:
    """Send an event, again if a slow machine keeps Kafka from answering."""
    url, headers = f"{mesh.plan.url}/v1/pipes/{pipe}/events", {"authorization": f"Bearer {key}"}
    while True:
        async with session.post(url, json=data, headers=headers) as answer:
            if answer.status == 202:
                return
            assert answer.status in (429, 503), await answer.text()
        await asyncio.sleep(0.5)


async def _kill(mesh: Mesh, service: str) -> None:
    [instance] = mesh.instances[service]
    await instance.process.kill()
