"""Kafka clients with hifi's options: members of a group, readers without a group; connect and close within bounds."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from aiokafka_cooperative import CooperativeConsumer, IncompatibleAiokafkaError
from hifi.kafka.adaptive_fetcher import AdaptiveFetcher, check_fetcher
from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Misconfigured

_HEARTBEATS_A_SESSION = 20
_NO_POLL_LIMIT_MS = 2**31 - 1
"""The watchdog of the consumer (hifi.kafka.watchdog) replaces aiokafka's limit on the time between polls."""


def group_consumer(
    settings: ServiceSettings,
    group: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> CooperativeConsumer:
    """A member of a consumer group, not started: cooperative, explicit commits, from the earliest offset.

    Args:
        settings: bootstrap servers, client id and the group's time-outs.
        group: the group's id.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaConsumer, or other values for those set here.

    Raises:
        Misconfigured: the installed aiokafka is not supported.
    """
    defaults: dict[str, Any] = {
        **client_options(settings.kafka, security, pipe),
        "client_id": settings.instance,
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": int(settings.session_timeout_s * 1000),
        "heartbeat_interval_ms": int(settings.session_timeout_s * 1000 / _HEARTBEATS_A_SESSION),
        "rebalance_timeout_ms": int(settings.rebalance_timeout_s * 1000),
        "max_poll_interval_ms": _NO_POLL_LIMIT_MS,
        "fetcher_class": AdaptiveFetcher,
        "fetch_max_wait_ms": 0,
    }
    try:
        check_fetcher()
        return CooperativeConsumer(**(defaults | options))
    except IncompatibleAiokafkaError as error:
        raise Misconfigured(str(error)) from None


@contextlib.asynccontextmanager
async def topic_consumer(
    bootstrap: str,
    client_id: str | None = None,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started consumer without a group, to `assign`; closed at the end of the block.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the broker's logs; None: aiokafka's own.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaConsumer.

    Raises:
        aiokafka.errors.KafkaError, OSError: no broker answers.
    """
    named = {} if client_id is None else {"client_id": client_id}
    consumer = AIOKafkaConsumer(
        **client_options(bootstrap, security, pipe),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **named,
        **options,
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await close(consumer)


async def connect(
    start: Callable[[], Awaitable[None]], on_failure: Callable[[Exception], None] = lambda _: None
) -> None:
    """Start a client, again and again until a broker answers; bound it with `asyncio.timeout` if it must end.

    Args:
        start: of the client.
        on_failure: called with the error of each attempt.
    """
    for failures in itertools.count():
        try:
            await start()
            return
        except (KafkaError, OSError) as error:
            on_failure(error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # an attempt may lose that while it fails
            raise asyncio.CancelledError
        await asyncio.sleep(backoff_s(failures))


async def close(client: Any, timeout_s: float = 5) -> None:
    """Stop a client within a bound, seconds; errors of Kafka and the network are ignored.

    aiokafka's own `stop` can hang while Kafka is down (its issue 1101). Right after `start` it can raise
    CancelledError, from a task of its own that had not begun; that must not cancel the caller.
    """
    stopping = asyncio.ensure_future(client.stop())
    await asyncio.wait({stopping}, timeout=timeout_s)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=1)
    elif not stopping.cancelled():
        error = stopping.exception()
        if error is not None and not isinstance(error, KafkaError | OSError | TimeoutError):
            raise error
