"""`hifi principal create` replaces no token before the new one is in its file."""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner, Result

from hifi.control.principals import principal_store
from hifi.control.principals.principal import Principals, token_sha256
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_cli.app import command_line


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> AsyncMock:
    """Creates the principal."""
    created = AsyncMock()
    monkeypatch.setattr(principal_store, "create_principal", created)
    return created


def created(token_file: Path) -> Result:
    options = ["--role", "admin", "--token-file", str(token_file), "--kafka", "127.0.0.1:9"]
    return CliRunner().invoke(command_line(), ["principal", "create", "ann", *options])


def test_the_token_is_in_its_file_before_it_counts(tmp_path: Path, store: AsyncMock) -> None:
    token_file = tmp_path / "token"

    async def create(*_: object, token: str, **__: object) -> str:
        assert token_file.read_text() == f"{token}\n"
        assert token_file.stat().st_mode & 0o777 == 0o600
        return token

    store.side_effect = create
    result = created(token_file)
    assert result.exit_code == 0, result.output
    assert len(token_file.read_text().strip()) >= 32


def test_a_token_that_cannot_be_written_replaces_none(tmp_path: Path, store: AsyncMock) -> None:
    assert created(tmp_path / "missing" / "token").exit_code == 1
    (tmp_path / "token").write_text("other")
    result = created(tmp_path / "token")
    assert (result.exit_code, "name a new file" in result.stderr) == (1, True)
    assert (tmp_path / "token").read_text() == "other"
    store.assert_not_called()


def test_a_principal_that_is_refused_leaves_no_file(tmp_path: Path, store: AsyncMock) -> None:
    store.side_effect = Misconfigured("the name is that of a person")
    assert created(tmp_path / "token").exit_code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [Retryable("Kafka is away"), KeyboardInterrupt()], ids=repr)
def test_a_token_that_may_be_in_force_stays_in_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The record is written, and the write of the outcome in the audit fails."""
    written_principals = Principals()

    async def write(_: str, __: str, *writes: tuple[str, Sequence[Record]]) -> None:
        [record] = writes[1][1]
        written_principals.take(record.key, record.value, 0)
        raise error

    monkeypatch.setattr(principal_store, "read_topics", AsyncMock())
    monkeypatch.setattr(principal_store, "write_records", write)
    result = created(tmp_path / "token")
    assert result.exit_code in (1, 130)
    assert "may be in force" in result.stderr
    token = (tmp_path / "token").read_text().strip()
    assert written_principals.by_name["ann"].token_sha256 == token_sha256(token)
