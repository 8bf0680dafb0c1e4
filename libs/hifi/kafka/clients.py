"""The only module that makes aiokafka's clients, with their security, client id and limits; connect and close them.

A broker's logs and quotas name clients by their id. It is the name of the instance (`ServiceSettings.instance`); on the
cluster of a destination or a database's changes `hifi-<pipe>`; and `hifi-<task>` where any process may ask, such as a
command.

What a function sets holds for all its clients; a caller names what differs (`options`), and the rest is aiokafka's.
"""

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, ProducerClosed
from aiokafka.protocol.transaction import EndTxnResponse_v0

from aiokafka_cooperative import CooperativeConsumer, IncompatibleAiokafkaError
from hifi.kafka.adaptive_fetcher import AdaptiveConsumer, AdaptiveFetcher, check_fetcher
from hifi.kafka.batches import forget_errors
from hifi.kafka.own_records import RecordConsumer
from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Misconfigured

MAX_REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Of a producer that sends whole batches."""
_HEARTBEATS_A_SESSION = 20
_CANCELLATIONS = 3
"""Of a task of aiokafka: at the first one its sender waits for its requests."""
_UNANSWERED: weakref.WeakSet[AIOKafkaProducer] = weakref.WeakSet()
"""Producers of which a request had no answer, or an uncertain one."""
_NO_POLL_LIMIT_MS = 2**31 - 1
"""The watchdog of the consumer (hifi.kafka.watchdog) replaces aiokafka's limit on the time between polls."""


def plain_producer(
    bootstrap: str,
    client_id: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AIOKafkaProducer:
    """A producer, not started: idempotent, acknowledged by all in-sync replicas.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaProducer.

    Raises:
        Misconfigured: a setting of the security is wrong, or a file cannot be used.
    """
    return AIOKafkaProducer(
        **client_options(bootstrap, security, pipe),
        client_id=client_id,
        acks="all",
        enable_idempotence=True,
        **options,
    )


def transactional_producer(
    bootstrap: str,
    transactional_id: str,
    client_id: str,
    *,
    timeout_s: float,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AIOKafkaProducer:
    """A producer of transactions, not started. Its start fences every earlier producer with the same id.

    Args:
        bootstrap: `HOST:PORT,…`.
        transactional_id: the same for all that may write, of which only the last one to start can.
        client_id: name in the logs and quotas of the broker.
        timeout_s: Kafka aborts a transaction that is open for longer, seconds.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaProducer.

    Raises:
        Misconfigured: a setting of the security is wrong, or a file cannot be used.
    """
    producer = AIOKafkaProducer(
        **client_options(bootstrap, security, pipe),
        client_id=client_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=int(timeout_s * 1000),
        acks="all",
        max_request_size=MAX_REQUEST_BYTES,
        **options,
    )
    _wait_for_brokers(producer)
    _note_unanswered(producer)
    return producer


def may_arrive_late(producer: AIOKafkaProducer) -> bool:
    """Whether a request of a `transactional_producer` had no answer, such as over a connection that broke.

    Or one to end a transaction had an error for an answer, behind which it may have been accepted.

    It may arrive after its repetition, and end a later transaction of the producer in its middle (KIP-890): use another
    producer for the next one, whose start fences such requests.
    """
    return producer in _UNANSWERED


def _note_unanswered(producer: AIOKafkaProducer) -> None:
    connections = producer.client
    send = connections.send

    async def send_and_note(*arguments: Any, **options: Any) -> Any:
        try:
            answer = await send(*arguments, **options)
        except BaseException:  # cancelled, too
            _UNANSWERED.add(producer)
            raise
        if isinstance(answer, EndTxnResponse_v0) and answer.error_code:
            _UNANSWERED.add(producer)
        return answer

    connections.send = send_and_note


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
        settings: bootstrap servers, the client id, which is the name of the instance, and the group's time-outs.
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
        consumer = CooperativeConsumer(**(defaults | options))
    except IncompatibleAiokafkaError as error:
        raise Misconfigured(str(error)) from None
    _wait_for_brokers(consumer)
    return consumer


def _wait_for_brokers(client: Any) -> None:
    """Let a client wait when a cluster names no broker, as after all of them were frozen or restarted.

    aiokafka 0.14 asks any known broker for the coordinator, and where none is known fails with an AssertionError, which
    it does not repeat.
    """
    connections = _connections(client)
    assert connections is not None, client
    lookup = connections.coordinator_lookup

    async def lookup_or_wait(coordinator_type: int, coordinator_key: str) -> int:
        if not connections.cluster.brokers():
            raise NodeNotReadyError("the cluster names no broker")
        coordinator: int = await lookup(coordinator_type, coordinator_key)
        return coordinator

    connections.coordinator_lookup = lookup_or_wait


def _connections(client: Any) -> AIOKafkaClient | None:
    """The connections of a producer, a consumer or an admin client; only a producer has a public attribute for them."""
    return getattr(client, "client", None) or getattr(client, "_client", None)


def assigned_consumer(
    bootstrap: str,
    client_id: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AIOKafkaConsumer:
    """A consumer that is not a member of a group, not started: to `assign`; explicit commits.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaConsumer, such as `auto_offset_reset`, which is `latest` by default.

    Raises:
        Misconfigured: a setting of the security is wrong, or a file cannot be used.
    """
    consumer = RecordConsumer(
        **client_options(bootstrap, security, pipe),
        client_id=client_id,
        enable_auto_commit=False,
        **options,
    )
    _wait_for_brokers(consumer)  # a `group_id` in the options has a coordinator too
    return consumer


def adaptive_consumer(settings: ServiceSettings, **options: Any) -> AdaptiveConsumer:
    """A consumer with an AdaptiveFetcher and without a group, not started: to `assign`; from the earliest offset.

    Args:
        settings: bootstrap servers and client id.
        options: more options of AIOKafkaConsumer.
    """
    return AdaptiveConsumer(
        **client_options(settings.kafka),
        client_id=settings.instance,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **options,
    )


@contextlib.asynccontextmanager
async def topic_consumer(
    bootstrap: str,
    client_id: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AsyncIterator[AIOKafkaConsumer]:
    """A started `assigned_consumer` that goes on at the earliest offset; closed at the end of the block.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaConsumer.

    Raises:
        aiokafka.errors.KafkaError, OSError: no broker answers.
    """
    consumer = assigned_consumer(
        bootstrap, client_id, security=security, pipe=pipe, auto_offset_reset="earliest", **options
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await close(consumer)


def admin_client(
    bootstrap: str,
    client_id: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AIOKafkaAdminClient:
    """An admin client, not started.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaAdminClient.

    Raises:
        Misconfigured: a setting of the security is wrong, or a file cannot be used.
    """
    return AIOKafkaAdminClient(**client_options(bootstrap, security, pipe), client_id=client_id, **options)


@contextlib.asynccontextmanager
async def started_admin(
    bootstrap: str,
    client_id: str,
    *,
    security: KafkaSecurity | None = None,
    pipe: str | None = None,
    **options: Any,
) -> AsyncIterator[AIOKafkaAdminClient]:
    """A started `admin_client`, closed at the end of the block.

    Args:
        bootstrap: `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        security: of the connections; None: that of the bootstrap servers.
        pipe: that declares the security; see `client_options`.
        options: more options of AIOKafkaAdminClient.

    Raises:
        aiokafka.errors.KafkaError, OSError: no broker answers.
    """
    admin = admin_client(bootstrap, client_id, security=security, pipe=pipe, **options)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


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
        await _abandon(client)
    elif not stopping.cancelled():
        error = stopping.exception()
        if error is not None and not isinstance(error, KafkaError | OSError | TimeoutError):
            raise error


async def _abandon(client: Any) -> None:
    """End the connections and tasks of a client whose `stop` hung; without this they live as long as the process."""
    connections = _connections(client)
    if connections is None:
        return
    owners = (
        (getattr(client, "_sender", None), "_sender_task"),
        (getattr(client, "_fetcher", None), "_fetch_task"),
    )
    tasks = {getattr(owner, name) for owner, name in owners if owner is not None} - {None}
    pending = {asyncio.ensure_future(connections.close()), *tasks}
    for _ in range(_CANCELLATIONS):
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.2)
        if not pending:
            break
    accumulator = getattr(client, "_message_accumulator", None)
    if accumulator is not None:
        accumulator.fail_all(ProducerClosed())  # else its flush waits for ever
        forget_errors(client)
