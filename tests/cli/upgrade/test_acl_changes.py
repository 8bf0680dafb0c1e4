"""`hifi upgrade check` names missing ACLs, but not those of users that the mesh does without."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner

from hifi.kafka.security.access import OPTIONAL, Acl, user_access
from hifi.kafka.topics import Topics
from hifi_cli.app import command_line
from hifi_cli.commands import upgrade

ENTRIES = {f"User:s.{role}": role_access.acls() for role, role_access in user_access(Topics("s")).items()}


@pytest.fixture
def existing(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Acl]]:
    """The entries of a Kafka, all of them at first."""
    kafka_entries = {principal: list(acls) for principal, acls in ENTRIES.items()}

    async def missing(_: str, declared: Mapping[str, Iterable[Acl]]) -> list[tuple[str, Acl]]:
        return [
            (principal, acl)
            for principal, acls in declared.items()
            for acl in acls
            if acl not in kafka_entries[principal]
        ]

    monkeypatch.setattr(upgrade, "missing_acls", missing)
    monkeypatch.setattr(upgrade, "topic_facts", AsyncMock(return_value={}))
    for variable in ("HIFI_CONTROL", "HIFI_TIERS"):
        monkeypatch.delenv(variable, raising=False)
    return kafka_entries


def missing_of(data: Path) -> list[str]:
    """Principals whose entries are missing."""
    arguments = ["upgrade", "check", "--data", str(data), "--kafka", "127.0.0.1:9", "--stream", "s", "--json"]
    result = CliRunner().invoke(command_line(), arguments)
    assert result.exit_code == upgrade.CHANGES, result.output  # topics are missing in any case
    return sorted({row["name"] for row in json.loads(result.stdout) if row["kind"] == "ACL"})


def test_a_user_that_a_mesh_may_do_without_is_named_only_if_it_has_other_entries(
    existing: dict[str, list[Acl]], tmp_path: Path
) -> None:
    assert missing_of(tmp_path) == []
    for role in OPTIONAL:
        existing[f"User:s.{role}"].clear()
    assert missing_of(tmp_path) == []
    existing["User:s.connect"].append(ENTRIES["User:s.connect"][0])
    existing["User:s.view"].clear()
    existing["User:s.egest"].pop()
    assert missing_of(tmp_path) == ["User:s.connect", "User:s.egest", "User:s.view"]
