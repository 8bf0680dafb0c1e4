"""PostgreSQL servers, Kafka and Kafka Connect for the tests of changes."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.equivalence.run import Systems, systems


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cdc(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Systems]:
    """The systems of a test."""
    folder = tmp_path_factory.mktemp("equivalence")
    for parent in (folder, *list(folder.parents)[:2]):
        parent.chmod(0o755)
    async with systems(folder) as cdc_systems:
        yield cdc_systems
