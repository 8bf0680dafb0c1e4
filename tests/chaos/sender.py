"""An outside sender: an open loop at a fixed rate that writes down every answer.

What got no answer, or a 5xx, is sent again as it was, as a client would: it must not arrive twice for that.

Run as a file: `python sender.py URL KEY RATE BOOK`, until SIGTERM. BOOK gets a line of JSON an event: `id`, `key`, `n`,
`at_s` (when it was first sent), `status` (the last HTTP status, or 0 where there was no answer), `tries`.
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


async def send(url: str, write_key: str, per_second: float, book: TextIO) -> None:
    """Send until SIGTERM, then wait for the answers that are still out."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    run = uuid.uuid4().hex[:8]
    running: set[asyncio.Task[None]] = set()
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    connector = aiohttp.TCPConnector(limit=200)
    headers = {"Authorization": f"Bearer {write_key}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as session:

        async def one(n: int) -> None:
            event = {"id": f"{run}-{n}", "key": f"k{n % KEYS}", "n": n}
            at_s, status, tries = time.time(), 0, 0
            while tries < TRIES and (status == 0 or status >= 500):
                if tries:
                    await asyncio.sleep(PAUSE_S * tries)
                tries += 1
                try:
                    async with session.post(url, data=json.dumps(event)) as answer:
                        await answer.read()
                        status = answer.status
                except (aiohttp.ClientError, TimeoutError, OSError):
                    status = 0
            book.write(json.dumps(event | {"at_s": at_s, "status": status, "tries": tries}) + "\n")

        start_s, n = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - start_s) * per_second)
            while n < due:
                task = asyncio.create_task(one(n))
                running.add(task)
                task.add_done_callback(running.discard)
                n += 1
            book.flush()
            await asyncio.sleep(0.01)
        if running:
            await asyncio.wait(running)


if __name__ == "__main__":
    with Path(sys.argv[4]).open("a", encoding="utf-8") as file:
        asyncio.run(send(sys.argv[1], sys.argv[2], float(sys.argv[3]), file))
