"""Sends events at a fixed rate, without waiting for answers, and logs every answer.

An event with no answer or a 5xx is sent again unchanged, as clients do; it must not arrive twice because of that.

Run as a file: `python sender.py URL KEY RATE LOG`, until SIGTERM. LOG gets one line of JSON an event: `id`, `key`, `n`,
`at_s` (first send), `status` (the last HTTP status, 0 without an answer), `tries`.
"""

import asyncio
import json
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import TextIO

import aiohttp

KEYS = 200
ANSWER_S = 5
TRIES = 3
PAUSE_S = 1.0


async def send(url: str, write_key: str, per_second: float, log: TextIO) -> None:
    """Send until SIGTERM, then wait for outstanding answers."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    run_id = uuid.uuid4().hex[:8]
    running: set[asyncio.Task[None]] = set()
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    connector = aiohttp.TCPConnector(limit=200)
    headers = {"Authorization": f"Bearer {write_key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as session:

        async def send_event(n: int) -> None:
            event = {"id": f"{run_id}-{n}", "key": f"k{n % KEYS}", "n": n}
            at_s, status, tries = time.time(), 0, 0
            while tries < TRIES and (status in (0, 429) or status >= 500):
                if tries:
                    await asyncio.sleep(PAUSE_S * tries)
                tries += 1
                try:
                    async with session.post(url, data=json.dumps(event)) as answer:
                        await answer.read()
                        status = answer.status
                except (aiohttp.ClientError, TimeoutError, OSError):
                    status = 0
            log.write(json.dumps(event | {"at_s": at_s, "status": status, "tries": tries}) + "\n")

        start_s, n = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - start_s) * per_second)
            while n < due:
                task = asyncio.create_task(send_event(n))
                running.add(task)
                task.add_done_callback(running.discard)
                n += 1
            log.flush()
            await asyncio.sleep(0.01)
        if running:
            await asyncio.wait(running)


if __name__ == "__main__":
    with Path(sys.argv[4]).open("a", encoding="utf-8") as file:
        asyncio.run(send(sys.argv[1], sys.argv[2], float(sys.argv[3]), file))
