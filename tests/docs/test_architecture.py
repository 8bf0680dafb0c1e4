"""docs/architecture.md leads a reader to files and folders that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = "libs|services|infra|cli|tests|bench|docs|examples|requirements"
PATHS = sorted(
    set(re.findall(rf"`((?:{TOP})/[\w./-]*)`", (ROOT / "docs/architecture.md").read_text("utf-8")))
)


def test_the_page_names_paths():
    assert len(PATHS) > 50


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_page_exists(path):
    found = ROOT / path
    assert found.is_dir() if path.endswith("/") else found.is_file()
