"""The program itself: exit codes, readiness, SIGTERM; settings that are refused."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from enriching import make_pipe
from serving import BOUND_S, Stream

from hifi.errors import Misconfigured
from hifi_enrich.session import choose_master, jars, slots, temp_folder


def test_fewer_slots_than_partitions_and_one_more_are_refused() -> None:
    assert choose_master("", 4) == "local[5]"
    assert choose_master("local[5]", 4) == "local[5]"
    assert choose_master("spark://h:7077", 4) == "spark://h:7077"
    for master in ("local[4]", "local"):
        with pytest.raises(Misconfigured, match=r"local\[5\]"):
            choose_master(master, 4)
    assert slots("local[*]") == os.cpu_count()


def test_jars_that_are_not_there_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    assert jars(str(tmp_path / "a.jar")) == [tmp_path / "a.jar"]
    with pytest.raises(Misconfigured, match=r"b\.jar"):
        jars(f"{tmp_path / 'a.jar'},{tmp_path / 'b.jar'}")


def test_scratch_files_go_with_the_process(tmp_path: Path) -> None:
    killed, living, other = (
        tmp_path / f"hifi-enrich-{name}" for name in ("99999999-a", f"{os.getppid()}-b", "c")
    )
    for one in (killed, living, other):
        one.mkdir()
    with temp_folder(str(tmp_path)) as folder:
        (folder / "x").touch()
        assert not killed.exists()
    assert set(tmp_path.iterdir()) == {living, other}


async def start(stream: Stream, port: int, **settings: str) -> asyncio.subprocess.Process:
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
async def test_it_says_what_it_waits_for_then_runs_and_drains_on_sigterm(
    kafka: str, unused_tcp_port: int
) -> None:
    stream = await Stream(kafka).create(make_pipe("p", fields={"n": "int"}, derive={"m": "n + 1"}))
    process = await start(stream, unused_tcp_port)
    seen: set[str] = set()
    async with asyncio.timeout(BOUND_S):
        status = 0
        while status != 200:
            status, body = await asyncio.to_thread(readyz, unused_tcp_port)
            seen.update(body.get("waiting", {}))  # type: ignore[call-overload]
            await asyncio.sleep(0.05)
    assert (body["state"], "query" in seen) == ("running", True)
    numbers = await stream.send(*[b'{"n":1}'] * 10)
    found = await stream.outcomes(numbers)
    await stream.caught_up()
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), BOUND_S)
    assert process.returncode == 0, errors.decode()
    assert {len(records) for records in found.values()} == {1}


@pytest.mark.timeout(200)
async def test_a_standby_whose_spark_died_ends_so_that_a_new_one_can_start(
    kafka: str, unused_tcp_port_factory: Callable[[], int]
) -> None:
    stream = await Stream(kafka).create()
    processes = []
    try:
        for state in ("running", "standby"):
            port = unused_tcp_port_factory()
            process = await start(stream, port)
            processes.append(process)
            async with asyncio.timeout(BOUND_S):
                while (await asyncio.to_thread(readyz, port))[1].get("state") != state:
                    await asyncio.sleep(0.1)
        [java] = [one for one in psutil.Process(process.pid).children(recursive=True) if "java" in one.name()]
        java.kill()
        _, errors = await asyncio.wait_for(process.communicate(), BOUND_S)
        assert process.returncode not in (0, None)
        assert b"Spark's JVM ended" in errors
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.timeout(60)
async def test_too_few_slots_end_the_program_with_status_2(kafka: str, unused_tcp_port: int) -> None:
    stream = await Stream(kafka).create()
    process = await start(stream, unused_tcp_port, HIFI_ENRICH_MASTER="local[2]")
    _, errors = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 2
    assert b"HIFI_ENRICH_MASTER=local[2] has 2 task slots" in errors
