"""Fixtures of the tests of collect."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Log file of the processes of a test."""
    return tmp_path / "log"
