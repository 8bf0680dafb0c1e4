"""`hifi send` as a process, with a server in the place of ingest."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.described_mesh import describe

from hifi_infra.mesh import running

pytestmark = pytest.mark.slow
HIFI = Path(sys.executable).with_name("hifi")
WITHIN_S = 60


class Ingest:
    """Answers requests, each with the next of the statuses, the last of them again and again."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.arrived = asyncio.Event()
        self.url = ""

    async def answer(self, request):
        self.requests.append((await request.read(), request.headers["idempotency-key"]))
        self.arrived.set()
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.json_response(body, status=status)


@contextlib.asynccontextmanager
async def serving(ingest):
    application = web.Application()
    application.router.add_post("/v1/pipes/p/events", ingest.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ingest.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield ingest
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def sending(*arguments):
    """`hifi send p …` with events from standard input; killed if it does not end."""
    process = await asyncio.create_subprocess_exec(
        HIFI,
        "send",
        "p",
        *map(str, arguments),
        "--key",
        "k",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"COLUMNS": "200"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def result(process, content=b""):
    """Exit status, standard output and standard error."""
    async with asyncio.timeout(WITHIN_S):
        output, error = await process.communicate(content)
    return process.returncode, output.decode(), error.decode()


ACCEPTED = (202, {"accepted": 2, "ids": []})
EVENTS = [b'{"n":%d}' % number for number in range(50)]


class PartlyAcknowledging(Ingest):
    """Does not know what became of the last event of the first request of several events."""

    def __init__(self):
        super().__init__()
        self.partly_acknowledged = None

    async def answer(self, request):
        self.requests.append((await request.read(), request.headers["idempotency-key"]))
        count = self.requests[-1][0].count(b"\n") + 1
        if count == 1 or self.partly_acknowledged:
            return web.json_response({"accepted": count, "ids": []}, status=202)
        self.partly_acknowledged = self.requests[-1]
        outcomes = ["accepted"] * (count - 1) + ["unknown"]
        events = [
            {"index": index, "id": str(index), "outcome": outcome} for index, outcome in enumerate(outcomes)
        ]
        return web.json_response({"detail": "not every event", "events": events}, status=503)


@pytest.fixture
def colours(tmp_path):
    """Writes what `hifi up --colours` writes to its data folder, and holds its lock."""
    with running.lock(tmp_path):

        def write(url):
            folders = {name: tmp_path / name for name in ("blue", "green")}
            describe(tmp_path, kafka="", url=url, colours=folders, control_kafka="127.0.0.1:1")
            return tmp_path

        yield write


@pytest.mark.parametrize("of_colours", [False, True], ids=["--url", "--data of two colours"])
async def test_a_partly_acknowledged_request_is_sent_again_as_it_was(of_colours, colours):
    async with serving(PartlyAcknowledging()) as ingest:
        address = ("--data", colours(ingest.url)) if of_colours else ("--url", ingest.url)
        async with sending("-", *address, "--json") as process:
            status, output, error = await result(process, b"\n".join(EVENTS))
    assert status == 0, error
    assert json.loads(output) == {
        "accepted": len(EVENTS), "refused": 0, "repeats": 1, "refusals": [], "problem": None, "in_flight": []
    }  # fmt: skip
    assert ingest.requests.count(ingest.partly_acknowledged) == 2
    ingest.requests.remove(ingest.partly_acknowledged)
    assert b"\n".join(body for body, _ in ingest.requests).split(b"\n") == EVENTS


@pytest.fixture
def open_pipe(tmp_path):
    """A named pipe with an event whose writer stays open."""
    path = tmp_path / "events.ndjson"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    os.write(descriptor, b'{"n":1}\n')
    yield path
    os.close(descriptor)


async def test_a_refusal_ends_the_command_while_it_reads_a_pipe(open_pipe):
    async with (
        serving(Ingest((401, {"detail": "a valid key"}))) as ingest,
        sending(open_pipe, "--url", ingest.url) as process,
    ):
        status, _, error = await result(process)
    assert status == 1
    assert "ingest answers 401: a valid key" in error
    assert "Fatal" not in error


async def test_ctrl_c_ends_the_command_while_it_reads_a_pipe(open_pipe):
    async with serving(Ingest(ACCEPTED)) as ingest, sending(open_pipe, "--url", ingest.url) as process:
        async with asyncio.timeout(WITHIN_S):
            await ingest.arrived.wait()
        process.send_signal(signal.SIGINT)
        status, _, error = await result(process)
    assert status == 130, error
    assert "Fatal" not in error
