"""An error of a transaction that nobody waits for any more is not logged by asyncio."""

import asyncio
import gc
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from hifi.kafka.admin import create_topic
from hifi.kafka.batches import begin_transaction, forget_errors
from hifi.kafka.clients import started_admin


@pytest.fixture
async def logged_contexts() -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    return contexts


async def test_the_error_that_a_fatal_one_replaces_is_not_logged(
    kafka: str, logged_contexts: list[dict[str, Any]]
) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id="errors")
    await producer.start()
    await begin_transaction(producer)
    manager = producer._txn_manager
    manager.error_transaction(KafkaError())
    manager.fatal_error(ProducerFenced())
    await asyncio.sleep(0)  # callbacks
    forget_errors(producer)
    await producer.stop()
    del producer, manager
    gc.collect()
    assert logged_contexts == []


async def test_the_error_of_a_batch_that_comes_after_its_write_was_cancelled_is_not_logged(
    kafka: str, logged_contexts: list[dict[str, Any]]
) -> None:
    async with started_admin(kafka, "test") as admin:
        await create_topic(admin, "given-up", 1, {})
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id="given-up")
    await producer.start()
    await begin_transaction(producer)
    builder = producer.create_batch()
    builder.append(key=None, value=b"v", timestamp=None)
    acknowledged = await producer.send_batch(builder, "given-up", partition=0)
    forget_errors(producer)
    acknowledged.cancel()
    await asyncio.sleep(0)  # callbacks
    producer._message_accumulator.fail_all(ProducerFenced())
    await asyncio.sleep(0)
    await producer.stop()
    del producer, builder, acknowledged
    gc.collect()
    assert logged_contexts == []
