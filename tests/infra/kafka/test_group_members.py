"""A member whose process was killed leaves its group at once; members of other instances stay."""

import asyncio
import subprocess
import sys
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from hifi_infra.kafka.group_members import member_ids, remove_group_members

SESSION_MS = 20_000
MEMBER = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
async def main():
    bootstrap, topic, group, client_id = sys.argv[1:]
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, client_id=client_id,
        session_timeout_ms=20_000, heartbeat_interval_ms=500, max_poll_interval_ms=20_000)
    await consumer.start()
    while not consumer.assignment():
        await asyncio.sleep(0.05)
    print("assigned", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def member(*arguments):
    process = subprocess.Popen([sys.executable, "-c", MEMBER, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "assigned\n"
    return process


async def test_partitions_of_a_killed_member_are_assigned_again_before_its_session_expires(kafka, topic):
    stream = f"s{uuid.uuid4().hex[:8]}"
    group, name = f"{stream}.normalize", await topic(partitions=2)
    killed_member = await asyncio.to_thread(member, kafka, name, group, "normalize-1")
    killed_member.kill()
    killed_member.wait()

    began_s = time.monotonic()
    assert await remove_group_members(kafka, stream, "normalize-2") == 0, "another instance"
    assert await remove_group_members(kafka, stream[:-1], "normalize-1") == 0, "another stream"
    assert await remove_group_members(kafka, stream, "normalize-1") == 1
    assert await remove_group_members(kafka, stream, "normalize-1") == 0, "repeating it changes nothing"
    successor = AIOKafkaConsumer(
        name,
        bootstrap_servers=kafka,
        group_id=group,
        client_id="normalize-1",
        session_timeout_ms=SESSION_MS,
        max_poll_interval_ms=SESSION_MS,
    )
    try:
        await successor.start()
        async with asyncio.timeout(SESSION_MS / 2000):
            while len(successor.assignment()) < 2:
                await asyncio.sleep(0.02)
    finally:
        await successor.stop()
    assert time.monotonic() - began_s < SESSION_MS / 2000


@pytest.mark.parametrize(("client_id", "ids"), [("egest-1", ["a", "c"]), ("egest-2", ["b"]), ("egest", [])])
def test_members_are_chosen_by_their_whole_client_id(client_id, ids):
    groups: list[dict[str, Any]] = [
        {"members": [{"member_id": "a", "client_id": "egest-1"}, {"member_id": "b", "client_id": "egest-2"}]},
        {"members": []},
        {"members": [{"member_id": "c", "client_id": "egest-1"}]},
    ]
    assert member_ids(groups, client_id) == ids
