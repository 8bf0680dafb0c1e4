"""Fixtures of the tests of egest."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from tests.support.egest.egest_stream import EgestStream


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that services run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stream(kafka: str) -> AsyncIterator[EgestStream]:
    """A stream of one partition."""
    egest_stream = EgestStream(kafka, 1)
    await egest_stream.create()
    yield egest_stream
    await egest_stream.producer.stop()
