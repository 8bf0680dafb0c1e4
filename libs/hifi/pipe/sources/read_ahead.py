"""Make the next batch of a source while the last one is written."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")


async def read_ahead(batches: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The batches of an iterator, each of which is made while the caller works on the one before it.

    Close it with `contextlib.aclosing`. What is being made then is cancelled, and waited for.

    Args:
        batches: an error of it is raised here, after the batches before it. It is closed at the end.
    """
    next_batch = asyncio.create_task(_next(batches))
    try:
        while (batch := await next_batch) is not None:
            next_batch = asyncio.create_task(_next(batches))
            yield batch
    finally:
        next_batch.cancel()
        await asyncio.wait({next_batch})
        if not next_batch.cancelled():
            next_batch.exception()  # the caller has ended otherwise
        await batches.aclose()


async def _next(batches: AsyncGenerator[T, None]) -> T | None:
    return await anext(batches, None)
