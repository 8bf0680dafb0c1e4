"""Work that goes on beside a test in a namespace without nodes or Gateways."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine


@contextlib.asynccontextmanager
async def working_beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run endless work until the block ends.

    Raises:
        AssertionError: the work ended or failed before.
    """
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError), outcome
