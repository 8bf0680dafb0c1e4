"""The retrier, running in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.support.egest.egest_stream import EgestStream, until

from hifi.runtime.service import Service
from hifi_retrier.__main__ import retrier
from hifi_retrier.settings import RetrierSettings


@contextlib.asynccontextmanager
async def retrying(stream: EgestStream, **settings: Any) -> AsyncIterator[Service]:
    """The retrier on a stream while the block runs."""
    declared = RetrierSettings(
        kafka=stream.kafka,
        stream=stream.topics.stream,
        commit_interval_s=0.1,
        **({"tiers": stream.topics.tiers} | settings),
    )
    service = Service("retrier", declared)
    task = asyncio.create_task(retrier(service, declared))
    await asyncio.sleep(0)  # it blocks readiness before its first await
    await until(lambda: service.health.ready or task.done())
    try:
        yield service
    finally:
        service.stop()
        async with asyncio.timeout(10):
            await task
