"""Write keys by the commands of `hifi`: ingest accepts, limits, rotates and refuses them within seconds."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.ingest.ingest_harness import Ingest, ingest, new_stream, pipe

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import principal_topics

WITHIN_S = 30
PAGE = {"origin": "https://shop.example"}


async def status(instance: Ingest, file: Path, headers: Mapping[str, str] | None = None) -> int:
    async with aiohttp.ClientSession() as client:
        all_headers = {"authorization": f"Bearer {file.read_text().strip()}", **(headers or {})}
        async with client.post(
            f"{instance.url}/v1/pipes/flights/events", json={}, headers=all_headers
        ) as answer:
            return answer.status


async def eventually(
    instance: Ingest, file: Path, expected: int, headers: Mapping[str, str] | None = None
) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await status(instance, file, headers) != expected:
            await asyncio.sleep(0.1)


async def test_keys_are_issued_limited_rotated_and_revoked_and_the_pipes_own_goes_on(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    stream = await new_stream(kafka, pipe("flights", "key-in-the-pipe"))
    await create_topics(kafka, principal_topics(stream.name), partitions=1, replication=1)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("hifi"), "keys", *arguments],
            env=os.environ | {"HIFI_KAFKA": kafka, "HIFI_STREAM": stream.name},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    async def hifi(*arguments: str) -> str:
        process = await asyncio.to_thread(run, *arguments)
        assert process.returncode == 0, process.stderr
        return process.stdout

    async def issued_keys() -> list[dict[str, Any]]:
        return list(json.loads(await hifi("list", "--json")))

    pipe_key_file = tmp_path / "own"
    pipe_key_file.write_text("key-in-the-pipe")
    first_file, second_file, page_file = (tmp_path / name for name in ("first", "second", "page"))
    with ingest(kafka, stream.name, log) as instance:
        await hifi("issue", "flights", "--key-file", str(first_file))
        assert first_file.stat().st_mode & 0o777 == 0o600
        await eventually(instance, first_file, 202)
        (issued_key,) = await issued_keys()
        await hifi("rotate", issued_key["id"], "--overlap", "1h", "--key-file", str(second_file))
        await eventually(instance, second_file, 202)
        assert await status(instance, first_file) == 202
        assert [key["expires_us"] is None for key in await issued_keys()] == [False, True]
        third_file = tmp_path / "third"
        await hifi("issue", "flights", "--expires", "1ms", "--key-file", str(third_file))
        assert await status(instance, third_file) == 401

        await hifi("issue", "flights", "--origin", PAGE["origin"], "--key-file", str(page_file))
        await eventually(instance, page_file, 403)
        assert await status(instance, page_file, PAGE) == 202

        async with asyncio.timeout(WITHIN_S):
            while sum(key["last_used_us"] is not None for key in await issued_keys()) < 3:
                await asyncio.sleep(1)
        for key in await issued_keys():
            await hifi("revoke", key["id"])
        await eventually(instance, second_file, 401)
        await eventually(instance, page_file, 401, PAGE)
        assert await status(instance, pipe_key_file) == 202
        refused_process = await asyncio.to_thread(run, "issue", "nopipe", "--key-file", str(tmp_path / "x"))
        assert refused_process.returncode != 0
        assert "no pipe nopipe" in refused_process.stderr
        assert not (tmp_path / "x").exists()
        assert instance.stop() == 0
    text = log.read_text()
    assert not any(
        file.read_text().strip() in text
        for file in (first_file, second_file, third_file, page_file, pipe_key_file)
    )
