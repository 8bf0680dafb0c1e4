"""Fixtures of the tests of PostgreSQL: a real server, and a table of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres.polled_table import PolledTable
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer
from tests.support.postgres.postgres_table import PostgresTable


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this session."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresTable:
    monkeypatch.setenv(PostgresTable.VARIABLE, postgres_server.url)
    return PostgresTable(postgres_server.url)


@pytest.fixture
def table(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[PolledTable]:
    """A new, empty table that collect reads."""
    with PolledTable(postgres_server, tmp_path) as table:
        yield table
