"""The program `hifi-enrich`: exit codes, readiness, SIGTERM."""

import asyncio
import os
import signal
from collections.abc import Callable

import psutil
import pytest
from tests.support.enrich.enrich_process import readyz, start
from tests.support.enrich.running_instance import TIMEOUT_S, LiveStream
from tests.support.enrich.spark_bench import make_pipe

from hifi_enrich.query.warm_up import WARM_UP_TIMEOUT_S
from hifi_infra.kafka.group_members import remove_group_members


@pytest.mark.timeout(200)
async def test_it_reports_what_it_waits_for_then_runs_and_drains_on_sigterm(
    kafka: str, unused_tcp_port: int
) -> None:
    """With a single slot for two partitions, which is enough for micro-batches."""
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int"}, derive={"m": "n + 1"}))
    process = await start(stream, unused_tcp_port, HIFI_ENRICH_MASTER="local[1]")
    waiting_reasons: set[str] = set()
    async with asyncio.timeout(TIMEOUT_S):
        status = 0
        while status != 200:
            status, body = await asyncio.to_thread(readyz, unused_tcp_port)
            waiting_reasons.update(body.get("waiting", {}).values())  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
    assert body["state"] == "running"
    assert f"Spark is warming up, for at most {WARM_UP_TIMEOUT_S:g} s" in waiting_reasons
    numbers = await stream.send(*[b'{"n":1}'] * 10)
    outcomes = await stream.outcomes(numbers)
    await stream.caught_up()
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == 0, errors.decode()
    assert {len(records) for records in outcomes.values()} == {1}


@pytest.mark.timeout(200)
@pytest.mark.more
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
        [java] = [
            child for child in psutil.Process(process.pid).children(recursive=True) if "java" in child.name()
        ]
        java.kill()
        _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        assert process.returncode not in (0, None)
        assert b"Spark's JVM has exited" in errors
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.more  # faster: test_a_killed_group_member_has_its_partitions_back_before_its_session_expires
@pytest.mark.timeout(300)
async def test_a_standby_follows_a_killed_process_long_before_its_session_expires(
    kafka: str, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """The supervisor of a mesh removes the group members of a process that has ended; so does this test."""
    session_s = 120
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int"}, derive={"m": "n + 1"}))
    processes = []
    try:
        for state in ("running", "standby"):
            port = unused_tcp_port_factory()
            environment = {"HIFI_INSTANCE": state, "HIFI_SESSION_TIMEOUT_S": str(session_s)}
            processes.append(await start(stream, port, **environment, HIFI_ENRICH_TRIGGER="real-time"))
            async with asyncio.timeout(TIMEOUT_S):
                while (await asyncio.to_thread(readyz, port))[1].get("state") != state:
                    await asyncio.sleep(0.1)
        numbers = await stream.send(*[b'{"n":1}'] * 40)
        await stream.outcomes(numbers)
        os.killpg(processes[0].pid, signal.SIGKILL)
        await processes[0].wait()
        assert await remove_group_members(kafka, stream.topics.stream, "running") == 1
        numbers += await stream.send(*[b'{"n":1}'] * 40)
        async with asyncio.timeout(session_s / 2):
            outcomes = await stream.outcomes(numbers)
    finally:
        for process in processes:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()
    assert sorted(outcomes) == numbers


@pytest.mark.timeout(60)
async def test_too_few_slots_for_real_time_exit_with_status_2(kafka: str, unused_tcp_port: int) -> None:
    stream = await LiveStream(kafka).create()
    process = await start(
        stream, unused_tcp_port, HIFI_ENRICH_MASTER="local[2]", HIFI_ENRICH_TRIGGER="real-time"
    )
    _, errors = await asyncio.wait_for(process.communicate(), 50)
    assert process.returncode == 2
    assert b"HIFI_ENRICH_MASTER=local[2] has 2 task slots" in errors
