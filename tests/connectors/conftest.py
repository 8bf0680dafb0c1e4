"""Fixtures of the tests of connectors: the engines that read and write with them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop
from tests.support.egest.egest_stream import EgestStream


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that services run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Log file of the processes of a test."""
    return tmp_path / "log"


@pytest.fixture
async def stream(kafka: str) -> AsyncIterator[EgestStream]:
    """A stream of one partition, which egest delivers."""
    stream = EgestStream(kafka, 1)
    await stream.create()
    yield stream
    await stream.producer.stop()
