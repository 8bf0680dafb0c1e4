"""The program `hifi-enrich`: exit codes, readiness, SIGTERM."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable

import psutil
import pytest
from running_instance import TIMEOUT_S, LiveStream
from spark_bench import make_pipe

from hifi_enrich.query.warm_up import WARM_UP_TIMEOUT_S


async def start(stream: LiveStream, port: int, **settings: str) -> asyncio.subprocess.Process:
    own = {
        "HIFI_KAFKA": stream.kafka,
        "HIFI_STREAM": stream.topics.stream,
        "HIFI_PORT": str(port),
        **settings,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hifi_enrich", env=os.environ | own, stderr=asyncio.subprocess.PIPE
    )


def readyz(port: int) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


@pytest.mark.timeout(200)
async def test_it_reports_what_it_waits_for_then_runs_and_drains_on_sigterm(
    kafka: str, unused_tcp_port: int
) -> None:
    """With a single slot for two partitions, which is enough for micro-batches."""
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int"}, derive={"m": "n + 1"}))
    process = await start(stream, unused_tcp_port, HIFI_ENRICH_MASTER="local[1]")
    seen: set[str] = set()
    async with asyncio.timeout(TIMEOUT_S):
        status = 0
        while status != 200:
            status, body = await asyncio.to_thread(readyz, unused_tcp_port)
            seen.update(body.get("waiting", {}).values())  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
    assert body["state"] == "running"
    assert f"Spark is warming up, for at most {WARM_UP_TIMEOUT_S:g} s" in seen
    numbers = await stream.send(*[b'{"n":1}'] * 10)
    found = await stream.outcomes(numbers)
    await stream.caught_up()
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == 0, errors.decode()
    assert {len(records) for records in found.values()} == {1}


@pytest.mark.timeout(200)
async def test_a_standby_whose_spark_exited_exits_so_that_a_new_one_can_start(
    kafka: str, unused_tcp_port_factory: Callable[[], int]
) -> None:
    stream = await LiveStream(kafka).create()
    processes = []
    try:
        for state in ("running", "standby"):
            port = unused_tcp_port_factory()
            process = await start(stream, port)
            processes.append(process)
            async with asyncio.timeout(TIMEOUT_S):
                while (await asyncio.to_thread(readyz, port))[1].get("state") != state:
                    await asyncio.sleep(0.1)
        [java] = [one for one in psutil.Process(process.pid).children(recursive=True) if "java" in one.name()]
        java.kill()
        _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        assert process.returncode not in (0, None)
        assert b"Spark's JVM has exited" in errors
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.timeout(60)
async def test_too_few_slots_for_real_time_exit_with_status_2(kafka: str, unused_tcp_port: int) -> None:
    stream = await LiveStream(kafka).create()
    process = await start(
        stream, unused_tcp_port, HIFI_ENRICH_MASTER="local[2]", HIFI_ENRICH_TRIGGER="real-time"
    )
    _, errors = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 2
    assert b"HIFI_ENRICH_MASTER=local[2] has 2 task slots" in errors
