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
    kafka_settings = {"HIFI_KAFKA": managed.kafka, "HIFI_STREAM": managed.topics.stream}
    control_settings = kafka_settings | {"HIFI_CONTROL": managed.control.control}
    url = managed.urls[0].removesuffix("/api/v1")
    api_settings = {"HIFI_MANAGE_URL": url, "HIFI_MANAGE_TOKEN_FILE": str(token)}
    assert (await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})).status == 201

    async def next_declaration() -> tuple[str, str]:
        """State and author, as an instance knows them that has read everything."""
        async with asyncio.timeout(60):
            while True:
                declaration = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]
                if declaration["number"] != last_number[0]:
                    last_number[0] = declaration["number"]
                    return declaration["state"], declaration["author"]
                await asyncio.sleep(0.05)

    last_number = [-1]
    assert await next_declaration() == ("active", "ann")
    for settings, word, state in ((api_settings, "pause", "paused"), (control_settings, "resume", "active")):
        process = await hifi_pipes(settings, word, "flights")
        assert process.returncode == 0, process.stderr
        assert f"flights is declared {state}" in process.stdout
        declared_state, author = await next_declaration()
        assert declared_state == state
        assert (author == "ann") == (settings is api_settings)
    for settings in (api_settings, control_settings, kafka_settings):
        refused_process = await hifi_pipes(settings, "pause", "trains")
        assert (refused_process.returncode, "there is no pipe trains" in refused_process.stderr) == (
            1,
            True,
        ), refused_process.stderr

    # A mesh without a control plane: the command changes what is in force.
    await publish(managed.kafka, managed.topics, [pipe_record(Pipe.model_validate(body("one")))])
    for word, state in (("pause", "paused"), ("resume", "active")):
        process = await hifi_pipes(kafka_settings, word, "flights")
        assert f"flights is {state}." in process.stdout, process.stderr
        revision = (await read_registry(managed.kafka, managed.topics)).pipes["flights"]
        assert (revision.paused, revision.number) == (state == "paused", 1)
        assert state in (await hifi_pipes(kafka_settings)).stdout
