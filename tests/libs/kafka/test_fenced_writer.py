"""A writer whose request may arrive late writes nothing more with the producer that sent it. No Kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import NodeNotReadyError

from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.record.record import Record


async def test_after_a_request_without_an_answer_the_right_to_write_must_be_taken_over_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writers: list[AIOKafkaProducer] = []
    """The producers, once for each record."""

    async def start(_: AIOKafkaProducer) -> None:
        """There is no broker."""

    @contextlib.asynccontextmanager
    async def transaction(_: AIOKafkaProducer) -> AsyncIterator[None]:
        yield

    async def send(producer: AIOKafkaProducer, *_: Any, **__: Any) -> asyncio.Future[Any]:
        writers.append(producer)
        acknowledgement = asyncio.get_running_loop().create_future()
        acknowledgement.set_result(SimpleNamespace(offset=len(writers)))
        return acknowledgement

    for replacement in (start, transaction, send):
        monkeypatch.setattr(AIOKafkaProducer, replacement.__name__, replacement)

    async def lose_an_answer() -> None:
        assert writer._producer is not None
        with pytest.raises(NodeNotReadyError):
            await writer._producer.client.send(1, object())

    writer, records = FencedWriter("localhost:1", "writer", "i"), [Record(b"k", b"v", [])]
    await writer.take_over()
    await lose_an_answer()  # before any transaction: the start has fenced it
    await writer.write("topic", records)
    await lose_an_answer()
    with pytest.raises(Overtaken, match="nothing was written"):
        await writer.write("topic", records)
    assert len(writers) == 1
    assert writers[0]._closed
    await writer.take_over()
    for _ in range(2):
        await writer.write("topic", records)
    assert writers[0] is not writers[1] is writers[2]
    await writer.stop()
