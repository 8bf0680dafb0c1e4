"""Fixtures of the tests of collect."""

from pathlib import Path

import pytest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Log file of the processes of a test."""
    return tmp_path / "log"
