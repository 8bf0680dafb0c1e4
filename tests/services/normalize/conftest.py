"""Fixtures of the tests of normalize."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a process of this test writes."""
    return tmp_path / "log"
