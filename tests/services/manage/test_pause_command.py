"""`hifi pipes pause|resume` through the management API, the control plane's Kafka, and without a control plane."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.manage.managed_stream import Managed, body

from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import pipe_record


async def hifi_pipes(settings: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("hifi"), "pipes", *words],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return await asyncio.to_thread(run)


@pytest.mark.more
async def test_a_pipe_is_paused_and_resumed_from_the_command_line(managed: Managed, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(managed.tokens["ann"])
    by_kafka = {"HIFI_KAFKA": managed.kafka, "HIFI_STREAM": managed.topics.stream}
    by_control = by_kafka | {"HIFI_CONTROL": managed.control.control}
    url = managed.urls[0].removesuffix("/api/v1")
    by_api = {"HIFI_MANAGE_URL": url, "HIFI_MANAGE_TOKEN_FILE": str(token)}
    assert (await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})).status == 201

    async def declared() -> tuple[str, str]:
        """State and author, as an instance knows them that has read everything."""
        async with asyncio.timeout(60):
            while True:
                declaration = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]
                if declaration["number"] != last[0]:
                    last[0] = declaration["number"]
                    return declaration["state"], declaration["author"]
                await asyncio.sleep(0.05)

    last = [-1]
    assert await declared() == ("active", "ann")
    for settings, word, state in ((by_api, "pause", "paused"), (by_control, "resume", "active")):
        done = await hifi_pipes(settings, word, "flights")
        assert done.returncode == 0, done.stderr
        assert f"flights is declared {state}" in done.stdout
        declared_state, author = await declared()
        assert declared_state == state
        assert (author == "ann") == (settings is by_api)
    for settings in (by_api, by_control, by_kafka):
        missing = await hifi_pipes(settings, "pause", "trains")
        assert (missing.returncode, "there is no pipe trains" in missing.stderr) == (1, True), missing.stderr

    # A mesh without a control plane: the command changes what is in force.
    await publish(managed.kafka, managed.topics, [pipe_record(Pipe.model_validate(body("one")))])
    for word, state in (("pause", "paused"), ("resume", "active")):
        done = await hifi_pipes(by_kafka, word, "flights")
        assert f"flights is {state}." in done.stdout, done.stderr
        revision = (await read_registry(managed.kafka, managed.topics)).pipes["flights"]
        assert (revision.paused, revision.number) == (state == "paused", 1)
        assert state in (await hifi_pipes(by_kafka)).stdout
