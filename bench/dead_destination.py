"""Lag of nine destinations before and after a tenth is killed. All ten receive every event of one mesh."""

import asyncio
from pathlib import Path

from cases import Case, make_load_test, with_load_test
from larger_load import LargerLoad
from mesh_row import LIMIT_S, WARM_UP_S, Keep, attempt, rating_of, row_report, steps
from second_destination import second_destination

from hifi.runtime.errors import Retryable
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace

RATE, SECONDS = 60.0, 10.0
ALIVE, DEAD = "ten destinations", "the last of them dead"
TENTH_S = 20.0


def dead(keep: Keep) -> None:
    """The tenth destination is a process of its own; once killed, connections to it are refused. About 2.5 minutes."""
    attempt(
        keep,
        DEAD,
        lambda: with_load_test(_make_load_test, lambda load_test: _measure(load_test, keep), LIMIT_S),
    )


def _make_load_test(folder: Path) -> LoadTest:
    return make_load_test(Case("real-time", first=RATE), folder)


async def _measure(load_test: LoadTest, keep: Keep) -> None:
    async with second_destination(load_test, "tenth") as (tenth_destination, process):
        rating = rating_of(
            load_test, LargerLoad(ten=True, tenth_port=tenth_destination.destination_port), RATE
        )
        warm_up = await rating.begin(WARM_UP_S)
        alive_steps = await steps(rating, RATE, seconds=SECONDS)
        await _has(tenth_destination, sum(step.accepted for step in (warm_up, *alive_steps)))
        keep(ALIVE, row_report(rating, warm_up, alive_steps))
        print("the tenth destination is killed", flush=True)
        await process.kill()
        settling_step = await rating.step(RATE, SECONDS)  # until its breaker is open
        keep(DEAD, row_report(rating, settling_step, await steps(rating, RATE, seconds=SECONDS)))


async def _has(tenth_destination: Workspace, expected: int) -> None:
    """Check that the tenth destination received every event.

    Raises:
        Retryable: it did not.
    """
    for _ in range(round(TENTH_S / 0.25)):
        if (arrived_count := await tenth_destination.counts()) == expected:
            return
        await asyncio.sleep(0.25)
    raise Retryable(f"the tenth destination, alive, got {arrived_count:,} of {expected:,} events")
