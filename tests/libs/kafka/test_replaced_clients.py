"""What the producer gives to the clients of aiokafka, one after the other, in their place. No Kafka."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from hifi.kafka import producer as producer_module
from hifi.kafka.producer import Producer
from hifi.record.record import Record
from hifi.runtime.errors import Unacknowledged


class SilentClient:
    """In place of an aiokafka producer: it never acknowledges anything by itself. Each record is a batch of its own."""

    def __init__(self, topics: set[str]) -> None:
        self.client = self.cluster = self
        self._topics = topics
        self.batches: list[tuple[str, bytes | None]] = []
        """Topics and values."""
        self.futures: list[asyncio.Future[None]] = []

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic in self._topics else None

    async def _wait_on_metadata(self, _: str) -> None:
        await asyncio.Event().wait()


class ReplacedClients(Producer):
    """A producer whose clients know some topics, the first one fewer than the later ones."""

    def __init__(self) -> None:
        super().__init__("nowhere:1", "test")
        self.made: list[SilentClient] = []

    async def _new_client(self) -> Any:
        self._looked_up = set()
        self.made.append(SilentClient({"raw", "other"} if not self.made else {"raw", "other", "unknown"}))
        return self.made[-1]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture
async def producer(monkeypatch: pytest.MonkeyPatch) -> ReplacedClients:
    def build_batches(_: SilentClient, records: Iterable[Record], __: int) -> list[Record]:
        return list(records)

    def append_batch(client: SilentClient, batch: Record, tp: TopicPartition) -> asyncio.Future[None]:
        client.batches.append((tp.topic, batch.value))
        client.futures.append(asyncio.get_running_loop().create_future())
        return client.futures[-1]

    async def close(*_: Any) -> None:
        """There is nothing to close."""

    replacements = {
        "build_batches": build_batches,
        "append_batch": append_batch,
        "abort": lambda _: None,
        "close": close,
    }
    for name, replacement in replacements.items():
        monkeypatch.setattr(producer_module, name, replacement)
    monkeypatch.setattr(
        producer_module, "FETCH_INTERVAL", SimpleNamespace(seconds=0.01, until_tick_s=lambda: 0)
    )
    made = ReplacedClients()
    await made.start()
    return made


def record(value: bytes) -> Record:
    return Record(b"k", value, [])


async def test_what_must_not_be_written_twice_fails_with_all_behind_it_when_its_client_is_replaced(
    producer: ReplacedClients,
) -> None:
    first_sending = producer.send("raw", 0, [record(b"1")], repeats=False)
    repeated = producer.send("other", 0, [record(b"2")])
    never_given = producer.send("unknown", 0, [record(b"3")], repeats=False)
    await producer.until(lambda: len(producer.made[0].batches) == 2)
    behind = producer.send("raw", 0, [record(b"4")])
    producer.made[0].futures[1].set_exception(KafkaConnectionError("away"))
    await producer.until(lambda: len(producer.made) == 2 and len(producer.made[1].batches) == 2)
    for sending in (first_sending, behind):
        with pytest.raises(Unacknowledged, match="may have stored it"):
            await sending.acknowledged
    assert producer.made[1].batches == [("other", b"2"), ("unknown", b"3")]
    later = producer.send("raw", 0, [record(b"1")], repeats=False)
    await producer.until(lambda: len(producer.made[1].batches) == 3)
    for future in producer.made[1].futures:
        future.set_result(None)
    async with asyncio.timeout(20):
        await asyncio.gather(*(sending.acknowledged for sending in (repeated, never_given, later)))
    assert await producer.stop()
    assert producer._buffered_bytes == 0


async def test_a_client_has_no_later_batch_of_a_partition_before_the_one_in_front_is_acknowledged(
    producer: ReplacedClients,
) -> None:
    sending = producer.send("other", 0, [record(b"1"), record(b"2"), record(b"3")])
    await producer.until(lambda: bool(producer.made[0].batches))
    assert [value for _, value in producer.made[0].batches] == [b"1"]
    producer.made[0].futures[0].set_result(None)
    await producer.until(lambda: len(producer.made[0].batches) == 2)
    producer.made[0].futures[1].set_exception(KafkaConnectionError("away"))
    await producer.until(lambda: len(producer.made) == 2 and bool(producer.made[1].batches))
    assert [value for _, value in producer.made[0].batches] == [b"1", b"2"]
    assert [value for _, value in producer.made[1].batches] == [b"1"]
    assert not await producer.stop(0.01)
    producer.made[1].futures[0].set_result(None)
    await asyncio.sleep(0)
    assert [value for _, value in producer.made[1].batches] == [b"1"], "also when it was stopped"
    with pytest.raises(Unacknowledged, match="stopped"):
        await sending.acknowledged


async def test_records_of_a_round_whose_first_ones_were_abandoned_are_waited_for(
    producer: ReplacedClients,
) -> None:
    abandoned = producer.send("raw", 0, [record(b"1")])
    sending = producer.send("other", 0, [record(b"2")])
    assert abandoned.abandon()
    await producer.until(lambda: bool(producer.made[0].batches))
    assert not await producer.stop(0.05)
    with pytest.raises(Unacknowledged, match="stopped"):
        await sending.acknowledged
