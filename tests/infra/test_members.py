"""The lists of packages in the tools' settings name each package of the workspace."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _members(*arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "requirements/members.py"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_each_package_is_a_member() -> None:
    folders = {
        str(file.parent.relative_to(ROOT))
        for folder in ("libs", "infra", "cli", "connectors", "services", "release")
        for file in (ROOT / folder).rglob("pyproject.toml")
    }
    assert set(_members()) == folders
    assert {"hifi-libs", "hifi-http", "hifi-egest"} <= set(_members("--names"))
    assert len(_members("--names")) == len(folders)


def test_types_and_imports_of_each_package_are_checked() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    scripts = {"infra/docker", "bench", "bench/peers/bare", "bench/peers/faststream_chain"}
    assert set(tools["mypy"]["mypy_path"]) == {*_members(), *scripts}
    packages = {file.parent.name for folder in _members() for file in (ROOT / folder).glob("*/__init__.py")}
    assert set(tools["importlinter"]["root_packages"]) == packages


@pytest.mark.parametrize("python", ["3.6", "3.10"])
def test_a_python_too_old_is_told_what_to_do(python: str) -> None:
    programs = [shutil.which(f"python{python}"), *Path.home().glob(f".pyenv/versions/{python}.*/bin/python")]
    program = next((program for program in programs if program and _runs(program)), None)
    if program is None:
        pytest.skip(f"no Python {python} is installed")
    completed = subprocess.run(
        [program, ROOT / "requirements/members.py"], check=False, capture_output=True, text=True
    )
    assert completed.returncode == 1
    assert f"hifi needs Python 3.11 or newer and this is {python}: run `make PYTHON=" in completed.stderr
    assert "Traceback" not in completed.stderr


def _runs(program: str | Path) -> bool:
    """Whether it is a Python, and no shim for one that is not chosen."""
    return subprocess.run([program, "-c", ""], check=False, capture_output=True).returncode == 0
