"""Clients have the settings on which delivery depends, are connected with patience and closed within a bound."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from aiokafka.client import CoordinationType
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError

from aiokafka_cooperative import IncompatibleAiokafkaError
from hifi.kafka import clients
from hifi.kafka.settings import ServiceSettings
from hifi.runtime.errors import Misconfigured


class StoppableClient:
    def __init__(self, stop: Callable[[], Awaitable[None]]) -> None:
        self.stop = stop


async def test_each_producer_waits_for_all_replicas_and_is_idempotent() -> None:
    for producer in (
        clients.plain_producer("localhost:1", "i", compression_type="lz4"),
        clients.transactional_producer("localhost:1", "writer", "i", timeout_s=60),
    ):
        assert producer._sender._acks == -1
        assert producer._txn_manager is not None
        await clients.close(producer)


async def test_a_transaction_that_is_open_for_too_long_is_aborted() -> None:
    producer = clients.transactional_producer("localhost:1", "writer", "i", timeout_s=30)
    assert producer._txn_manager.transactional_id == "writer"
    assert producer._txn_manager.transaction_timeout_ms == 30_000
    await clients.close(producer)


async def test_a_cluster_that_names_no_broker_is_asked_again() -> None:
    """aiokafka raises an AssertionError, which nothing repeats."""
    producer = clients.transactional_producer("localhost:1", "writer", "i", timeout_s=30)
    member = clients.group_consumer(ServiceSettings(), "g")
    reader = clients.assigned_consumer("localhost:1", "i", group_id="g")
    for client, connections, kind, key in (
        (producer, producer.client, CoordinationType.TRANSACTION, "writer"),
        (member, member._client, CoordinationType.GROUP, "g"),
        (reader, reader._client, CoordinationType.GROUP, "g"),
    ):
        with pytest.raises(NodeNotReadyError) as raised:
            await connections.coordinator_lookup(kind, key)
        assert raised.value.retriable
        await clients.close(client)


async def test_a_request_without_an_answer_may_arrive_late() -> None:
    producer, other = (
        clients.transactional_producer("localhost:1", writer, "i", timeout_s=30)
        for writer in ("writer", "other")
    )
    assert not clients.may_arrive_late(producer)
    with pytest.raises(NodeNotReadyError):
        await producer.client.send(1, object())
    assert clients.may_arrive_late(producer)
    assert not clients.may_arrive_late(other)
    await clients.close(producer)
    await clients.close(other)


async def test_no_consumer_commits_by_itself() -> None:
    settings = ServiceSettings()
    for consumer in (
        clients.assigned_consumer("localhost:1", "i"),
        clients.assigned_consumer("localhost:1", "i", group_id="g"),
        clients.adaptive_consumer(settings),
        clients.group_consumer(settings, "g"),
    ):
        assert not consumer._enable_auto_commit
        await clients.close(consumer)


async def test_a_client_that_hangs_is_left_after_the_bound() -> None:
    cancelled = False

    async def hang() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        finally:
            cancelled = True

    async with asyncio.timeout(10):
        await clients.close(StoppableClient(hang), timeout_s=0.05)
    assert cancelled


async def test_a_task_of_the_client_that_was_cancelled_does_not_cancel_the_caller() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    await clients.close(StoppableClient(cancelled))


async def test_errors_of_kafka_are_ignored_and_others_are_not() -> None:
    async def fail_to_connect() -> None:
        raise KafkaConnectionError

    async def broken() -> None:
        raise ZeroDivisionError

    await clients.close(StoppableClient(fail_to_connect))
    with pytest.raises(ZeroDivisionError):
        await clients.close(StoppableClient(broken))


@pytest.mark.slow
async def test_connecting_goes_on_until_a_broker_answers_and_tells_each_failure() -> None:
    failures: list[Exception] = []

    async def start() -> None:
        if len(failures) < 3:
            raise KafkaConnectionError

    await clients.connect(start, failures.append)
    assert len(failures) == 3


async def test_connecting_ends_when_it_is_cancelled_while_an_attempt_fails() -> None:
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # as asyncio.wait_for where both come together
                await asyncio.sleep(0)
        assert attempts < 3
        raise KafkaConnectionError("nobody answers")

    connecting = asyncio.create_task(clients.connect(fail))
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert attempts == 1


async def test_an_aiokafka_that_does_not_fit_is_a_misconfiguration(monkeypatch: pytest.MonkeyPatch) -> None:
    def differs() -> None:
        raise IncompatibleAiokafkaError("Fetcher._proc_fetch_request has no highwater")

    monkeypatch.setattr(clients, "check_fetcher", differs)
    with pytest.raises(Misconfigured, match="highwater"):
        clients.group_consumer(ServiceSettings(), "g")
