"""PostgreSQL servers, Kafka and Kafka Connect for the tests of changes."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1]))

from equivalence.run import Systems, systems


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cdc(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Systems]:
    """The systems of a test."""
    folder = tmp_path_factory.mktemp("equivalence")
    for parent in (folder, *list(folder.parents)[:2]):
        parent.chmod(0o755)
    async with systems(folder) as made:
        yield made
