"""`hifi keys` with a key that is issued already, of the pipe or of another one: without Kafka."""

from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from hifi.kafka.last_uses import LastUses
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key
from hifi_cli.app import command_line
from hifi_cli.commands import keys
from hifi_cli.mesh_state.target import Target


def issued(letter: str, pipe: str) -> IssuedKey:
    return issued_key(letter * 40, pipe, origins=(), expires_us=None, author="ann", at_us=1)


KEY_OF_A, OTHER_KEY_OF_A, KEY_OF_B = issued("a", "pipe-a"), issued("o", "pipe-a"), issued("b", "pipe-b")


class WrittenKeys:
    """The keys of two colours, of which the second lacks them, and the changes to them."""

    def __init__(self) -> None:
        self.all_keys = IssuedKeys()
        self.changes: list[tuple[dict[str, object], list[IssuedKey]]] = []
        for write_key in (KEY_OF_A, OTHER_KEY_OF_A, KEY_OF_B):
            self.all_keys.take(write_key.id.encode(), write_key.record().value, 0)

    async def read(self, target: Any, *_: Any) -> Any:
        return keys._State(self.all_keys if target == "blue" else IssuedKeys(), LastUses())

    async def write(self, *arguments: Any) -> None:
        _, _, keys_before, new_keys, *_ = arguments
        self.changes.append((keys_before, new_keys))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> WrittenKeys:
    written_keys, targets = WrittenKeys(), cast(list[Target], ["blue", "green"])
    monkeypatch.setattr(keys, "_targets", lambda *_: targets)
    monkeypatch.setattr(keys, "_read", written_keys.read)
    monkeypatch.setattr(keys, "_require_published", written_keys.read)
    monkeypatch.setattr(keys, "_write", written_keys.write)
    return written_keys


@pytest.mark.parametrize("command", [["rotate", KEY_OF_A.id], ["issue", "pipe-a"]])
def test_no_pipe_gets_the_key_of_another_one(
    written: WrittenKeys, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "b.key"
    file.write_text("b" * 40)
    result = CliRunner().invoke(command_line(), ["keys", *command, "--key-file", str(file)])
    assert result.exit_code == 1
    assert "is one of the pipe pipe-b; give each its own" in " ".join(result.stderr.split())
    assert written.changes == []


def test_the_audit_of_a_rotation_has_both_keys_as_they_were_before(
    written: WrittenKeys, tmp_path: Path
) -> None:
    file = tmp_path / "other.key"
    file.write_text("o" * 40)
    command = ["keys", "rotate", KEY_OF_A.id, "--key-file", str(file)]
    result = CliRunner().invoke(command_line(), command)
    assert result.exit_code == 0, result.output
    ((keys_before, new_keys),) = written.changes
    assert keys_before == {KEY_OF_A.id: KEY_OF_A.json(), OTHER_KEY_OF_A.id: OTHER_KEY_OF_A.json()}
    assert [(key.id, key.pipe) for key in new_keys] == [
        (OTHER_KEY_OF_A.id, "pipe-a"),
        (KEY_OF_A.id, "pipe-a"),
    ]
