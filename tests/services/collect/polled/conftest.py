"""Fixtures of the tests of tables and folders in one stream."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.objects.polled_objects import PolledFolder
from tests.support.postgres.polled_table import PolledTable
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer


@pytest.fixture
def folder(tmp_path: Path) -> PolledFolder:
    """An empty folder."""
    return PolledFolder(tmp_path / "objects")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PolledTable]:
    """A new, empty table of a PostgreSQL of its own."""
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server, PolledTable(server, tmp_path) as table:
        yield table
