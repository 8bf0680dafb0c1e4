"""The lists of packages in the tools' settings name each package of the workspace."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _members(*arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "requirements/members.py"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_each_package_is_a_member() -> None:
    folders = {
        str(file.parent.relative_to(ROOT))
        for folder in ("libs", "infra", "cli", "connectors", "services")
        for file in (ROOT / folder).rglob("pyproject.toml")
    }
    assert set(_members()) == folders
    assert {"hifi-libs", "hifi-http", "hifi-egest"} <= set(_members("--names"))
    assert len(_members("--names")) == len(folders)


def test_types_and_imports_of_each_package_are_checked() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    paths = {path for path in tools["mypy"]["mypy_path"] if not path.startswith("bench")}
    assert paths == set(_members())
    packages = {file.parent.name for folder in _members() for file in (ROOT / folder).glob("*/__init__.py")}
    assert set(tools["importlinter"]["root_packages"]) == packages
