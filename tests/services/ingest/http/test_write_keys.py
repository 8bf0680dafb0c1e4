"""Write keys from digest, environment and file change without a restart; a missing one does not affect others."""

import asyncio
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from tests.support.ingest.ingest_harness import Ingest, ingest, new_stream, pipe, wait_until

from hifi.kafka.topics import Topics
from hifi.pipe.issued_key import key_id
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import pipe_record
from hifi.pipe.secret import WriteKey
from hifi.runtime.health import Health
from hifi_ingest.http.issued_keys import FollowedKeys
from hifi_ingest.http.write_keys import WriteKeys, key_from_header


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b"Bearer abc", b"abc"),
        (b"bearer  abc ", b"abc"),
        (b"Basic YWJjOg==", b"abc"),
        (b"Basic YWJjOnB3", b"abc"),
        (b"Basic OnB3", None),
        (b"Basic %", None),
        (b"Bearer ", None),
        (b"Bearer", None),
        (b"", None),
        (b"Digest abc", None),
    ],
)
def test_a_key_is_a_bearer_token_or_a_basic_user(header: bytes, key: bytes | None) -> None:
    assert key_from_header(header) == key


async def test_a_key_on_which_the_code_fails_or_that_is_no_text_affects_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environb, b"NO_TEXT", b"\xff")
    monkeypatch.setitem(os.environ, "FAILING", "x")
    monkeypatch.setitem(os.environ, "GOOD", "good")
    health = Health("ingest", "test")
    registry = PipeRegistry("nowhere:1", Topics("t"), health)
    record = pipe_record(pipe("p", keys=[{"env": "NO_TEXT"}, {"env": "FAILING"}, {"env": "GOOD"}]))
    registry._apply(SimpleNamespace(key=record.key, value=record.value, offset=0, timestamp=0))
    digest = WriteKey.digest

    def fail_on_one(key: WriteKey) -> str:
        if key.env == "FAILING":
            raise ZeroDivisionError
        return digest(key)

    monkeypatch.setattr(WriteKey, "digest", fail_on_one)
    keys = WriteKeys(registry, cast(FollowedKeys, SimpleNamespace(of_hash=lambda _: None)), health, 60)
    await keys.start()
    (grant,) = keys.pipes(b"Bearer good").values()
    assert grant.key == key_id(hashlib.sha256(b"good").hexdigest())
    assert "NO_TEXT is not UTF-8" in health.warnings["write key 0 of p"]
    assert "ZeroDivisionError" in health.warnings["write key 1 of p"]
    await keys.stop()


async def status(instance: Ingest, name: str, key: str) -> int:
    async with aiohttp.ClientSession() as client:
        headers = {"authorization": f"Bearer {key}"}
        async with client.post(f"{instance.url}/v1/pipes/{name}/events", json={}, headers=headers) as answer:
            return answer.status


async def eventually(instance: Ingest, name: str, key: str, expected: int) -> None:
    async with asyncio.timeout(20):
        while await status(instance, name, key) != expected:
            await asyncio.sleep(0.05)


async def test_keys_and_pipes_change_without_a_restart_and_a_missing_key_is_a_warning(
    kafka: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "TEST_ENV_KEY", "from-env")
    file = tmp_path / "key"
    pipes = [
        pipe("env", keys=[{"env": "TEST_ENV_KEY"}, {"env": "TEST_NO_SUCH_KEY"}]),
        pipe("file", keys=[{"file": str(file)}]),
    ]
    stream = await new_stream(kafka, *pipes)
    with ingest(kafka, stream.name, log, ingest_keys_refresh_s=0.2) as instance:
        assert await status(instance, "env", "from-env") == 202
        assert await status(instance, "file", "from-file") == 401
        warnings = instance.readyz()[1]["warnings"]
        assert set(warnings) == {"write key 1 of env", "write key 0 of file"}
        assert "TEST_NO_SUCH_KEY" in warnings["write key 1 of env"]

        file.write_text("from-file\n")
        await eventually(instance, "file", "from-file", 202)
        assert set(instance.readyz()[1]["warnings"]) == {"write key 1 of env"}
        file.write_text("renewed")
        await eventually(instance, "file", "renewed", 202)
        assert await status(instance, "file", "from-file") == 401
        file.unlink()
        wait_until(lambda: len(instance.readyz()[1]["warnings"]) == 2)
        assert await status(instance, "env", "from-env") == 202

        file.write_text("from-env")
        wait_until(lambda: len(instance.readyz()[1]["warnings"]) == 3)
        warnings = instance.readyz()[1]["warnings"]
        assert "the pipe 'file' has the same write key" in warnings["write key 0 of env"]
        assert "the pipe 'env' has the same write key" in warnings["write key 0 of file"]
        file.unlink()
        wait_until(lambda: len(instance.readyz()[1]["warnings"]) == 2)

        await stream.publish(pipe("env", "another"), pipe("new", "new-key"))
        await eventually(instance, "new", "new-key", 202)
        await eventually(instance, "env", "another", 202)
        assert await status(instance, "env", "from-env") == 401
        await stream.delete("new")
        await eventually(instance, "new", "new-key", 401)
        assert instance.stop() == 0
    assert "from-file" not in log.read_text()
