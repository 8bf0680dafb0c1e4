"""Principals by the commands of `hifi`, and the first one, on a real mesh of stand-ins with the real management API."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hifi.control.principals.principal import Principal, Principals, Role, token_sha256
from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan, command
from hifi_infra.ports import free_port

STUB = Path(__file__).parents[2] / "support" / "programs" / "stub_service.py"
WITHIN_S = 300


def hifi(mesh: Mesh, *arguments: str) -> str:
    """The output of a command about the mesh."""
    topics = mesh.plan.control_topics
    assert topics is not None
    settings = {"HIFI_KAFKA": mesh.bootstrap, "HIFI_CONTROL": topics.control}
    process = subprocess.run(
        [Path(sys.executable).with_name("hifi"), *arguments],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


async def list_principals(mesh: Mesh) -> list[dict[str, Any]]:
    """Principals in the output of `hifi principal list`."""
    return list(json.loads(await asyncio.to_thread(hifi, mesh, "principal", "list", "--json")))


async def statuses(url: str, token: str, status: int) -> None:
    """Call the API until it answers with the status."""
    end, last_status = time.monotonic() + WITHIN_S, None
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as session:
        while last_status != status:
            assert time.monotonic() < end, last_status
            try:
                async with session.get(f"{url}/api/v1/pipes") as answer:
                    last_status = answer.status
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_the_mesh_makes_the_first_principal_and_commands_make_and_revoke_others(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fleet,
        "command",
        lambda service: command(service) if service == "manage" else [sys.executable, str(STUB), service],
    )
    plan = Plan(
        data=tmp_path / "data",
        stream=f"m{free_port()}",
        kafka=kafka,
        partitions=2,
        port=free_port(),
        manage_port=free_port(),
        control=True,
    )
    mesh = Mesh(plan)
    mesh.prepare()
    await mesh.start([])
    try:
        assert plan.manage is not None
        assert plan.token.stat().st_mode & 0o777 == 0o600
        first_token, admin = plan.token.read_text().strip(), f"admin@{socket.gethostname()}"
        await statuses(plan.manage, first_token, 200)
        file = tmp_path / "ann.token"
        await asyncio.to_thread(
            hifi,
            mesh,
            "principal",
            "create",
            "ann",
            "--role",
            "viewer",
            "--expires",
            "1h",
            "--token-file",
            str(file),
        )
        assert file.stat().st_mode & 0o777 == 0o600
        await statuses(plan.manage, file.read_text().strip(), 200)
        principals = await list_principals(mesh)
        assert [(principal["name"], principal["role"]) for principal in principals] == [
            (admin, "admin"),
            ("ann", "viewer"),
        ]
        assert not any("token" in field for principal in principals for field in principal)
        async with asyncio.timeout(30):
            while any(principal["last_used_us"] is None for principal in await list_principals(mesh)):
                await asyncio.sleep(1)
        await asyncio.to_thread(hifi, mesh, "principal", "revoke", admin)
        await statuses(plan.manage, first_token, 401)
        entries = json.loads(await asyncio.to_thread(hifi, mesh, "audit", "--json"))
        assert [(entry["what"], entry["subject"], entry["outcome"]) for entry in entries] == [
            ("create", f"principal/{admin}", "done"),
            ("create", "principal/ann", "done"),
            ("revoke", f"principal/{admin}", "done"),
        ]
        assert first_token not in json.dumps(entries)
        person = "oidc:bob@example.com"
        await asyncio.to_thread(hifi, mesh, "principal", "revoke", person)
        principals = await list_principals(mesh)
        assert [(listed_person["name"], listed_person["revoked"]) for listed_person in principals[1:]] == [
            (person, True)
        ]
        await asyncio.to_thread(hifi, mesh, "principal", "restore", person)
        assert [listed_person["name"] for listed_person in await list_principals(mesh)] == ["ann"]
        entries = json.loads(await asyncio.to_thread(hifi, mesh, "audit", "--json"))
        assert [(entry["what"], entry["subject"], entry["outcome"]) for entry in entries[3:]] == [
            ("revoke", f"principal/{person}", "done"),
            ("restore", f"principal/{person}", "done"),
        ]
    finally:
        await mesh.stop()


def test_roles_include_those_before_them() -> None:
    assert [[role.includes(other_role) for other_role in Role] for role in Role] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_a_record_that_cannot_be_read_revokes_its_principal() -> None:
    principals = Principals()
    record = Principal("ann", Role.ADMIN, (), token_sha256("t"), None, "x", 1).record()
    principals.take(record.key, record.value, 0)
    assert principals.of_token("t", 2) is not None
    with pytest.raises(ValueError, match="not the record of a principal"):
        principals.take(b"ann", b"{}", 1)
    assert principals.of_token("t", 2) is None
