"""Lag of a pipe while the sender of another one exceeds its quota five times."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, make_load_test, with_load_test
from growth_sections import ABOVE_QUOTA, WITHIN_QUOTA
from mesh_row import LIMIT_S, WARM_UP_S, Keep, attempt, rating_of, row_report, steps
from second_destination import second_destination

from hifi.pipe.model import Pipe
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.workspace import Workspace
from hifi_cli.rate.event_load import EventLoad

RATE, SECONDS = 100.0, 20.0
QUOTA_PER_S, TIMES = 100, 5
KEY = "key-of-the-greedy-pipe"


@dataclass(frozen=True, slots=True)
class TwoPipes(EventLoad):
    """The load of `hifi rate`, and a second pipe with a quota and a destination of its own."""

    second_port: int = 0

    def shape(self, pipes: list[Pipe]) -> list[Pipe]:
        """See EventLoad."""
        second = {
            "pipe": "greedy",
            "source": {"keys": [{"env": "KEY_GREEDY"}], "quota": {"events": f"{QUOTA_PER_S}/s"}},
            "destinations": [{"name": "d", "url": f"http://127.0.0.1:{self.second_port}/greedy"}],
        }
        return [*EventLoad.shape(self, pipes), Pipe.model_validate(second)]


def greedy(keep: Keep) -> None:
    """100 ev/s on a pipe, beside another one at its quota of 100 ev/s, then at five times that. About 4 minutes."""

    def make(folder: Path) -> LoadTest:
        return make_load_test(Case("real-time", first=RATE), folder, {"KEY_GREEDY": KEY})

    attempt(
        keep, ABOVE_QUOTA, lambda: with_load_test(make, lambda load_test: _measure(load_test, keep), LIMIT_S)
    )


async def _measure(load_test: LoadTest, keep: Keep) -> None:
    async with second_destination(load_test, "other") as (other_destination, _):
        rating = rating_of(load_test, TwoPipes(second_port=other_destination.destination_port), RATE)
        warm_up = await rating.begin(WARM_UP_S)
        for name, times in ((WITHIN_QUOTA, 1), (ABOVE_QUOTA, TIMES)):
            async with _sending(load_test.workspace, QUOTA_PER_S * times) as statuses:
                settling_step = await rating.step(RATE, SECONDS) if times > 1 else warm_up
                measured_steps = await steps(rating, RATE, seconds=SECONDS)
            print(f"{name}: answers to the other sender: {statuses}", flush=True)
            keep(name, {**row_report(rating, settling_step, measured_steps), "other_answers": statuses})


@asynccontextmanager
async def _sending(workspace: Workspace, per_s: float) -> AsyncIterator[dict[str, Any]]:
    """Send to the second pipe while the block runs; the yielded counts are filled in at its end."""
    script = Path(__file__).with_name("greedy_sender.py")
    url = f"http://127.0.0.1:{workspace.ingest_port}/v1/pipes/greedy/events"
    sender = await asyncio.create_subprocess_exec(
        sys.executable, str(script), url, KEY, str(per_s), stdout=asyncio.subprocess.PIPE
    )
    statuses: dict[str, Any] = {}
    try:
        yield statuses
    finally:
        sender.terminate()
        output, _ = await sender.communicate()
        statuses |= json.loads(output or b"{}")
