"""Fixtures of the tests of the examples: their package, as if it were installed."""

import os
import tomllib
from pathlib import Path

import pytest
from tests.support.connectors.sqlite_table import SqliteTable

SQLITE = Path(__file__).parents[3] / "examples/connectors/sqlite"


@pytest.fixture
def sqlite_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the package of the example, here and in new processes; returns the folder of its metadata."""
    project = tomllib.loads((SQLITE / "pyproject.toml").read_text("utf-8"))["project"]
    site = tmp_path / "site"
    metadata = site / f"sqlite_connector-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    folders = [str(site), str(SQLITE)]
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([*folders, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    )
    return site


@pytest.fixture
def sqlite(sqlite_kind: Path, tmp_path: Path) -> SqliteTable:
    return SqliteTable(tmp_path)
