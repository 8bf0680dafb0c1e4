"""The next batch is made while one is worked on; errors and the end come in their place."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from hifi.pipe.sources.read_ahead import read_ahead
from hifi.runtime.errors import Retryable


class Batches:
    """Batches 1, 2, … and what has become of them."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.made = 0
        self.closed = False
        self.hangs = asyncio.Event()
        self._count, self._error = count, error

    async def all(self) -> AsyncGenerator[int, None]:
        try:
            while self.made < self._count:
                self.made += 1
                yield self.made
            if self._error is not None:
                raise self._error
            await self.hangs.wait()
        finally:
            self.closed = True


async def yield_to_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_batch_is_made_ahead_and_no_more() -> None:
    batches = Batches(3)
    batches.hangs.set()
    numbers = []
    async with aclosing(read_ahead(batches.all())) as batches_ahead:
        async for batch in batches_ahead:
            await yield_to_loop()
            numbers.append((batch, batches.made))
    assert numbers == [(1, 2), (2, 3), (3, 3)]
    assert batches.closed


async def test_an_error_comes_after_the_batches_before_it() -> None:
    batches, numbers = Batches(2, Retryable("away")), list[int]()

    async def read() -> None:
        async with aclosing(read_ahead(batches.all())) as batches_ahead:
            async for batch in batches_ahead:
                await yield_to_loop()
                numbers.append(batch)

    with pytest.raises(Retryable, match="away"):
        await read()
    assert numbers == [1, 2]
    assert batches.closed


@pytest.mark.parametrize("error", [None, Retryable("away")])
async def test_whoever_ends_early_ends_what_is_being_made(error: Exception | None) -> None:
    batches = Batches(1, error)
    async with aclosing(read_ahead(batches.all())) as batches_ahead:
        async for _ in batches_ahead:
            await yield_to_loop()
            break
    assert batches.closed
