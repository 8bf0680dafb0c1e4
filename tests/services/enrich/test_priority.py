"""A standby's start takes what nobody else wants."""

import subprocess
import sys
from pathlib import Path

import pytest

from hifi.kafka.admin import members
from hifi.kafka.cooperative import CooperativeConsumer

AUTOGROUP = Path("/proc/self/autogroup")
SHOWS = """
import asyncio, pathlib, subprocess, sys
from hifi_enrich import priority

def nice():
    own = pathlib.Path("/proc/self/autogroup").read_text().split()[-1]
    child = subprocess.run(["cat", "/proc/self/autogroup"], capture_output=True, text=True).stdout.split()[-1]
    return f"{own}/{child}"

async def main():
    print(nice())
    async with priority.low():
        print(nice())
    print(nice())
    async with priority.low(bound_s=0.01):
        async with asyncio.timeout(20):
            while nice() != "0/0":
                await asyncio.sleep(0.01)
        print("over")

asyncio.run(main())
"""


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not share cores between sessions")
def test_a_session_is_lowered_for_a_time_and_nobody_else_with_it() -> None:
    def shown() -> list[str]:
        command = [sys.executable, "-c", SHOWS]
        ended = subprocess.run(
            command, start_new_session=True, capture_output=True, text=True, timeout=60, check=True
        )
        return ended.stdout.split()

    assert shown() == ["0/0", "19/19", "0/0", "over"]


async def test_who_takes_part_is_counted(kafka: str, topic: "object") -> None:
    name = await topic(partitions=1)  # type: ignore[operator]
    member = CooperativeConsumer(bootstrap_servers=kafka, group_id=name)
    member.subscribe([name])
    await member.start()
    try:
        await member.getmany(timeout_ms=1000)
        assert await members(kafka, name, timeout_s=20) == 1
        assert await members(kafka, f"{name}-nobody", timeout_s=20) == 0
    finally:
        await member.stop()
