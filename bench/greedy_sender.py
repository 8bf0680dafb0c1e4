"""Sends small events to one pipe at a fixed rate whatever is answered, as a sender that ignores 429 does.

Run as a file: `python greedy_sender.py URL KEY RATE`, until SIGTERM; then it prints a line of JSON: status to count.
"""

import asyncio
import json
import signal
import sys
import time
from collections import Counter

import aiohttp

CONNECTIONS = 16


async def send(url: str, key: str, per_second: float) -> Counter[str]:
    """Send until SIGTERM; returns the number of answers by status, `0`: none."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    statuses: Counter[str] = Counter()
    began_s, sent_count = time.monotonic(), 0
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal sent_count
        while not stop.is_set():
            sent_count += 1
            await asyncio.sleep(max(0.0, began_s + sent_count / per_second - time.monotonic()))
            try:
                async with session.post(url, data=b'{"greedy": true}') as answer:
                    await answer.read()
                    statuses[str(answer.status)] += 1
            except (aiohttp.ClientError, OSError, TimeoutError):
                statuses["0"] += 1

    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(CONNECTIONS):
            group.create_task(work(session))
    return statuses


if __name__ == "__main__":
    print(json.dumps(asyncio.run(send(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
