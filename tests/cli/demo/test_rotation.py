"""Passwords and certificate of a secured Kafka are replaced under load: every accepted event is delivered once."""

import asyncio
import secrets
from pathlib import Path

import pytest

from hifi_cli.demo.flights_demo import Demo
from hifi_cli.demo.load_test import LoadTest
from hifi_cli.demo.verify import read_send_log
from hifi_cli.demo.workspace import Workspace
from hifi_infra.kafka.credentials import write_secret
from hifi_infra.kafka.scram_users import set_passwords
from hifi_infra.kafka.secured_stream import stream_users
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import Plan

RATE, SECONDS = 50, 90


@pytest.mark.more  # without load: test_a_client_connects_again_with_replaced_credentials
@pytest.mark.timeout(400)
async def test_a_rotation_under_load_loses_nothing(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path)
    mesh = Mesh(Plan(tmp_path, port=workspace.ingest_port, secure=True, env=workspace.secrets))
    demo = Demo(LoadTest(workspace, mesh), RATE, SECONDS)
    try:
        running = asyncio.create_task(demo.run())
        while demo.load_test.progress.sent < RATE * 5:
            assert not running.done(), await running
            await asyncio.sleep(0.1)
        restarts = {instance.name: instance.restarts for instance in mesh.all()}
        await _rotate(mesh)
        numbers = await running
        await demo.stop()
    finally:
        await demo.kill()
    # While its only broker restarts, for 20 s on slow cores, ingest refuses events; what it accepted counts.
    wrong_counts = {name: numbers[name] for name in ("lost", "duplicates", "mismatched", "dead_lettered")}
    assert not any(wrong_counts.values()), numbers
    assert numbers["delivered"] == numbers["accepted"]
    last_event = max(read_send_log(workspace.send_log).values(), key=lambda event: event.sent_ns)
    assert last_event.accepted, "ingest accepts again with the new passwords, before the load ends"
    restarted = {instance.name for instance in mesh.all() if instance.restarts != restarts[instance.name]}
    assert restarted == {"enrich-1"}, "no other service had to be restarted"


async def _rotate(mesh: Mesh) -> None:
    """Replace all passwords and the brokers' certificate, restart enrich, and end all connections."""
    assert mesh.cluster is not None
    credentials = mesh.cluster.credentials
    assert credentials is not None
    passwords = {user: secrets.token_urlsafe(32) for user in stream_users(mesh.topics).values()}
    for user, password in passwords.items():
        write_secret(credentials.password_file(user), password)
    await set_passwords(mesh.bootstrap, passwords)
    credentials.replace_broker_certificate()
    await processes(mesh)["enrich-1"].kill()
    await mesh.cluster.kill_broker(1)  # the mesh starts it again
