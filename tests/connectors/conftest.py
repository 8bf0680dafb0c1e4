"""Fixtures of the tests of connectors: the engines that read and write with them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "connectors"))
sys.path.insert(0, str(Path(__file__).parents[1] / "services/collect"))
sys.path.insert(0, str(Path(__file__).parents[1] / "services/egest"))
sys.path.insert(0, str(Path(__file__).parents[1] / "services/retrier"))

from egest_stream import EgestStream

pytest.register_assert_rewrite("destination_contract", "kind_under_test", "polled_reader", "object_stores")


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
