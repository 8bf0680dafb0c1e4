"""A cache serves its last good value, and says so when that is too old."""

import asyncio

import pytest

from hifi.runtime.cache import Cache
from hifi.runtime.errors import Misconfigured, Retryable


class ChangingSource:
    def __init__(self) -> None:
        self.value = 1
        self.broken = False
        self.now_s = 0.0

    async def load(self) -> int:
        if self.broken:
            raise Misconfigured("the file is gone")
        return self.value


async def test_it_must_be_loaded_before_it_serves() -> None:
    with pytest.raises(Retryable, match="not been loaded"):
        Cache("rows", ChangingSource().load).get()


async def test_a_first_load_that_fails_is_told_to_the_caller() -> None:
    source = ChangingSource()
    source.broken = True
    with pytest.raises(Misconfigured, match="gone"):
        await Cache("rows", source.load).start()


async def test_only_a_changed_value_is_announced() -> None:
    source, announced = ChangingSource(), list[int]()
    cache = Cache("rows", source.load, changed=announced.append)
    await cache.refresh()
    await cache.refresh()
    source.value = 2
    await cache.refresh()
    assert (cache.get(), announced) == (2, [2])


async def test_refreshes_go_on_after_whatever_a_loader_raised() -> None:
    times = 0

    async def load() -> int:
        nonlocal times
        times += 1
        if times == 2:
            raise ZeroDivisionError
        return times

    cache = Cache("rows", load, refresh_s=0.01)
    await cache.start()
    async with asyncio.timeout(10):
        while cache.get() < 3:
            await asyncio.sleep(0.01)
    await cache.stop()


async def test_the_old_value_is_served_until_it_expires() -> None:
    source = ChangingSource()
    cache = Cache("rows", source.load, expire_s=10, clock=lambda: source.now_s)
    await cache.refresh()
    source.broken, source.now_s = True, 10
    with pytest.raises(Misconfigured):
        await cache.refresh()
    assert cache.get() == 1
    source.now_s = 10.1
    with pytest.raises(Retryable, match="expired"):
        cache.get()
