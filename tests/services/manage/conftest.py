"""Fixtures of the management API."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.manage.managed_stream import Managed


@pytest.fixture
async def managed(kafka: str, tmp_path: Path) -> AsyncIterator[Managed]:
    """A stream with two instances of manage and the principal `ann`, an administrator."""
    managed_stream = Managed(kafka, tmp_path)
    try:
        await managed_stream.start()
        yield managed_stream
    finally:
        await managed_stream.stop()
