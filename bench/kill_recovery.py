"""Seconds from SIGKILL of each service to events flowing again, in one warm mesh under load."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cases import Case, make_load_test, with_load_test
from load_round import LoadRounds
from mesh_row import WARM_UP_S, Keep, attempt

from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.verify import Comparison, SentEvent
from hifi_infra.mesh.mesh import processes

VICTIMS = ("ingest-1", "normalize-1", "enrich-1", "egest-1", "retrier-1", "observe-1", "broker-1")
WITH_STANDBY = ("enrich-1", "normalize-1", "egest-1")
RATE, SECONDS, BEFORE_S = 100.0, 14.0, 4.0
LIMIT_S = 600.0


def standby(keep: Keep) -> None:
    """Two instances of enrich, normalize and egest: the other one takes over. About 3 minutes."""
    scale = {"observe": 1, "enrich": 2, "normalize": 2, "egest": 2}
    case = Case("real-time", plan={"scale": scale})
    attempt(
        keep,
        "SIGKILL with a standby",
        lambda: with_load_test(
            lambda folder: make_load_test(case, folder),
            lambda load_test: _kill_each(load_test, keep, WITH_STANDBY),
            LIMIT_S,
        ),
    )


def restart(keep: Keep) -> None:
    """One instance of each service, so that no other instance takes over. About 4 minutes."""
    attempt(
        keep,
        "SIGKILL",
        lambda: with_load_test(
            lambda folder: make_load_test(Case("real-time"), folder),
            lambda load_test: _kill_each(load_test, keep),
            LIMIT_S,
        ),
    )


async def _kill_each(load_test: LoadTest, keep: Keep, victims: Sequence[str] = VICTIMS) -> None:
    await load_test.start()
    print("ready; warming up", flush=True)
    rounds = LoadRounds(load_test)
    await rounds.run(RATE, WARM_UP_S)
    for name in victims:
        killed_ns = 0

        async def kill(name: str = name) -> None:
            nonlocal killed_ns
            await asyncio.sleep(BEFORE_S)
            killed_ns = time.time_ns()
            await processes(load_test.mesh)[name].kill()

        load_round = await rounds.run(RATE, SECONDS, kill)
        await asyncio.sleep(3)  # until the mesh has looked at all of its processes
        await load_test.mesh.wait_ready(90)
        report = flowing(name, load_round.sent, load_round.expected, load_round.verdict, killed_ns)
        print(name, report, flush=True)
        keep(name, report)


def flowing(
    name: str,
    sent_events: Mapping[str, SentEvent],
    expected: Mapping[str, Deliveries],
    verdict: Comparison,
    killed_ns: int,
) -> dict[str, Any]:
    """The effects of one kill. Pure."""
    due_later = [
        at_ns
        for (_, event), at_ns in verdict.arrived.items()
        if event in sent_events and sent_events[event].due_ns > killed_ns
    ]
    times = sorted(verdict.arrived.values())
    pauses = [(end_ns - start_ns) / 1e9 for start_ns, end_ns in pairwise(times) if end_ns > killed_ns]
    accepted_ids = [event for event, sent_event in sent_events.items() if sent_event.accepted]
    return {
        "killed": name,
        "rate": RATE,
        "flowing_again_s": round((min(due_later) - killed_ns) / 1e9, 2) if due_later else None,
        "longest_pause_s": round(max(pauses), 2) if pauses else None,
        "not_accepted": len(sent_events) - len(accepted_ids),
        "lost": sum(
            (path, event) not in verdict.arrived for event in accepted_ids for path in expected[event]
        ),
        "duplicates": verdict.duplicates,
        "wrong": verdict.mismatched + verdict.unknown,
    }
