"""`make equivalence ARGS="--seeds 20"`: run seeds, print a line for each, and fail if a row differs."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import orjson

from equivalence.run import run_seed, systems


async def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--changes", type=int, default=5_000, help="of each seed")
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="hifi-equivalence-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        async with systems(folder) as on:
            for seed in range(given.first, given.first + given.seeds):
                began_s = time.monotonic()
                numbers = await run_seed(on, seed, given.changes, print)
                print(
                    orjson.dumps({**numbers, "seconds": round(time.monotonic() - began_s, 1)}).decode(),
                    flush=True,
                )
                wrong += numbers["differences"] + numbers["refused"]
    return 1 if wrong else 0


sys.exit(asyncio.run(_main()))
