"""Minutes that are easily slow: the first one, one with a rolling restart, and one with twice the rated load."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from cases import Case, make_load_test, with_load_test
from load_round import LoadRounds
from mesh_row import WARM_UP_S, Keep, attempt

from hifi.runtime.errors import Retryable
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.rate.rate_search import RateSearch
from hifi_infra.mesh.mesh import Mesh

FIRST_RATE, FIRST_S, SLICE_S = 500.0, 60.0, 10.0
ROLLING_RATE, ROLLING_S = 400.0, 600.0
ROLLED = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
RATING_STEP_S, RATING_STEPS, SLO_MS = 8.0, 10, 1000.0
OVERLOAD_S = 30.0
OVERLOAD_CONNECTIONS = 3_500
"""Enough for twice the rating with answers after half a second; ingest takes 4,096."""
LIMIT_S = 1200.0


def first_minute(keep: Keep) -> None:
    """500 single ev/s from the first second after ready, both triggers. About 4 minutes."""
    for trigger in ("real-time", "micro-batch"):
        _measure(keep, trigger, Case(trigger), _first_minute)


def rolling(keep: Keep) -> None:
    """400 single ev/s for ten minutes, while every instance of the mesh is replaced once. About 12 minutes."""
    scale = dict.fromkeys(ROLLED, 2)
    _measure(keep, "rolling restart", Case("real-time", plan={"scale": scale}), _rolling)


def overload(keep: Keep) -> None:
    """Finds the rating of single events with default settings, then offers twice as many for 30 s. About 5 minutes."""

    async def work(load_test: LoadTest) -> dict[str, Any]:
        rounds = LoadRounds(load_test)
        await rounds.run(FIRST_RATE, WARM_UP_S)
        rated_per_s = await _rated(rounds)
        load_round = await rounds.run(2 * rated_per_s, OVERLOAD_S, connections=OVERLOAD_CONNECTIONS)
        accepted_count = sum(sent_event.accepted for sent_event in load_round.sent.values())
        return {
            **load_round.totals(),
            "rated": round(rated_per_s),
            "offered_rate": load_round.offered_rate(),
            "accepted_rate": round(load_round.offered_rate() * accepted_count / len(load_round.sent)),
            "lag_ms": load_round.lag_from_sent_ms(),
            "refused_after_ms": load_round.answer_ms(accepted=False),
            "accepted_after_ms": load_round.answer_ms(accepted=True),
        }

    _measure(keep, "twice the rating offered", Case("real-time"), work)


async def _rated(rounds: LoadRounds) -> float:
    """The highest rate with a p95 below 1 s and no event refused or lost, events a second."""
    search = RateSearch(FIRST_RATE, 2, RATING_STEPS)
    while (rate := search.next()) is not None:
        load_round = await rounds.run(rate, RATING_STEP_S)
        totals, p95_ms = load_round.totals(), load_round.lag_ms().get("p95", math.inf)
        is_sustained = not totals["refused"] and not totals["lost"] and p95_ms < SLO_MS
        print(f"{rate:,.0f} ev/s: p95 {p95_ms:,.0f} ms, {totals['refused']:,} refused", flush=True)
        search.record(rate, sustained=is_sustained)
    if search.sustained is None:
        raise Retryable(f"even {FIRST_RATE:,.0f} ev/s were not sustained")
    return search.sustained


def _measure(
    keep: Keep, name: str, case: Case, work: Callable[[LoadTest], Awaitable[dict[str, Any]]]
) -> None:
    async def started(load_test: LoadTest) -> None:
        began_s = time.monotonic()
        await load_test.start()
        start_s = round(time.monotonic() - began_s, 1)
        report = {"start_seconds": start_s} | await work(load_test)
        print(name, report, flush=True)
        keep(name, report)

    attempt(keep, name, lambda: with_load_test(lambda folder: make_load_test(case, folder), started, LIMIT_S))


async def _first_minute(load_test: LoadTest) -> dict[str, Any]:
    load_round = await LoadRounds(load_test).run(FIRST_RATE, FIRST_S)
    return {
        **load_round.totals(),
        "lag_ms": load_round.lag_ms(),
        "lag_ms_by_10_s": load_round.lags_ms(SLICE_S),
    }


async def _rolling(load_test: LoadTest) -> dict[str, Any]:
    rounds = LoadRounds(load_test)
    await rounds.run(ROLLING_RATE, WARM_UP_S)
    replaced_names: list[str] = []

    async def replace() -> None:
        mesh = load_test.mesh
        assert isinstance(mesh, Mesh)
        pause_s = ROLLING_S / (len(ROLLED) * 2 + 2)
        for service in ROLLED:
            for number in range(2):
                began_s = time.monotonic()
                # Ended as `docker stop` does: it drains; its supervisor starts the next process.
                await mesh.instances[service][number].process.stop(90)
                await mesh.wait_ready(120)
                replaced_names.append(f"{service}-{number + 1}")
                await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began_s)))

    load_round = await rounds.run(ROLLING_RATE, ROLLING_S, replace)
    return {
        **load_round.totals(),
        "replaced": replaced_names,
        "lag_ms": load_round.lag_ms(),
        "lag_ms_by_minute": load_round.lags_ms(60),
    }
