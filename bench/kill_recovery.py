"""Seconds from SIGKILL of each service to events flowing again, in one warm mesh under load."""

import asyncio
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from cases import Case, in_scene, scene
from mesh_row import WARM_UP_S, Keep, attempt

from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.verify import Comparison, RequestLogReader, SentEvent, read_send_log
from hifi_cli.rate.event_load import EventLoad
from hifi_infra.mesh.mesh import processes

VICTIMS = ("ingest-1", "normalize-1", "enrich-1", "egest-1", "retrier-1", "observe-1", "broker-1")
RATE, SECONDS, BEFORE_S = 100.0, 14.0, 4.0
LIMIT_S = 600.0


def restart(keep: Keep) -> None:
    """One instance of each service, so that no other instance takes over. About 4 minutes."""
    attempt(
        keep,
        "SIGKILL",
        lambda: in_scene(
            lambda folder: scene(Case("real-time"), folder), lambda made: _each(made, keep), LIMIT_S
        ),
    )


async def _each(made: LoadTest, keep: Keep) -> None:
    await made.start()
    print("ready; warming up", flush=True)
    books, first = RequestLogReader(made.workspace.request_log), 0
    for name in (None, *VICTIMS):
        seconds = SECONDS if name else WARM_UP_S
        count = round(RATE * seconds)
        found = await _round(made, books, name, (first, count))
        first += count
        if name:
            print(name, found, flush=True)
            keep(name, found)


async def _round(
    made: LoadTest, books: RequestLogReader, name: str | None, span: tuple[int, int]
) -> Mapping[str, Any]:
    first, count = span
    expected: Mapping[str, Deliveries] = await asyncio.to_thread(
        EventLoad().write, made.workspace, count, first
    )
    sending = asyncio.create_task(made.send(RATE))
    killed_ns = 0
    try:
        if name:
            await asyncio.sleep(BEFORE_S)
            killed_ns = time.time_ns()
            await processes(made.mesh)[name].kill()
        await sending
    finally:
        sending.cancel()
    sends = read_send_log(made.workspace.send_log)
    verdict = await made.wait_for_arrivals(books, sends, expected)
    await asyncio.sleep(3)  # until the mesh has looked at all of its processes
    await made.mesh.wait_ready(90)
    return flowing(name or "", sends, expected, verdict, killed_ns)


def flowing(
    name: str,
    sends: Mapping[str, SentEvent],
    expected: Mapping[str, Deliveries],
    verdict: Comparison,
    killed_ns: int,
) -> dict[str, Any]:
    """The effects of one kill. Pure."""
    due_later = [
        at for (_, event), at in verdict.arrived.items() if event in sends and sends[event].due_ns > killed_ns
    ]
    times = sorted(verdict.arrived.values())
    pauses = [(late - early) / 1e9 for early, late in pairwise(times) if late > killed_ns]
    accepted = [event for event, one in sends.items() if one.accepted]
    return {
        "killed": name,
        "rate": RATE,
        "flowing_again_s": round((min(due_later) - killed_ns) / 1e9, 2) if due_later else None,
        "longest_pause_s": round(max(pauses), 2) if pauses else None,
        "not_accepted": len(sends) - len(accepted),
        "lost": sum((path, event) not in verdict.arrived for event in accepted for path in expected[event]),
        "duplicates": verdict.duplicates,
        "wrong": verdict.mismatched + verdict.unknown,
    }
