"""Fixtures of the tests of egest."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent))

from egesting import Stream


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The loop that services run on."""
    return uvloop.EventLoopPolicy()


@pytest.fixture
async def stream(kafka: str) -> AsyncIterator[Stream]:
    """A stream of one partition."""
    one = Stream(kafka, 1)
    await one.create()
    yield one
    await one.producer.stop()
