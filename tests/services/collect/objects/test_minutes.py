"""observe's minutes are balanced for a source that is read again in part."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest
from collected_stream import collected_stream
from polled_objects import PolledFolder
from polled_reader import RawEnd
from tests.stream_process import free_port

pytestmark = pytest.mark.timeout(400)
ROWS = 18_000


def minutes(port: int) -> list[dict[str, Any]]:
    """The minutes of the pipe that observe has closed."""
    url = f"http://127.0.0.1:{port}/api/v1/pipes/orders/minutes?last=60"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["minutes"]
    return found


@pytest.mark.more
async def test_minutes_are_balanced_although_the_reader_of_a_folder_is_killed(
    kafka: str, log: Path, folder: PolledFolder
) -> None:
    async with collected_stream(kafka, log) as stream, RawEnd(stream) as raw_end:
        port = free_port()
        await stream.publish(folder.pipe())
        await stream.start("observe", observe_port=port, observe_settle_s=1)
        await stream.start("normalize")
        collect, _ = await stream.start("collect", session_timeout_s=6)
        content = b"".join(orjson.dumps({"n": n}, option=orjson.OPT_APPEND_NEWLINE) for n in range(ROWS))
        folder.put("one.ndjson", content)
        await raw_end.reached(ROWS // 4)
        await stream.kill(collect)
        await stream.start("collect")
        raw = await stream.read(stream.topics.raw, lambda found: len(found) > ROWS)
        await stream.read(stream.topics.normalized, lambda found: len(found) == ROWS)

        async def closed() -> list[dict[str, Any]]:
            return await asyncio.to_thread(minutes, port)

        async with asyncio.timeout(200):
            while sum(one["in"] for one in await closed()) < len(raw):
                await asyncio.sleep(0.5)
        found = await closed()
        raw = await stream.all(stream.topics.raw)
        assert sum(one["in"] for one in found) == len(raw)
        assert sum(one["lost"] for one in found) == 0
        assert sum(one["in_flight"] for one in found) == ROWS, "enrich does not run"
