"""On a machine without Java the commands that need it say how to install it, and touch nothing."""

import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hifi_cli.app import command_line
from hifi_infra.java import jdk


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that does not exist, on a system whose only program is apt-get."""
    apt_get = tmp_path / "bin" / "apt-get"
    apt_get.parent.mkdir()
    apt_get.touch(mode=0o755)
    monkeypatch.setattr(jdk, "SYSTEM_ROOT", tmp_path / "root")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", str(apt_get.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "data"


@pytest.mark.parametrize("command", ["up", "up --pipes examples/hello", "demo"])
def test_java_and_the_command_that_installs_it_are_named(data: Path, command: str) -> None:
    files_before = sorted(data.parent.iterdir())
    options = [["--data", str(data)]] if command != "demo" else [["--data", str(data)], []]
    for option in options:
        result = CliRunner().invoke(command_line(), [*command.split(), *option])
        assert result.exit_code == 1, result.output
        text = " ".join(result.output.split())
        assert "Java 17 or newer" in text
        assert "Install it: sudo apt-get install -y openjdk-17-jdk-headless" in text
        assert sorted(data.parent.iterdir()) == files_before, "nothing is touched"
