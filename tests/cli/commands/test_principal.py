"""`hifi principal create` replaces no token before the new one is in its file."""

from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner, Result

from hifi.control.principals import principal_store
from hifi.runtime.errors import Retryable
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


@pytest.mark.parametrize("error", [Retryable("Kafka is away"), KeyboardInterrupt()], ids=repr)
def test_a_token_that_kafka_did_not_take_leaves_no_file(
    tmp_path: Path, store: AsyncMock, error: BaseException
) -> None:
    store.side_effect = error
    assert created(tmp_path / "token").exit_code in (1, 130)
    assert list(tmp_path.iterdir()) == []
