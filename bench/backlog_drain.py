"""Drain of the backlog of a destination with a configured rate after it refused events, and its cost.

Hours of backlog are made within a minute: tiers of seconds instead of hours (HIFI_TIERS), so that tens of thousands of
deliveries have been through every tier and wait in the last one, as after hours of refusals with the usual tiers.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from cases import Case, make_load_test, with_load_test
from mesh_row import WARM_UP_S, Keep, attempt

from hifi.pipe.model import Pipe
from hifi.runtime.errors import Retryable
from hifi_cli.demo.expected import CANCELLATIONS, DEPARTURES, Deliveries
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.report import quantiles
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.rate.event_load import EventLoad
from hifi_infra.process.process import Process

HERE = Path(__file__).parent
TIERS = "2s,5s,10s"
EVENTS, FAST, SLOW = 24_000, 600.0, 100.0
RATE = 500.0
"""Configured rate of the destination, requests a second."""
FRESH_S = 20.0
LIMIT_S = 480.0
PATHS = ("/away", "/other")


@dataclass(slots=True)
class Account:
    """Sent events, expected deliveries and arrivals."""

    made: LoadTest
    sent: dict[str, SentEvent] = field(default_factory=dict)
    expected: dict[str, Deliveries] = field(default_factory=dict)
    verdict: Comparison = field(default_factory=Comparison)
    _first: int = 0

    async def send(self, rate: float, seconds: float) -> list[str]:
        """Send at a fixed rate without waiting for answers; returns the ids."""
        count = round(rate * seconds)
        deliveries = await asyncio.to_thread(_write, self.made, count, self._first)
        self._first += count
        self.expected |= deliveries
        await self.made.send(rate)
        self.sent |= read_send_log(self.made.workspace.send_log)
        return list(deliveries)

    async def read(self, log_reader: RequestLogReader) -> None:
        """Read new arrivals."""
        await self.made.count()
        for arrival in log_reader.read():
            self.verdict.add(arrival, self.expected.get(arrival.id))

    def missing(self, names: Iterable[str], paths: Iterable[str] = PATHS) -> int:
        """Expected deliveries that have not arrived."""
        accepted_ids = [name for name in names if name in self.sent and self.sent[name].accepted]
        return sum((path, name) not in self.verdict.arrived for name in accepted_ids for path in paths)

    def lag_ms(self, names: Iterable[str], path: str) -> dict[str, float | None]:
        """Lags of these events at a path, from the moment they were due."""
        arrived = self.verdict.arrived
        return quantiles(
            (arrived[path, name] - self.sent[name].due_ns) / 1e6 for name in names if (path, name) in arrived
        )


def backlog(keep: Keep) -> None:
    """Takes about 4 minutes, most of them warm-up, refusals and draining."""
    tiers_before = os.environ.get("HIFI_TIERS")
    os.environ["HIFI_TIERS"] = TIERS  # of the topics and of every service
    name = f"{EVENTS:,} deliveries waited"
    try:
        attempt(
            keep,
            name,
            lambda: with_load_test(
                _make_load_test, lambda load_test: _measure(load_test, keep, name), limit_s=LIMIT_S
            ),
        )
    finally:
        if tiers_before is None:
            del os.environ["HIFI_TIERS"]
        else:
            os.environ["HIFI_TIERS"] = tiers_before


def shape(pipes: list[Pipe]) -> list[Pipe]:
    """The demo's pipe with two destinations that receive every event."""
    [pipe] = pipes
    pattern = pipe.destinations[0].model_dump(mode="json", exclude_defaults=True) | {"when": None}
    base_url = pattern["url"].rpartition("/")[0]
    away_settings = {"name": "away", "url": f"{base_url}/away", "rate": RATE, "breaker": {"probe": "1s"}}
    other_settings = {"name": "other", "url": f"{base_url}/other"}
    pipe_json = pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return [
        Pipe.model_validate(pipe_json | {"destinations": [pattern | away_settings, pattern | other_settings]})
    ]


def _make_load_test(folder: Path) -> LoadTest:
    return make_load_test(Case("real-time"), folder)


def _write(load_test: LoadTest, count: int, first: int) -> dict[str, Deliveries]:
    deliveries = EventLoad().write(load_test.workspace, count, first)
    return {
        name: dict.fromkeys(
            PATHS,
            event_deliveries[DEPARTURES]
            if DEPARTURES in event_deliveries
            else event_deliveries[CANCELLATIONS],
        )
        for name, event_deliveries in deliveries.items()
    }


async def _measure(load_test: LoadTest, keep: Keep, name: str) -> None:
    workspace, account = load_test.workspace, Account(load_test)
    workspace.request_log.unlink(missing_ok=True)
    argv = [
        sys.executable,
        str(HERE / "refusing_destination.py"),
        str(workspace.destination_port),
        str(workspace.request_log),
    ]
    load_test.destination = Process("the destination", argv, log=workspace.data / "logs" / "destination.log")
    await load_test.destination.start()
    await load_test.start(shape)
    log_reader = RequestLogReader(workspace.request_log)
    print("ready; warming up", flush=True)
    await account.send(300, WARM_UP_S)
    fresh_before = await account.send(SLOW, FRESH_S)
    await _until(account, log_reader, account.expected, PATHS, 60)
    lags_before = {path: account.lag_ms(fresh_before, path) for path in PATHS}
    print(f"before: p95 {lags_before}; now {EVENTS:,} events are refused", flush=True)
    await _command(workspace.destination_port, "/shut")
    refused_ids = await account.send(FAST, EVENTS / FAST)
    await _until(account, log_reader, account.expected, PATHS[1:], 90)
    waiting_count = (await load_test.waiting())["retrier"]
    missing_count = account.missing(refused_ids, PATHS[:1])
    print(
        f"{missing_count:,} deliveries are missing, {waiting_count:,} of them in retry topics; "
        "the destination recovers",
        flush=True,
    )
    await _command(workspace.destination_port, "/open")
    opened_ns = time.time_ns()
    while not _delivered_since(account.verdict, opened_ns):  # the breaker's next probe
        await asyncio.sleep(0.25)
        await account.read(log_reader)
    fresh_ids = await account.send(SLOW, FRESH_S)
    await account.read(log_reader)
    backlog_count = account.missing(refused_ids, PATHS[:1])
    print(f"fresh events are sent, {backlog_count:,} of the backlog are still to come", flush=True)
    await _until(account, log_reader, account.expected, PATHS, 180)
    await asyncio.sleep(1)
    await account.read(log_reader)
    verdict = account.verdict
    keep(
        name,
        {
            "tiers": TIERS,
            "configured": RATE,
            "fresh_rate": SLOW,
            "refused": missing_count,
            "in_retry_topics": waiting_count,
            "left_when_fresh_ended": backlog_count,
            "not_accepted": sum(not sent_event.accepted for sent_event in account.sent.values()),
            "lost": account.missing(account.expected),
            "wrong": verdict.duplicates + verdict.mismatched + verdict.unknown,
            **drained(_delivered_since(verdict, opened_ns), opened_ns),
            "before_ms": lags_before,
            "during_ms": {path: account.lag_ms(fresh_ids, path) for path in PATHS},
        },
    )


def drained(times: list[int], opened_ns: int) -> dict[str, float]:
    """Rate of the first 90 % of all deliveries since the destination recovered, and of its fullest second. Pure.

    Args:
        times: of the deliveries, ascending, nanoseconds.
        opened_ns: when it took deliveries again.
    """
    last_index = len(times) * 9 // 10
    seconds = (times[last_index] - times[0]) / 1e9
    fullest_count, start = 0, 0
    for end, time_ns in enumerate(times):
        while times[start] <= time_ns - 1_000_000_000:
            start += 1
        fullest_count = max(fullest_count, end - start + 1)
    return {
        "first_after_s": round((times[0] - opened_ns) / 1e9, 1),
        "per_second": round(last_index / seconds, 1) if seconds else 0.0,
        "fullest_second": fullest_count,
        "drained_s": round((times[-1] - times[0]) / 1e9, 1),
    }


def _delivered_since(verdict: Comparison, opened_ns: int) -> list[int]:
    return sorted(
        time_ns for (path, _), time_ns in verdict.arrived.items() if path == PATHS[0] and time_ns > opened_ns
    )


async def _until(
    account: Account,
    log_reader: RequestLogReader,
    names: Mapping[str, Any],
    paths: Iterable[str],
    within_s: float,
) -> None:
    """Wait for all deliveries; those that have not arrived in time count as lost."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        await account.read(log_reader)
        if not account.missing(names, paths):
            return
        await asyncio.sleep(0.5)


async def _command(port: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    if b" 204 " not in answer.split(b"\r\n")[0]:
        raise Retryable(f"the destination answered PUT {path} with {orjson.dumps(answer.decode())!r}")
