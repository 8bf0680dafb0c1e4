"""Requests to the API of observe in tests."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.support.observe_principal import VIEWER

from hifi.runtime.clock import now_us


async def ask(url: str, path: str) -> Any:
    async with aiohttp.ClientSession(headers=VIEWER) as session, session.get(url + path) as answer:
        return await answer.json(content_type=None)


async def until(url: str, path: str, is_good: Callable[[Any], object], within_s: float = 90) -> Any:
    """The answer as soon as it is good."""
    body = None
    try:
        async with asyncio.timeout(within_s):
            while not is_good(body := await ask(url, path)):
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{path} stayed {body}")
    return body


def past_minute() -> int:
    return now_us() // 60_000_000 - 3
