"""An error of a transaction that nobody waits for any more is not logged by asyncio."""

import asyncio
import gc
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

from hifi.kafka.batches import begin_transaction, forget_errors


async def test_the_error_that_a_fatal_one_replaces_is_not_logged(kafka: str) -> None:
    logged_contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged_contexts.append(context))
    producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id="errors")
    await producer.start()
    await begin_transaction(producer)
    manager = producer._txn_manager
    manager.error_transaction(KafkaError())
    manager.fatal_error(ProducerFenced())
    await asyncio.sleep(0)  # callbacks
    await producer.stop()
    forget_errors(producer)
    del producer, manager
    gc.collect()
    assert logged_contexts == []
