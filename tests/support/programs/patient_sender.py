"""A sender that loses nothing: posts CloudEvents at a steady rate, each batch again until it is accepted.

Run as a file: `python patient_sender.py URL RATE EVENTS`, with the write key in the variable KEY. `EVENTS` holds one
JSON object with an `id` a line; `RATE` is events a second. Prints JSON with the number of events that were `accepted`
and of requests that were sent `again`, and why, and when it `began_ns`, nanoseconds since 1970 UTC.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp

BATCH = 10
WORKERS = 16
PAUSE_S = 0.5


class PatientSender:
    """Sends batches to one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self.accepted = 0
        self.again: Counter[str] = Counter()
        self._session = session
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/cloudevents-batch+json",
        }

    async def send(self, events: list[dict[str, Any]]) -> None:
        """Send a batch until it is accepted."""
        body = json.dumps([envelope(event) for event in events])
        while True:
            try:
                async with self._session.post(self._url, data=body, headers=self._headers) as answer:
                    text = await answer.text()
                    if answer.status == 202:
                        self.accepted += len(events)
                        return
                    if answer.status not in {408, 429, 503}:
                        raise SystemExit(f"{answer.status}: {text}")
                    self.again[str(answer.status)] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.again[type(error).__name__] += 1
            await asyncio.sleep(PAUSE_S)


def envelope(event: dict[str, Any]) -> dict[str, Any]:
    """A CloudEvent; sent again, it is the same one."""
    return {
        "specversion": "1.0",
        "id": event["id"],
        "source": "/flights",
        "type": "flight",
        "time": "2026-01-01T00:00:00Z",
        "partitionkey": str(event.get("tailnum") or event["id"]),
        "data": event,
    }


async def main(url: str, rate: float, file: Path) -> None:
    """Send all events of a file."""
    events = map(json.loads, file.read_text().splitlines())
    batches: asyncio.Queue[list[dict[str, Any]] | None] = asyncio.Queue(maxsize=WORKERS)
    timeout = aiohttp.ClientTimeout(total=30)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
        sender = PatientSender(session, url, os.environ["KEY"])

        async def work() -> None:
            while (batch := await batches.get()) is not None:
                await sender.send(batch)

        for _ in range(WORKERS):
            group.create_task(work())
        began_s, began_ns = time.monotonic(), time.time_ns()
        number = 0
        while batch := list(islice(events, BATCH)):
            await asyncio.sleep(max(0, began_s + number / rate - time.monotonic()))
            await batches.put(batch)
            number += len(batch)
        for _ in range(WORKERS):
            await batches.put(None)
    print(json.dumps({"accepted": sender.accepted, "again": sender.again, "began_ns": began_ns}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
