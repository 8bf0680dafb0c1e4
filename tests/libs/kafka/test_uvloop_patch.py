"""Clients of a Kafka that closes connections, on the loop of the services."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from aiokafka import AIOKafkaConsumer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest

from hifi.kafka.uvloop_patch import apply

BOUND_S = 20


async def with_client(kafka: str, work: Callable[[Any], Awaitable[None]]) -> None:
    """Do something with aiokafka's client."""
    async with asyncio.timeout(BOUND_S), AIOKafkaConsumer(bootstrap_servers=kafka) as consumer:
        await work(consumer._client)


async def closed(client: Any) -> AIOKafkaConnection:
    """The client's connection, closed in the moment before it hears of it, which is how a reset comes."""
    connection = await client._get_conn(client.get_random_node())
    connection._reader.feed_eof = lambda: None
    connection._writer.transport.abort()
    await asyncio.sleep(0)
    assert connection.connected()  # as far as it knows
    return connection


def test_a_write_is_an_error_that_aiokafka_knows(kafka: str) -> None:
    async def work(client: Any) -> None:
        connection = await closed(client)
        with pytest.raises(KafkaConnectionError, match="closed"):
            connection.send(MetadataRequest([]))
        assert not connection.connected()

    uvloop.run(with_client(kafka, work))


def test_a_client_that_asks_for_metadata_goes_on(kafka: str) -> None:
    async def work(client: Any) -> None:
        await closed(client)
        assert await client.force_metadata_update() is False
        assert await client.force_metadata_update() is True

    uvloop.run(with_client(kafka, work))


def test_applying_the_patch_twice_changes_nothing() -> None:
    original_send = AIOKafkaConnection.send
    apply()
    assert AIOKafkaConnection.send is original_send
