"""Fixtures of the tests of SQL sources: a real PostgreSQL, and a table of its own for each test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "egest" / "senders"))

from polled_table import PolledTable
from postgres_server import PROGRAMS, PostgresServer


@pytest.fixture(scope="session")
def polled_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this session."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def table(polled_postgres: PostgresServer, tmp_path: Path) -> Iterator[PolledTable]:
    """A new, empty table."""
    with PolledTable(polled_postgres, tmp_path) as made:
        yield made
