"""A step in two real meshes: each event is in one result of one colour, and what may be a part is marked."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import orjson
import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.colours.coloured_meshes import Arrivals, coloured_meshes, operations_of, until

from hifi.control.action import ActionKind
from hifi.delivery.colours import NAMES, WHOLE_SHARE, other
from hifi.kafka.topic_follower import PartitionFollower
from hifi.kafka.topics import ControlTopics, Topics
from hifi.kafka.visit import read_topics
from hifi.record.cloudevents.timestamps import format_us, parse_us
from hifi.record.identity import identity
from hifi.runtime.clock import now_us
from hifi_infra.colours.coloured_stream import ColouredStream
from hifi_state.fold.colour_times import ColourTimes
from hifi_state.fold.progress import Progress

WINDOW_MS = 20_000
CARRIERS, PARTITIONS = 3, 2
PIPES = """
pipe: flights
source: {keys: [{env: HELLO_KEY}], formats: [json], id: id, time: at, partition_key: carrier}
enrich: {fields: {carrier: string, number: int}}
slo: {p95: 600s}
destinations: [{name: d, url: URL}]
---
pipe: carrier-delays
source:
  kind: step
  from: flights
  key: {carrier: string}
  window: {tumbling: 20s}
  lateness: 40s
  fields: {n: count(*), numbers: sum(number), squares: sum(number * number)}
slo: {p95: 600s}
destinations: [{name: d, url: URL}]
"""
Key = tuple[int, str]
"""Start of a window in milliseconds since 1970 UTC, and the carrier."""
Figures = tuple[int, int, int]
"""Count, sum and sum of squares of the numbers of the events."""


class Flights:
    """Sends events through the front, in their order."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/v1/pipes/flights/events"
        self.sent: dict[int, Key] = {}
        """Number of an event to where it counts."""
        self.ended = False

    async def send(self) -> None:
        """Send until `ended`."""
        async with aiohttp.ClientSession(headers={"authorization": "Bearer secret"}) as session:
            while not self.ended:
                number, at_us = len(self.sent), now_us() // 1000 * 1000
                carrier = f"C{number % CARRIERS}"
                data = {
                    "id": f"e{number}",
                    "carrier": carrier,
                    "number": number,
                    "at": format_us(at_us).decode(),
                }
                await self._send_until_accepted(session, data)
                at_ms = at_us // 1000
                self.sent[number] = at_ms - at_ms % WINDOW_MS, carrier
                await asyncio.sleep(0.1)

    async def _send_until_accepted(self, session: aiohttp.ClientSession, data: Mapping[str, Any]) -> None:
        """Send an event again, as the same one, while ingest is overloaded."""
        while True:
            async with session.post(self._url, json=data) as answer:
                if answer.status == HTTPStatus.ACCEPTED:
                    return
                assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE, await answer.text()
            await asyncio.sleep(0.1)

    async def through(self, windows: int) -> int:
        """Wait until the middle of a later window; returns the start of that window."""
        start_ms = (now_us() // 1000 // WINDOW_MS + windows) * WINDOW_MS
        await asyncio.sleep(max(0, start_ms + WINDOW_MS // 2 - now_us() // 1000) / 1000)
        return start_ms


class ColourLogs:
    """What the topics of one colour hold."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self.events: dict[Key, list[int]] = {}
        self.results: dict[Key, dict[str, Any]] = {}
        self.ids: list[str] = []

    async def read(self) -> None:
        """Read `raw`."""
        self.events, self.results, self.ids = defaultdict(list), {}, []
        records: list[ConsumerRecord] = []
        partitions = [TopicPartition(Topics("s").raw, number) for number in range(PARTITIONS)]
        await PartitionFollower(self._kafka, "test", dict.fromkeys(partitions, records.append)).read_once()
        for record in records:
            body = orjson.loads(record.value)
            if identity(record.headers).pipe == "flights":
                at_ms = parse_us(body["at"].encode()) // 1000
                self.events[at_ms - at_ms % WINDOW_MS, body["carrier"]].append(body["number"])
            else:
                start_ms = parse_us(body["window_start"].encode()) // 1000
                assert self.results.setdefault((start_ms, body["carrier"]), body) is body, "once"
                self.ids.append(dict(record.headers)["ce_id"].decode())

    @property
    def expected(self) -> dict[Key, Figures]:
        """What an oracle computes over the log."""
        return {key: figures(numbers) for key, numbers in self.events.items()}

    @property
    def figures(self) -> dict[Key, Figures]:
        """The same as the step says."""
        return {key: (body["n"], body["numbers"], body["squares"]) for key, body in self.results.items()}

    async def progress(self) -> Progress:
        """The newest record on `folds`."""
        newest: list[bytes] = []
        await read_topics(
            self._kafka, "test", {Topics("s").folds: lambda _, value, __: newest.append(value or b"")}
        )
        return Progress.decode(newest[-1])


def figures(numbers: list[int]) -> Figures:
    return len(numbers), sum(numbers), sum(number * number for number in numbers)


async def stated_times(stream: ColouredStream) -> Mapping[str, ColourTimes]:
    """Colour to what it has stated last."""
    times: dict[str, ColourTimes] = {}

    def take(key: bytes | None, value: bytes | None, _: int) -> None:
        assert key is not None
        times[key.decode().rpartition("/")[2]] = ColourTimes.decode(orjson.loads(value or b""))

    topic = ControlTopics(f"{stream.plan.stream}-control").step_times
    await read_topics(stream.cluster.bootstrap, "test", {topic: take})
    return times


@pytest.mark.more
@pytest.mark.timeout(1500)
async def test_over_a_shift_and_back_each_event_is_in_one_result_and_parts_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "HIFI_STATE_INTERVAL_S": "1",
        "HIFI_STATE_MASTER": "local[1]",
        "HIFI_STATE_DRIVER_MEMORY": "768m",
    }.items():
        monkeypatch.setenv(name, value)

    def write_pipes(pipes: Path, url: str) -> None:
        for text in PIPES.replace("URL", url).split("---"):
            (pipes / f"{text.split()[1]}.yaml").write_text(text)

    async with coloured_meshes(tmp_path, write_pipes) as (stream, arrivals):

        async def have_begun() -> bool:
            """Whether both colours know that no event from before their begin will count."""
            times = await stated_times(stream)
            return len(times) == 2 and all(
                (colour.until_ms or 0) > colour.since_ms + WINDOW_MS for colour in times.values()
            )

        await until(have_begun)
        flights, operations = Flights(stream.fronts[0].url), operations_of(stream)
        sending = asyncio.create_task(flights.send())
        shifted_ms = []
        for name in ("green", "blue"):
            shifted_ms.append(await flights.through(4))
            shares = {name: WHOLE_SHARE, other(name): 0}
            await operations.shift(shares, "test", kind=ActionKind.RECOVER)
        await flights.through(4)
        flights.ended = True
        await sending
        logs = {name: ColourLogs(stream.meshes[name].kafka) for name in NAMES}

        async def is_complete() -> bool:
            """Whether all events are in results."""
            for colour in logs.values():
                await colour.read()
            counts = [n for colour in logs.values() for n, *_ in colour.figures.values()]
            return sum(counts) >= len(flights.sent)

        await until(is_complete)
        ids = [result_id for colour in logs.values() for result_id in colour.ids]
        await until(lambda: arrived(arrivals).keys() >= set(ids))
        accounts = {name: (await colour.progress()).account for name, colour in logs.items()}
    for name, colour in logs.items():
        assert colour.figures == colour.expected, f"{name}: each event of its log is in one result"
        assert accounts[name].missing == (0, 0)
        read = [tally.events for verdicts in accounts[name].read.values() for tally in verdicts.values()]
        assert sum(read) == sum(map(len, colour.events.values()))
    assert len(set(ids)) == len(ids), "no result is a repetition of one of the other colour"
    assert all(arrived(arrivals)[result_id] == 1 for result_id in ids)
    require_sums(flights.sent, logs)
    require_marks(logs, shifted_ms)


def arrived(arrivals: Arrivals) -> Counter[str]:
    """Id of an event to how often it has arrived, without the encoding of HTTP headers."""
    return Counter({unquote(event_id): count for event_id, count in arrivals.counts.items()})


def require_sums(sent: Mapping[int, Key], logs: Mapping[str, ColourLogs]) -> None:
    """The parts of both colours add up to what an oracle computes over all events."""
    oracle: dict[Key, list[int]] = defaultdict(list)
    for number, key in sent.items():
        oracle[key].append(number)
    merged: dict[Key, Figures] = {}
    for colour in logs.values():
        for key, (count, numbers, squares) in colour.figures.items():
            other_count, other_numbers, other_squares = merged.get(key, (0, 0, 0))
            merged[key] = count + other_count, numbers + other_numbers, squares + other_squares
    assert merged == {key: figures(numbers) for key, numbers in oracle.items()}


def require_marks(logs: Mapping[str, ColourLogs], shifted_ms: Sequence[int]) -> None:
    """Windows with events in both logs are marked in both, and those far from the shifts are not."""
    starts = {name: {start_ms for start_ms, _ in colour.events} for name, colour in logs.items()}
    marked = {
        name: {start_ms for (start_ms, _), body in colour.results.items() if body.get("partial")}
        for name, colour in logs.items()
    }
    print(f"shifts in the windows from {shifted_ms}, with events {starts}, marked {marked}")
    shared = starts["blue"] & starts["green"]
    assert set(shifted_ms) <= shared, "a shift is within a window"
    assert all(marked[name] >= shared for name in NAMES)
    near = range(shifted_ms[0] - WINDOW_MS, shifted_ms[1] + 2 * WINDOW_MS)
    assert all(start_ms in near for name in NAMES for start_ms in marked[name])
    assert len([start_ms for start_ms in starts["blue"] - marked["blue"] if start_ms < shifted_ms[0]]) >= 2
    assert starts["green"] - marked["green"], "green has had windows alone"
