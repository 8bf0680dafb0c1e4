"""Reads a table or NDJSON files and writes events to a topic, by hand with psycopg and aiokafka, until it is ended.

`python polled_loop.py KIND KAFKA SOURCE TARGET PARTITIONS PROGRESS`: KIND is `sql` (SOURCE is the URL of a database
with the table `source_rows`, read in the order of `id`) or `objects` (SOURCE is a folder). At least once: it writes how
far it is to the topic PROGRESS after the acknowledgement. Each event has the headers that collect writes. Rows that are
written again get other accepted times, and nothing keeps a second program from reading the same.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import orjson
import psycopg
import uvloop
from aiokafka import AIOKafkaProducer
from envelopes import Envelopes, rfc3339

PAGE = 2000
QUERY = "SELECT id, row_to_json(source_rows)::text FROM source_rows WHERE id > %s ORDER BY id LIMIT %s"
Row = tuple[bytes, bytes, int, bytes]
"""Key, data, position and time."""


async def table(url: str) -> AsyncIterator[tuple[bytes, list[Row]]]:
    """Pages of the table, each in a transaction of its own."""
    last_id = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            rows = await (await connection.execute(QUERY, (last_id, PAGE))).fetchall()
            if rows:
                last_id = rows[-1][0]
                time = rfc3339(0)
                yield (
                    b"sql/source_rows",
                    [(b"%d" % number, text.encode(), number, time) for number, text in rows],
                )
            else:
                await asyncio.sleep(1)


async def files(folder: str) -> AsyncIterator[tuple[bytes, list[Row]]]:
    """Lines of all files that were there at the start."""
    for file in sorted(Path(folder).glob("*.ndjson")):
        time, number = rfc3339(round(file.stat().st_mtime * 1000)), 0
        with file.open("rb") as lines:
            while page := list(islice(lines, PAGE)):
                rows = []
                for line in page:
                    number += 1
                    if not isinstance(orjson.loads(line), dict):
                        raise TypeError("a line is not a JSON object")
                    rows.append((b"%b/%d" % (file.name.encode(), number), line.strip(), number, time))
                yield file.name.encode(), rows
    await asyncio.Event().wait()


async def main(kind: str, kafka: str, source: str, target: str, partitions: str, progress: str) -> None:
    """Read, write, wait for the acknowledgement, write the progress."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=512 * 1024
    )
    async with producer:
        envelopes = Envelopes(producer, target, int(partitions))
        async for location, rows in {"sql": table, "objects": files}[kind](source):
            for key, data, position, time in rows:
                if envelopes.add(key, data, location, position, time):
                    await envelopes.send_full()
            await envelopes.written()
            await producer.send_and_wait(progress, b"%d" % rows[-1][2], key=location, partition=0)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
