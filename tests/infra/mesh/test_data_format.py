"""The data folder of a newer release is refused before anything in it changes."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from hifi.runtime.errors import Misconfigured
from hifi_cli.app import command_line
from hifi_infra.mesh import running

NEWER = {"data_format": running.DATA_FORMAT + 1, "release": "9.9.9", "another": {"form": 1}}


def listing(folder: Path) -> list[tuple[str, int, bytes]]:
    return sorted(
        (str(path), path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    )


def test_a_folder_of_a_newer_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    running.state_file(tmp_path).write_bytes(orjson.dumps(NEWER))
    files_before = listing(tmp_path)
    for refused_call in (running.read, running.lock):
        with pytest.raises(Misconfigured, match=r"hifi 9\.9\.9.*nothing was changed"):
            refused_call(tmp_path)
    ups = ("up --pipes examples/hello", "up --colours", "demo", "demo --colours")
    for command in (*ups, "upgrade check"):
        result = CliRunner().invoke(command_line(), [*command.split(), "--data", str(tmp_path)])
        assert result.exit_code not in (0, 3), command
        text = " ".join(result.output.split())
        assert "9.9.9" in text, (command, text)
        assert "Install that release again, or name another folder with --data" in text, (command, text)
    for command in ("status", "down"):  # no mesh runs there
        result = CliRunner().invoke(command_line(), [command, "--data", str(tmp_path)])
        assert "no mesh is running" in result.output.lower()
    assert listing(tmp_path) == files_before


def test_a_folder_of_this_release_is_locked(tmp_path: Path) -> None:
    for content in (b"{", orjson.dumps({"data_format": running.DATA_FORMAT}), b"[]"):
        running.state_file(tmp_path).write_bytes(content)
        running.lock(tmp_path).close()
