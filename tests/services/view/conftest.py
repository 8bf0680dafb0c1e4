"""Fixtures of the tests of view."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from tests.support.view.view_stream import KEY, OTHER_KEY, ViewStream


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that services run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stream(kafka: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ViewStream]:
    """A stream of two partitions with the pipe `flights`, and the read keys of its views."""
    monkeypatch.setenv("TEST_VIEW_KEY", KEY)
    monkeypatch.setenv("TEST_OTHER_VIEW_KEY", OTHER_KEY)
    view_stream = ViewStream(kafka)
    await view_stream.create()
    yield view_stream
    await view_stream.producer.stop()
